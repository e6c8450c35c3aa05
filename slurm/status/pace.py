"""Whether a run is slow: against the others of its study that are of its size, and what may make it so."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from slurm.status.study_status import RunState

_SLOW = 0.7


def pace_lines(entry: RunState, others: Sequence[RunState]) -> list[str]:
    """Its speed, that of the others, where those on the same host stand. Empty where no speed is known."""
    own = entry.progress.tokens_per_s
    if own is None or entry.progress.seconds_per_step is None:  # its first step says little
        return []
    size = entry.name.partition("-")[0]
    peers = [
        (one.progress.tokens_per_s, one)
        for one in others
        if one.name != entry.name and one.name.partition("-")[0] == size and one.progress.tokens_per_s
    ]
    if not peers:
        return [f"{own:,.0f} tokens/s; no other run of {size} to compare it with"]
    usual = median(speed for speed, _ in peers)
    line = f"{own:,.0f} tokens/s; the others of {size} make {usual:,.0f} (median of {len(peers)})"
    if own >= _SLOW * usual:
        return [line]
    lines = [f"{line}: it is slow"]
    here = [speed for speed, one in peers if entry.host and one.host == entry.host]
    if here and median(here) < _SLOW * usual:
        lines.append(
            f"{len(here)} others on {entry.host} are slow too: it is the node (slurm.options: --exclude)"
            if len(here) > 1
            else f"another on {entry.host} is slow too: is it the node? (slurm.options: --exclude)"
        )
    elif here:
        many = "another is" if len(here) == 1 else f"{len(here)} others are"
        lines.append(f"on {entry.host} {many} not slow: it is not the node")
    elif entry.host:
        lines.append(f"it is on {entry.host}; runs on other nodes are not slow: see what else is there")
    return lines
