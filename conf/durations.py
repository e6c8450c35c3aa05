"""Time limits as Slurm writes them, and as people do.

Source: sbatch(1), --time: "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours",
"days-hours:minutes" and "days-hours:minutes:seconds".
"""

from __future__ import annotations

import math
import re

UNLIMITED = ("INFINITE", "UNLIMITED")
EXPECTED = "a time limit such as 24:00:00, 1-12 (a day and 12 hours), 90 (minutes), 2h or 90min"
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_UNITS = {"d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}
_WORDS = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)")


def parse_duration(text: str | int) -> float | None:
    """Seconds of a time limit; None for `UNLIMITED`.

    `90` are minutes, `1:30` a minute and a half, `24:00:00` a day, `1-12` a day and twelve hours, as
    Slurm takes them; and `2h`, `90min`, `1d 6h`.

    Raises:
        ValueError: it is none, or no time at all; says what was expected.
    """
    given = str(text).strip()
    if given.upper() in UNLIMITED:
        return None
    seconds = _of_clock(given)
    if seconds is None:
        seconds = _of_words(given.lower())
    if seconds is None or seconds <= 0:
        raise ValueError(f"expected {EXPECTED}, got `{given}`")
    return seconds


def _of_clock(text: str) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    assert first is not None
    if days is not None:
        return days * 86400 + first * 3600 + (second or 0) * 60 + (third or 0)
    if second is None:
        return first * 60
    return first * 60 + second if third is None else first * 3600 + second * 60 + third


def _of_words(text: str) -> float | None:
    if re.sub(_WORDS, "", text).strip():
        return None
    found = _WORDS.findall(text)
    return sum(float(count) * _UNITS[unit] for count, unit in found) if found else None


def format_limit(seconds: float) -> str:
    """`1-12:00:00`, `2:30:00`: as sbatch takes it. Rounded up to minutes, which is all Slurm keeps."""
    minutes = max(1, math.ceil(seconds / 60))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:00" if days else f"{hours}:{minutes:02}:00"
