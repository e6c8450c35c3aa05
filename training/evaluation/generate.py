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


def until_end(ids: Iterator[int], tokenizer: Tokenizer) -> Iterator[int]:
    """The ids before the first one that ends a text, or begins the next."""
    for number in ids:
        if number in (tokenizer.eot_id, tokenizer.bos_id):
            return
        yield number


def text_of(ids: Iterator[int], tokenizer: Tokenizer, after: Sequence[int] = ()) -> Iterator[str]:
    """The ids as text, piece by piece: never a part of a character, and joined what all of them are.

    after: the ids before them, whose text is not told: some decoders write a word otherwise where a text
    begins (SentencePiece has no space there).
    """
    behind, waiting = list(after[-_LONGEST_CHARACTER:]), []
    for number in ids:
        waiting.append(number)
        whole = tokenizer.decode([*behind, *waiting])
        kept = 0
        if whole.endswith(_NOT_YET):
            if len(waiting) < _LONGEST_CHARACTER:
                continue
            # Bytes that will be no character; but the last of them may begin one.
            kept = next((n for n in (3, 2, 1) if _parts_at(len(waiting) - n, behind, waiting, tokenizer)), 0)
        told, waiting = waiting[: len(waiting) - kept], waiting[len(waiting) - kept :]
        yield _text_between(behind, told, tokenizer)
        behind = [*behind, *told][-_LONGEST_CHARACTER:]
    if waiting:
        yield _text_between(behind, waiting, tokenizer)


def _text_between(behind: list[int], ids: list[int], tokenizer: Tokenizer) -> str:
    return tokenizer.decode([*behind, *ids])[len(tokenizer.decode(behind)) :]


def _parts_at(place: int, behind: list[int], ids: list[int], tokenizer: Tokenizer) -> bool:
    """Whether no character goes over it."""
    parts = tokenizer.decode([*behind, *ids[:place]]) + tokenizer.decode(ids[place:])
    return parts == tokenizer.decode([*behind, *ids])
