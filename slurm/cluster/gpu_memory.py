"""Memory of the GPUs that a run asks for: from slurm.gpu_mem, else from the name of their type."""

from __future__ import annotations

import re
from collections.abc import Sequence

from conf.schema import Slurm
from slurm.cluster.facts import Partition

_GB = 1 << 30
USABLE_SHARE = 0.92
"""Share of the size in a GPU's name that a process can allocate: 14.75 of 16 GB on a T4, more on others."""

SIZES_GB = {
    "p4": 8, "t4": 16, "a2": 16, "a10": 24, "a10g": 24, "l4": 24, "a30": 24, "rtx6000": 24, "a5000": 24,
    "v100s": 32, "a40": 48, "a6000": 48, "l40": 48, "l40s": 48, "h100": 80, "h800": 80, "a800": 80,
    "h20": 96, "gh200": 96, "h200": 141, "b200": 180, "b300": 270,
}  # fmt: skip
"""Models that are sold with one size of memory, or the least of several. Source: NVIDIA's data sheets.
Not here, since half or twice as much is as common: p100, v100, a100.
"""


def gpu_bytes(wanted: Slurm, partitions: Sequence[Partition]) -> int | None:
    """Memory of one GPU of a run, in bytes; None: not known.

    Without a type it is that of the smallest GPU of the partitions, if all of their types are known.
    """
    if wanted.gpu_mem is not None:
        return int(wanted.gpu_mem)
    names = [wanted.gpu_type] if wanted.gpu_type else [name for one in partitions for name in one.gpu_types]
    sizes = [type_bytes(name) for name in names]
    if not sizes or None in sizes:
        sizes = [_named_bytes(wanted.constraint or "")]
    return min((size for size in sizes if size is not None), default=None)


def type_bytes(name: str) -> int | None:
    """Memory of a type of GPU, named as sites do: `a100_80gb`, `a100_3g.20gb`, `l40s`; None: not known."""
    named = _named_bytes(name)
    if named is not None:
        return named
    words = re.split(r"[^a-z0-9]+", name.lower())
    known = [SIZES_GB[word] for word in words if word in SIZES_GB]
    return int(USABLE_SHARE * known[0] * _GB) if known else None


def _named_bytes(name: str) -> int | None:
    """From a size that is part of a name: `80gb`, `v100-32g`, `a100_80`."""
    patterns = (r"(?<!\d)(\d{1,3})gb", r"(?<!\d)(\d{2,3})g\b", r"[_.-](\d{2,3})$")
    found = next(filter(None, (re.search(pattern, name.lower()) for pattern in patterns)), None)
    return int(USABLE_SHARE * int(found[1]) * _GB) if found else None
