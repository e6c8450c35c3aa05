"""Lines of the run's own script that may matter: a sign where no stack was caught, never a proof."""

from __future__ import annotations

import re
import time
from pathlib import Path

from experiment_utils.json_values import seconds
from experiment_utils.safe_read import read_plain_text
from memory.explain.facts import Facts
from memory.explain.trend import last_rise

_MOST_BYTES = 200_000
_BEFORE_PRESSURE = 0.92


def script_lines(facts: Facts, pattern: re.Pattern[str]) -> list[str]:
    """`train.py:12: tokens = np.load(path)`: of the first script in the command, if it is as it was at the
    end.
    """
    found = script_text(facts)
    if found is None:
        return []
    name, content = found
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for number, line in enumerate(content.splitlines(), 1)
        if pattern.search(line) and not line.lstrip().startswith("#")
    ]


def script_text(facts: Facts) -> tuple[str, str] | None:
    """(name, all of it) of the same; None where there is none, or it is another by now."""
    for word in facts.command[:6]:
        path = Path(word)
        if path.suffix != ".py":
            continue
        try:
            found = path.stat()
            ended_s = seconds(facts.outcome.get("ended_s")) or time.time()
            if found.st_mtime > ended_s:
                return None
            return path.name, read_plain_text(path, _MOST_BYTES)
        except (OSError, ValueError):
            return None
    return None


def read_while_growing(facts: Facts) -> float | None:
    """Bytes of page cache that came with each byte of anon memory, while there was room for both.

    None where that is not known. A file that is read whole brings both; a second read of it no more cache.
    """
    found = last_rise(facts.series("anon_bytes"))
    roomy = [
        (sample.anon_bytes, sample.cache_bytes)
        for sample in facts.samples
        if found is not None
        and found.begin_s <= sample.time_s <= found.end_s
        and sample.anon_bytes is not None
        and sample.cache_bytes is not None
        and (sample.usage_bytes or 0) < _BEFORE_PRESSURE * (facts.limit_bytes or 0)
    ]
    if len(roomy) < 2:
        return None
    anon, cache = (max(0, last - first) for first, last in zip(roomy[0], roomy[-1], strict=True))
    return cache / anon if anon > 0.05 * (facts.limit_bytes or 0) else None
