"""How far a run is, how fast, and how near its memory came to the limit: a few small reads each."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory.ring import Peak, read_peak

_TAIL_BYTES = 6 << 10


@dataclass(frozen=True)
class Progress:
    """step, total_steps: optimizer steps. tokens_per_s, seconds_per_step: of the last rows of metrics.csv.
    peak_bytes: the highest U that was seen, what the run held itself where only the machine limits, its RSS
    where Slurm polls that; limit_bytes: what it stays under, None where there is no limit.
    """

    step: int | None = None
    total_steps: int | None = None
    tokens_per_s: float | None = None
    seconds_per_step: float | None = None
    peak_bytes: int | None = None
    limit_bytes: int | None = None

    @property
    def share(self) -> float | None:
        """Of the steps, those done: 0 to 1."""
        if self.step is None or not self.total_steps:
            return None
        return min(1.0, max(0.0, self.step / self.total_steps))

    @property
    def eta_s(self) -> float | None:
        """Until the last step, at the pace of the last rows; None where that is not known."""
        if self.step is None or not self.total_steps or self.seconds_per_step is None:
            return None
        return max(0, self.total_steps - self.step) * self.seconds_per_step


def read_progress(folder: Path, status: dict[str, Any], outcome: dict[str, Any]) -> Progress:
    """Never raises. status, outcome: as they were read."""
    tokens_per_s, seconds_per_step = _pace(folder / "metrics.csv")
    highest = Peak(
        u_bytes=_count(outcome.get("peak_unreclaimable_bytes")),
        limit_bytes=_count(outcome.get("limit_bytes")),
        own_bytes=_count(outcome.get("peak_own_bytes")),
        limit_at=outcome.get("limit_at"),
    )
    if highest.u_bytes is None:
        highest = read_peak(folder / "memory.ring")
    # U of a machine is also that of runs side by side, and of all else that goes on there
    own = highest.own_bytes if highest.limit_at == "host" else None
    peak, limit = highest.u_bytes if own is None else own, highest.limit_bytes
    polled = _count(status.get("polled_limit_bytes"))
    if polled:  # no cgroup has it, and what is polled is RSS
        resident = highest.rss_bytes or read_peak(folder / "memory.ring").rss_bytes
        peak, limit = resident or peak, polled
    return Progress(
        _count(status.get("step")), _count(status.get("total_steps")), tokens_per_s, seconds_per_step,
        peak, limit,
    )  # fmt: skip


def _pace(path: Path) -> tuple[float | None, float | None]:
    """(tokens a second, seconds a step) of the last rows; seconds count through all attempts."""
    try:
        with open(path, "rb") as file:
            header = file.readline().decode(errors="replace").rstrip("\r\n").split(",")
            begin = file.tell()
            at = max(begin, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
            file.seek(at)
            if at > begin:  # a row that is cut within its first field has all of its fields
                file.readline()
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return None, None
    whole = lines[:-1]  # a kill cuts the last one short
    first = next((row for line in whole if (row := _row(line, header)) is not None), None)
    last = next((row for line in reversed(whole) if (row := _row(line, header)) is not None), None)
    if first is None or last is None:
        return None, None
    if last["step"] == first["step"]:
        return last["tokens_per_s"], None
    seconds, steps = last["seconds"] - first["seconds"], last["step"] - first["step"]
    if seconds <= 0 or steps <= 0:
        return None, None
    return (last["tokens"] - first["tokens"]) / seconds, seconds / steps


def _row(line: str, header: list[str]) -> dict[str, float] | None:
    parts = line.rstrip("\r").split(",")
    if len(parts) != len(header):
        return None
    found = {}
    for name in ("step", "tokens", "seconds", "tokens_per_s"):
        try:
            found[name] = float(parts[header.index(name)])
        except ValueError:
            return None
    return found if all(map(math.isfinite, found.values())) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None
