"""What the output head is of a step, and what a smaller vocabulary would buy. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from conf.schema import Arch, Model
from models.options.counts import count_parameters, flops_per_token

MOST_OF_A_STEP = 0.5
"""Share of the head in the FLOPs of a step, from which on a smaller vocabulary is told of."""
BYTES_VOCAB = 257
"""Ids of tokenizer=bytes: every byte, and the end of a document."""


@dataclass(frozen=True)
class SmallerVocabulary:
    """The same model over the ids of another tokenizer, a text of which has about a token a byte.

    times_fewer_flops: a token's FLOPs as it is over those with it; tokens a second rise by no more.
    """

    tokenizer: str
    vocab_size: int
    parameters: int
    flops_per_token: float
    head_share: float
    times_fewer_flops: float

    def line(self) -> str:
        return (
            f"with tokenizer={self.tokenizer} ({self.vocab_size} ids) {self.parameters:,} parameters, "
            f"{self.flops_per_token:.3g} FLOPs a token, {self.head_share:.0%} the head: up to "
            f"{self.times_fewer_flops:.3g} times the tokens a second, a text is a token a byte"
        )


def smaller_vocabulary(
    model: Model, arch: Arch, vocab_size: int, positions: int, seq_len: int, tokenizer: str
) -> SmallerVocabulary | None:
    """What bytes would buy, where most of a step is the head; None: it is not, or ids have no text."""
    now = flops_per_token(model, arch, vocab_size, seq_len)
    if now.head < MOST_OF_A_STEP * now.total or vocab_size <= BYTES_VOCAB or tokenizer == "ids":
        return None
    then = flops_per_token(model, arch, BYTES_VOCAB, seq_len)
    return SmallerVocabulary(
        "bytes",
        BYTES_VOCAB,
        count_parameters(model, arch, BYTES_VOCAB, positions).total,
        then.total,
        then.head / then.total,
        now.total / then.total,
    )
