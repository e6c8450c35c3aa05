"""Text from a trained model, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from data_loading import Tokenizer
    from models import LanguageModel

_NOT_YET = "\ufffd"
"""Replacement for bytes that are no character, or only the start of one."""
_LONGEST_CHARACTER = 8
"""Tokens after which such bytes can no longer be the start of a character."""
_GREEDY_BELOW = 1e-6
"""Lower temperatures leave one token, and their quotients are not finite in fp32."""


@dataclass(frozen=True)
class Choice:
    """Rule by which the next token is drawn."""

    temperature: float = 1.0
    """Divides the logits; 0: the most likely token."""
    top_k: int | None = None
    """Number of most likely tokens to draw from; None: all."""
    top_p: float = 1.0
    """Probability of the most likely tokens to draw from (Holtzman et al., arXiv:1904.09751)."""


def sample(
    model: LanguageModel, prompt: list[int], choice: Choice, generator: torch.Generator
) -> Iterator[int]:
    """Generate ids after the prompt, without end. The model sees the last `model.max_positions` ids.

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
    """Draw an index of logits (vocab,)."""
    import torch

    if choice.temperature < _GREEDY_BELOW:
        return int(logits.argmax())
    ordered, indices = (logits / choice.temperature).sort(descending=True, stable=True)
    ordered, indices = ordered[: choice.top_k], indices[: choice.top_k]
    probabilities = ordered.softmax(0)
    before = probabilities.cumsum(0) - probabilities
    probabilities = probabilities * (before < choice.top_p)
    return int(indices[torch.multinomial(probabilities, 1, generator=generator)])


def until_end(ids: Iterator[int], tokenizer: Tokenizer) -> Iterator[int]:
    """The ids before the first one that ends a text, or begins the next."""
    for number in ids:
        if number in (tokenizer.eot_id, tokenizer.bos_id):
            return
        yield number


def text_of(ids: Iterator[int], tokenizer: Tokenizer, after: Sequence[int] = ()) -> Iterator[str]:
    """Decode ids piece by piece. No piece ends within a character; joined, they are the text of all ids.

    after: ids before them, whose text is left out. Some decoders write a word differently at the start of a
    text (SentencePiece writes no space there).
    """
    behind, waiting = list(after[-_LONGEST_CHARACTER:]), []
    for number in ids:
        waiting.append(number)
        whole = tokenizer.decode([*behind, *waiting])
        kept = 0
        if whole.endswith(_NOT_YET):
            if len(waiting) < _LONGEST_CHARACTER:
                continue
            # These bytes are no character, but the last ones can start one.
            kept = next((n for n in (3, 2, 1) if _parts_at(len(waiting) - n, behind, waiting, tokenizer)), 0)
        piece, waiting = waiting[: len(waiting) - kept], waiting[len(waiting) - kept :]
        yield _text_between(behind, piece, tokenizer)
        behind = [*behind, *piece][-_LONGEST_CHARACTER:]
    if waiting:
        yield _text_between(behind, waiting, tokenizer)


def _text_between(behind: list[int], ids: list[int], tokenizer: Tokenizer) -> str:
    return tokenizer.decode([*behind, *ids])[len(tokenizer.decode(behind)) :]


def _parts_at(place: int, behind: list[int], ids: list[int], tokenizer: Tokenizer) -> bool:
    """Whether no character crosses this place."""
    parts = tokenizer.decode([*behind, *ids[:place]]) + tokenizer.decode(ids[place:])
    return parts == tokenizer.decode([*behind, *ids])
