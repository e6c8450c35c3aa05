"""A model of the user's with the interface that training, evaluation and generation use of `LanguageModel`.

Contract: `CLASS(options, size, vocab_size, seq_len)` is an nn.Module. Its `forward(input_ids)` takes int64
(batch, seq) and returns logits (batch, seq, vocab_size); or, if it has a `head` (nn.Linear), hidden states
(batch, seq, d_model), whose logits `head` would give: then the loss never holds all logits in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from conf import Config
from conf.own_parts.call import called
from conf.own_parts.load import own_part
from conf.parts_table import Part
from experiment_utils.errors import Problem, UserError
from models import LanguageModel, build_model
from models.options.parametrization import Scales


@dataclass(frozen=True)
class Size:
    """Size of a model, as the configuration has it."""

    d_model: int
    n_layers: int
    n_heads: int


class OwnModel(nn.Module):
    """A registered model: ids int64 (batch, seq) to hidden states or logits.

    Args:
        built: the user's module.
        part: its registration, for messages.
    """

    logit_softcap: float | None = None
    z_loss: float = 0.0

    def __init__(self, built: nn.Module, part: Part, vocab_size: int, max_positions: int) -> None:
        super().__init__()
        self.own, self.part = built, part
        self.vocab_size, self.max_positions = vocab_size, max_positions
        self.activation_checkpointing: bool | int = False
        self.memory = None
        self.scales: dict[str, Scales] = {}
        self.blocks = nn.ModuleList()

    @property
    def output_weight(self) -> Tensor | None:
        """Weight of `head` (vocab, d_model); None if forward returns logits."""
        head = getattr(self.own, "head", None)
        return None if head is None else head.weight

    @property
    def head_bias(self) -> Tensor | None:
        """Bias of `head` (vocab,), if it has one."""
        return getattr(getattr(self.own, "head", None), "bias", None)

    def states(self, input_ids: Tensor, position_ids: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """Hidden states, or logits, and the losses of its parts: none."""
        if position_ids is not None:
            raise ValueError("a model of one's own takes no position_ids")
        return self.own(input_ids), []

    def hidden(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Hidden states (batch, seq, d_model), or logits (batch, seq, vocab)."""
        return self.states(input_ids, position_ids)[0]

    def logits(self, states: Tensor) -> Tensor:
        """Logits (..., vocab) of what `hidden` returned."""
        head = getattr(self.own, "head", None)
        return states if head is None else head(states)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits (batch, seq, vocab)."""
        return self.logits(self.hidden(input_ids))


def build_run_model(config: Config, vocab_size: int, max_positions: int) -> LanguageModel:
    """Build the model of a configuration: one of ours, or an OwnModel, which training treats alike.

    Raises:
        UserError: sizes do not fit together, or the user's class fails; names FILE:LINE.
    """
    found = own_part(config, "model")
    if found is None:
        return build_model(config.model, config.arch, vocab_size, max_positions)
    part, registered, options = found
    model = config.model
    size = Size(model.d_model, model.n_layers or 1, model.n_heads or 1)
    built = called(part, registered.code, options, size, vocab_size, max_positions)
    if not isinstance(built, nn.Module):
        what = f"{part.kind} {part.name} is {type(built).__name__}: expected an nn.Module"
        raise UserError(Problem(part.place, what, "model-no-module"))
    return cast("LanguageModel", OwnModel(built, part, vocab_size, max_positions))
