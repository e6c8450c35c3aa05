"""Files that the run read: page cache that came with anon memory, and sizes that anon memory rose by.

The user's program is not read. Sources are the page cache, files that stages or the command name, and the
line at
which the run's own stack was seen near the limit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from experiment_utils.json_values import mapping, unsigned
from memory.explain.evidence.rise import Rise, last_rise
from memory.explain.evidence.run_facts import RunFacts

_ASSIGNS = re.compile(r"[\w.]+\[.+\] *[-+*/|&^]?=[^=]")
_WIDTHS = (1, 2, 4, 8)
"""Bytes of anon for each byte of a file: as it is, or in a wider type."""
_LEAST_BYTES = 16 << 20
_LOAD_S = 30.0


@dataclass(frozen=True)
class FilesRead:
    """Signs that the contents of a file fill anon memory; zeros and empty texts without it."""

    cache_per_anon: float = 0.0
    """Bytes of page cache that came with each byte of anon, at least."""
    name: str = ""
    size_bytes: int = 0
    width: int = 0
    """The file whose size, times this, anon rose by, or was on the way to."""
    needed_bytes: int = 0
    """Bytes that the run held before, and the whole of that file in memory."""
    is_named_by_stage: bool = False
    in_cache: bool = False
    """The page cache was as large as the file, or nearly."""
    is_quick: bool = False
    """Most of the rise took less than half a minute."""
    at_assignment: bool = False
    """The stack near the limit was at an assignment to elements."""


def files_read(facts: RunFacts) -> FilesRead:
    """Read the signs of a file that was read whole, or of a private map that was written to."""
    rise = last_rise(facts.series("anon_bytes"))
    at = [frame.source for frame in facts.frames[:3]]
    name, size, width, by_stage = _match(facts, rise)
    cache = max((value for _, value in facts.series("cache_bytes")), default=0)
    return FilesRead(
        cache_per_anon=_cache_per_anon(facts, rise),
        name=Path(name).name,
        size_bytes=size,
        width=width,
        needed_bytes=size * width + (rise.from_bytes if rise is not None else 0) if width else 0,
        is_named_by_stage=by_stage,
        in_cache=0 < 0.8 * size <= cache,
        is_quick=rise is None or rise.is_jump or rise.seconds < _LOAD_S,
        at_assignment=any(_ASSIGNS.match(source) for source in at),
    )


def _cache_per_anon(facts: RunFacts, rise: Rise | None) -> float:
    """Up to the look at which page cache was highest: at the limit it goes again as anon comes."""
    if rise is None:
        return 0.0
    looks = [
        (sample.cache_bytes, sample.anon_bytes)
        for sample in facts.samples
        if rise.begin_s <= sample.time_s <= rise.end_s
        and sample.cache_bytes is not None
        and sample.anon_bytes is not None
    ]
    cache, anon = max(looks, key=lambda look: look[0], default=(0, 0))
    if not looks or anon - looks[0][1] < 0.05 * (facts.limit_bytes or 0):
        return 0.0
    return max(0, cache - looks[0][0]) / max(1, anon - looks[0][1])


def _match(facts: RunFacts, rise: Rise | None) -> tuple[str, int, int, bool]:
    """(file, bytes, width, named by an open stage) whose size times the width anon rose by.

    A load that a kill cut short was on the way there: of a file that a stage names, or in a jump.
    """
    amount, limit = rise.bytes if rise is not None else 0, facts.limit_bytes or math.inf
    died = bool(facts.kills or facts.signal)
    found = None
    for name, size, by_stage in _files(facts):
        may_be_cut = died and found is None and (by_stage or rise is None or rise.is_jump)
        for width in _WIDTHS:
            if amount and math.isclose(amount, size * width, rel_tol=0.08):
                return name, size, width, by_stage
            is_larger = amount < size * width <= max(4 * amount, limit) and size * width > 0.5 * limit
            if may_be_cut and found is None and (is_larger or size > limit):
                found = name, size, width, by_stage
    return found or ("", 0, 0, False)


def _files(facts: RunFacts) -> list[tuple[str, int, bool]]:
    """Files of some size that the run's record, its open stages or its command name."""
    data = mapping(facts.evidence.run.get("data"))
    is_opening = facts.stage_name in ("open_dataset", "load_dataset", "load")
    size = unsigned(data.get("file_bytes")) if is_opening else None
    found = [(str(data.get("path") or "the token file"), size or 0, True)]
    for record in facts.open_stages:
        named = mapping(record.get("facts"))
        size = unsigned(named.get("file_bytes")) or unsigned(named.get("bytes")) or 0
        found.append((str(named.get("path") or named.get("file") or "the file"), size, True))
    for word in facts.command[1:50]:
        try:
            found.append((word, Path(word).stat().st_size if Path(word).is_file() else 0, False))
        except (OSError, ValueError):
            continue
    return [entry for entry in found if entry[1] > _LEAST_BYTES]
