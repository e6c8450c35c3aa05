"""How many tokens' logits exist at once. No torch: what a run will need is told without it."""

from __future__ import annotations

from conf import AUTO

AUTO_CHUNK = 256
"""Tokens in a chunk for a vocabulary of 50k: sizes around it differ little in time (benchmarks/loss.py)."""

AUTO_CHUNK_BYTES = 256 * 50_257 * 4
"""49 MiB: what a chunk of a smaller vocabulary may hold in fp32."""

TILE_BYTES = 1 << 20
"""Of the logits of a tile in fp32: what the cache of a core holds (benchmarks/loss.py)."""

TILES_AT_ONCE = 4
"""In one product: BLAS gives each thread tiles of its own, and divides a lone one badly."""

MIN_TILE_WIDTH = 1024
"""Of the vocabulary: narrower products take longer than the cache saves."""

WHOLE_COPIES = 3
"""Ordinary cross-entropy holds logits, their log-softmax and their gradient."""


def resolve_loss_chunk(chunk: int | str, vocab_size: int) -> int:
    """Tokens whose logits exist at once; `auto`: 256, and more where the vocabulary is small.

    For a small vocabulary a power of two that ordinary cross-entropy takes whole, at no more memory
    than 256 tokens of a 50k vocabulary: 16,384 tokens for bytes.
    """
    if chunk != AUTO:
        return int(chunk)
    affordable = AUTO_CHUNK_BYTES // (4 * WHOLE_COPIES * vocab_size)
    return max(AUTO_CHUNK, 1 << (affordable.bit_length() - 1) if affordable else 0)


def tile_width(vocab_size: int, chunk: int) -> int:
    """Of the vocabulary, so many have a tile of the logits of a chunk, on a CPU."""
    return min(vocab_size, max(MIN_TILE_WIDTH, TILE_BYTES // (4 * chunk)))


def width_at_once(vocab_size: int, chunk: int) -> int:
    """Of all tiles of one product."""
    return min(vocab_size, TILES_AT_ONCE * tile_width(vocab_size, chunk))
