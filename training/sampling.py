"""Text from a trained model, token by token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from data_loading import Tokenizer
    from models import LanguageModel

_NOT_YET = "\ufffd"
"""What stands for bytes that are no character, or the beginning of one."""
_LONGEST_CHARACTER = 8
"""Tokens after which such bytes are no beginning any more."""
_GREEDY_BELOW = 1e-6
"""Temperatures below it leave one token anyway, and quotients that are no numbers of fp32."""


@dataclass(frozen=True)
class Choice:
    """How the next token is drawn. temperature: logits are divided by it; 0: the most likely one. top_k: of
    so many most likely ones; None: of all. top_p: of the most likely ones that together have this
    probability (Holtzman et al., arXiv:1904.09751).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0


def sample(
    model: LanguageModel, prompt: list[int], choice: Choice, generator: torch.Generator
) -> Iterator[int]:
    """Ids after the prompt, without end. The model sees as many of the last ones as it has positions.

    prompt: at least one id. generator: on the CPU, where tokens are drawn whatever the device.
    """
    import torch

    ids, device = list(prompt), next(model.parameters()).device
    while True:
        seen = torch.tensor([ids[-model.max_positions :]], device=device)
        with torch.no_grad():
            logits = model.logits(model.hidden(seen)[0, -1]).float().cpu()
        ids.append(draw(logits, choice, generator))
        yield ids[-1]


def draw(logits: torch.Tensor, choice: Choice, generator: torch.Generator) -> int:
    """An index of logits (vocab,)."""
    import torch

    if choice.temperature < _GREEDY_BELOW:
        return int(logits.argmax())
    ordered, indices = (logits / choice.temperature).sort(descending=True, stable=True)
    ordered, indices = ordered[: choice.top_k], indices[: choice.top_k]
    probabilities = ordered.softmax(0)
    before = probabilities.cumsum(0) - probabilities
    probabilities = probabilities * (before < choice.top_p)
    return int(indices[torch.multinomial(probabilities, 1, generator=generator)])


def text_of(ids: Iterator[int], tokenizer: Tokenizer) -> Iterator[str]:
    """The ids as text, piece by piece: never a part of a character."""
    waiting: list[int] = []
    for number in ids:
        waiting.append(number)
        text = tokenizer.decode(waiting)
        if not text.endswith(_NOT_YET) or len(waiting) >= _LONGEST_CHARACTER:
            yield text
            waiting = []
    if waiting:
        yield tokenizer.decode(waiting)
