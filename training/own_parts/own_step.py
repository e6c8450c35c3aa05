"""A step of the user's: what a micro-batch computes. All else of a step stays ours.

Contract: `FUNCTION(model, batch, options)` returns the loss to minimize: a scalar tensor with gradients, the
mean over the labels of the micro-batch; or `(loss, {"lm_loss": lm_loss})`, of which lm_loss is recorded.
`model(input_ids)` gives logits (batch, seq, vocab), `model.hidden(input_ids)` hidden states (batch, seq,
d_model); a registered model is `model.own`. `batch` has `input_ids` and `labels`, int64 (batch, seq); a label
of -100 does not count.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from conf import Config
from conf.own_parts.call import called
from conf.own_parts.load import own_part
from conf.own_parts.register import Registered
from conf.parts_table import Part
from experiment_utils.errors import Problem, UserError
from models import LanguageModel, LossModel
from training.own_parts.own_metric import described

RECORDED = "lm_loss"


class StepLossModel(LossModel):
    """A LossModel whose `batch=` is computed by the user's function, in forward, for DDP and FSDP2."""

    def __init__(self, model: LanguageModel, own: tuple[Part, Registered, Any]) -> None:
        super().__init__(model)
        self._own = own

    def forward(self, *arguments: Any, batch: dict[str, Tensor] | None = None, **options: Any) -> Any:
        """The loss as a LossModel has it; or, of a batch, (loss to minimize, loss to record)."""
        if batch is None:
            return super().forward(*arguments, **options)
        part, registered, values = self._own
        found = called(part, registered.code, self.model, batch, values)
        return losses_of(part, found)


def loss_model_of(config: Config, model: LanguageModel) -> LossModel:
    """The module that computes the loss of a run's steps: ours, or one with the user's function."""
    own = own_part(config, "step")
    return LossModel(model) if own is None else StepLossModel(model, own)


def losses_of(part: Part, found: Any) -> tuple[Tensor, Tensor]:
    """(loss to minimize, loss to record), of what a step returned.

    Raises:
        UserError: it is not what the contract says.
    """
    loss, recorded = found, None
    if isinstance(found, tuple):
        loss, named = found if len(found) == 2 else (None, None)
        recorded = named.get(RECORDED) if isinstance(named, dict) and {*named} == {RECORDED} else None
        if not _is_scalar(recorded):
            what = (
                f'step {part.name}: expected (loss, {{"{RECORDED}": a scalar tensor}}), got {_parts(found)}'
            )
            raise UserError(Problem(part.place, what, "step-value"))
    if not _is_scalar(loss) or not loss.requires_grad:
        is_now = "a tensor without gradients" if _is_scalar(loss) else described(loss)
        what = f"step {part.name} returned {is_now}; expected its loss: a scalar tensor with gradients"
        raise UserError(Problem(part.place, what, "step-value"))
    return loss, loss.detach() if recorded is None else recorded.detach()


def check_loss(part: Part, found: Any) -> Tensor:
    """The loss that a step returned for a small batch.

    Raises:
        UserError: as `losses_of`, or it is not finite.
    """
    loss = losses_of(part, found)[0]
    if not math.isfinite(loss.item()):
        what = f"step {part.name} returned the loss {loss.item()} for a new model"
        raise UserError(Problem(part.place, what, "step-value"))
    return loss


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0 and value.is_floating_point()


def _parts(found: tuple[Any, ...]) -> str:
    shown = [f"{{{', '.join(map(repr, one))}}}" if isinstance(one, dict) else described(one) for one in found]
    return f"({', '.join(shown)})"
