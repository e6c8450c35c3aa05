"""How many tokens' logits exist at once. No torch: what a run will need is told without it."""

from __future__ import annotations

from conf import AUTO
from conf.schema import Arch

AUTO_CHUNK = 256
"""Tokens in a chunk for a vocabulary of 50k: sizes from 64 to 1024 differ little in time there, and
torch's own automatic choice is several times slower (benchmarks/loss.py)."""

AUTO_CHUNK_BYTES = 256 * 50_257 * 4
"""Logits of such a chunk in fp32, 49 MiB: what a chunk of a smaller vocabulary may hold as well."""

WHOLE_COPIES = 3
"""Ordinary cross-entropy holds logits, their log-softmax and their gradient."""


def resolve_loss_chunk(chunk: int | str, vocab_size: int) -> int:
    """Tokens whose logits exist at once; `auto`: 256, and more where the vocabulary is small.

    For a small vocabulary a power of two that ordinary cross-entropy takes whole, at no more memory
    than one chunk of a 50k vocabulary: 16,384 tokens for bytes.
    """
    if chunk != AUTO:
        return int(chunk)
    affordable = AUTO_CHUNK_BYTES // (4 * WHOLE_COPIES * vocab_size)
    return max(AUTO_CHUNK, 1 << (affordable.bit_length() - 1) if affordable else 0)


def has_plain_loss(arch: Arch) -> bool:
    """Whether the logits are those of an ordinary head, of which torch has a loss in chunks."""
    return arch.logit_softcap is None and not arch.z_loss
