"""The next smaller sizes of a step: what is advised before a run and after its death is the same."""

from __future__ import annotations

SMALLEST_CHUNK = 256
"""Tokens; below it the loss is slow, and its logits are little."""

WORTH = 0.97
"""Of what it needs now: an estimate is not so exact that less would be told from nothing."""


def smaller_micro_batch(micro_batch: int) -> int:
    """At most half of it, and whatever step it divides is a whole number of these too."""
    return next(size for size in range(max(1, micro_batch // 2), 0, -1) if micro_batch % size == 0)


def smaller_chunk(tokens: int) -> int | None:
    """Half of the tokens whose logits are there at once; None where that is too few."""
    return max(SMALLEST_CHUNK, tokens // 2) if tokens > SMALLEST_CHUNK else None
