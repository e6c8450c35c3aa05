"""How long tasks waited for memory (PSI): memory.pressure of a v2 cgroup, /proc/pressure/memory of all.

Waiting is reclaim, refaults and swapping in. A job whose `full` share is high does little else: it
thrashes. Source: the kernel's accounting/psi; kernels without CONFIG_PSI, or booted with psi=0, tell nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.files.cached_procfs import read_kept
from memory.files.procfs import to_number


@dataclass(frozen=True, slots=True)
class Pressure:
    """some: at least one task waited; full: all did. us: microseconds since the start; percent: of the
    last 10 s. None where the kernel does not tell.
    """

    some_percent: float | None = None
    some_us: int | None = None
    full_percent: float | None = None
    full_us: int | None = None


def read_pressure(path: str) -> Pressure:
    """The file's two lines; what is garbled is None."""
    content = read_kept(path)
    if content is None:
        return _UNKNOWN
    lines = {words[0]: words for words in (line.split() for line in content.splitlines()) if len(words) == 5}
    return Pressure(*_told(lines.get(b"some")), *_told(lines.get(b"full")))


_UNKNOWN = Pressure()


def _told(words: list[bytes] | None) -> tuple[float | None, int | None]:
    """(avg10, total) of `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`."""
    if words is None:
        return None, None
    _, _, share = words[1].partition(b"avg10=")
    _, _, total = words[4].partition(b"total=")
    whole, _, hundredths = share.partition(b".")
    is_share = whole.isdigit() and (hundredths.isdigit() or not hundredths) and len(share) < 10
    return (float(share) if is_share else None), to_number(total)
