"""The next smaller sizes of a step, advised before a run and after its death."""

from __future__ import annotations

SMALLEST_CHUNK = 256
"""Tokens; below it the loss is slow, and its logits are little."""
WORTH = 0.97
"""Share of the present needs: a saving has to go below it, since an estimate is not more exact."""


def smaller_micro_batch(micro_batch: int) -> int:
    """The largest divisor that is at most half of it: it divides whatever step the micro-batch divides."""
    return next(size for size in range(max(1, micro_batch // 2), 0, -1) if micro_batch % size == 0)


def smaller_chunk(tokens: int) -> int | None:
    """Half of the tokens whose logits exist at once; None if that is too few."""
    return max(SMALLEST_CHUNK, tokens // 2) if tokens > SMALLEST_CHUNK else None
