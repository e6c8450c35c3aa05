"""How many tokens' logits exist at once. No torch: what a run will need is told without it."""

from __future__ import annotations

import functools
import importlib.util

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


GPU_CHUNK_BYTES = 2 << 30
"""Bytes of the logits of a chunk on a GPU, if they were fp32: 8,192 tokens of 50k ids."""

GPU_CHUNK_SHARE = 1 / 16
"""Largest share of a GPU's memory that a chunk can have."""

GPU_CHUNK_TOKENS = 65_536
"""Largest chunk on a GPU: `micro_batch=auto` takes no more tokens."""


def resolve_loss_chunk(chunk: int | str, vocab_size: int, device: str, gpu_bytes: int | None = None) -> int:
    """Tokens whose logits exist at once.

    `auto` on a CPU: 256, and more if the vocabulary is small: a power of two that ordinary cross-entropy
    takes whole, in no more memory than 256 tokens of a 50k vocabulary (16,384 tokens for bytes). `auto` on a
    GPU: a power of two by the bytes of the logits, 8,192 tokens for a 50k vocabulary.

    Args:
        chunk: tokens, or `auto`.
        vocab_size: number of ids.
        device: `cpu` or `cuda`.
        gpu_bytes: memory of the GPU, if it is known.
    """
    if chunk != AUTO:
        return int(chunk)
    if device == "cpu":
        affordable = AUTO_CHUNK_BYTES // (4 * WHOLE_COPIES * vocab_size)
        return max(AUTO_CHUNK, 1 << (affordable.bit_length() - 1) if affordable else 0)
    most = GPU_CHUNK_BYTES if gpu_bytes is None else min(GPU_CHUNK_BYTES, int(GPU_CHUNK_SHARE * gpu_bytes))
    affordable = max(1, most // (4 * vocab_size))
    return min(GPU_CHUNK_TOKENS, max(AUTO_CHUNK, 1 << (affordable.bit_length() - 1)))


def padded_vocab(vocab_size: int) -> int:
    """Columns of the logits on a GPU: products of widths that are a multiple of 64 are the fast ones."""
    return -(-vocab_size // 64) * 64


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed; it is not imported."""
    return importlib.util.find_spec("triton") is not None


def tile_width(vocab_size: int, chunk: int) -> int:
    """Of the vocabulary, so many have a tile of the logits of a chunk, on a CPU."""
    return min(vocab_size, max(MIN_TILE_WIDTH, TILE_BYTES // (4 * chunk)))


def width_at_once(vocab_size: int, chunk: int) -> int:
    """Of all tiles of one product."""
    return min(vocab_size, TILES_AT_ONCE * tile_width(vocab_size, chunk))
