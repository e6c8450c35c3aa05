"""Random numbers of a step: a function of the run's seed, the step and the rank, and of nothing before them.

So dropout is the same in a run that was resumed, whatever was drawn in between, and other on each rank. A
model that drops nothing draws nothing, and is not touched.
"""

from __future__ import annotations

import hashlib

from conf.schema import Arch
from models.options.family_keys import is_own


def drops(arch: Arch) -> bool:
    """Whether training this model draws random numbers. One of the user's may."""
    return is_own(arch) or any(
        (arch.dropout_embedding, arch.dropout_attention, arch.dropout_residual, arch.dropout_recurrent)
    )


def step_seed(seed: int, step: int, rank: int) -> int:
    """Of the random numbers of one rank in one step: 63 bits."""
    digest = hashlib.blake2b(f"dropout {seed} {step} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_step(seed: int, step: int, rank: int) -> None:
    """Set torch's generators, on the CPU and on GPUs."""
    import torch

    torch.manual_seed(step_seed(seed, step, rank))
