"""Time for which tasks waited for memory (PSI): memory.pressure of a v2 cgroup, /proc/pressure/memory of all.

Waiting is reclaim, refaults and swapping in. A job whose `full` share is high does little else: it thrashes.
Source: the kernel's accounting/psi. Kernels without CONFIG_PSI, or booted with psi=0, have no such files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memory.files.procfs import read_file

_LINE = re.compile(rb"^(some|full) avg10=(\d{1,3}(?:\.\d+)?) .*total=(\d{1,19})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pressure:
    """Waiting of at least one task (some) and of all tasks (full); None if the kernel does not report it."""

    some_percent: float | None = None
    """Share of the last 10 s."""
    some_us: int | None = None
    """Since the start."""
    full_percent: float | None = None
    full_us: int | None = None


def read_pressure(path: str) -> Pressure:
    """Read a file of two lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`."""
    found: dict[str, float] = {}
    for kind, share, total in _LINE.findall(read_file(path) or b""):
        found |= {f"{kind.decode()}_percent": float(share), f"{kind.decode()}_us": int(total)}
    return Pressure(**found)  # type: ignore[arg-type]
