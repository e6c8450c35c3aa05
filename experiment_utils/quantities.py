"""Counts, sizes and durations: what users write, parsed, and numbers formatted for people.

Units of counts are powers of 1000, units of sizes powers of 1024. Time limits are those of sbatch(1), --time:
"minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes" and
"days-hours:minutes:seconds".
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right

_COUNT_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NUMBER = r"(\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d+))?"
_COUNT = re.compile(rf"^{_NUMBER}\s*([KMBT]?)$", re.IGNORECASE)
_SIZE = re.compile(rf"^{_NUMBER}\s*([KMGT]?)(?:i?B)?$", re.IGNORECASE)
BYTE_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
_BYTE_UNIT_ENDS = [999.5 * 1024**exponent for exponent in range(len(BYTE_UNITS) - 1)]
MB_EXPONENT, GB_EXPONENT = 2, 3
UNLIMITED = ("INFINITE", "UNLIMITED")
EXPECTED = "a time limit such as 24:00:00, 1-12 (a day and 12 hours), 90 (minutes), 2h or 90min"
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_TIME_UNITS = {"d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}
_AMOUNTS_OF_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)")


def parse_count(text: str | int | float) -> int:
    """A whole number of tokens, steps or documents: `1B`, `2e9`, `500M`, `1_000`, `338025`.

    K, M, B, T are powers of 1000. Raises ValueError when it is no number, negative, or not whole
    after scaling (`1.5` is refused, `1.5K` is 1500).
    """
    return _parse(text, _COUNT, _COUNT_UNITS, "a count such as 500M, 2e9 or 1_000_000")


def parse_size(text: str | int | float) -> int:
    """A size in bytes: `32GB`, `32G`, `500M`, `1.5T`, `4096`.

    K, M, G, T, with or without B, are powers of 1024, as Slurm means them. Raises ValueError.
    """
    return _parse(text, _SIZE, _SIZE_UNITS, "a size such as 32GB, 500M or 4096")


def exact_size(size_bytes: int) -> str:
    """The shortest text that `parse_size` reads back: 734003200 -> '700MB', 1001 -> '1001'."""
    for unit in ("T", "G", "M", "K"):
        whole, rest = divmod(size_bytes, _SIZE_UNITS[unit])
        if whole and not rest:
            return f"{whole}{unit}B"
    return str(size_bytes)


def _parse(text: str | int | float, pattern: re.Pattern[str], units: dict[str, int], expected: str) -> int:
    if isinstance(text, bool):
        raise ValueError(f"expected {expected}, got {text}")
    match = pattern.match(str(text).strip())
    if match is None:
        raise ValueError(f"expected {expected}, got {text!r}")
    digits, exponent, unit = match.groups()
    if exponent is not None and len(exponent) > 3:
        raise ValueError(f"expected {expected}, got {text!r}")
    # Exact arithmetic: 0.1B must be exactly 100,000,000.
    whole, _, decimals = digits.replace("_", "").partition(".")
    scaled, power = int(f"{whole}{decimals}") * units[unit.upper()], int(exponent or 0) - len(decimals)
    value, rest = (scaled * 10**power, 0) if power >= 0 else divmod(scaled, 10**-power)
    if rest:
        raise ValueError(f"expected a whole number, got {text!r}")
    return value


def format_count(value: float) -> str:
    """1_190_000_000 -> '1.19B', 338025 -> '338,025'. Exact below a million."""
    if value < 10**6:
        return f"{value:,.0f}"
    for unit, scale in (("M", 10**6), ("B", 10**9)):
        shown = f"{value / scale:.4g}"
        if float(shown) < 1000:
            return f"{shown}{unit}"
    return f"{value / 10**12:.4g}T"


def counted(count: float, noun: str) -> str:
    """`1 step`, `1,200 steps`, `1.19B tokens`."""
    shown = format_count(count)
    return f"{shown} {noun}" if shown == "1" else f"{shown} {noun}s"


def format_share(share: float) -> str:
    """Share of 1 in percent, with two significant digits below 10%: `18%`, `0.33%`."""
    percent = 100 * share
    return f"{percent:.2g}%" if percent < 10 else f"{percent:.0f}%"


def format_duration(seconds: float) -> str:
    """75 -> '1 min 15 s', 7300 -> '2 h 2 min'. Two units at most; days above two of them."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, scale, lower_unit, lower_scale in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= scale:
            rest = (whole % scale) // lower_scale
            return f"{whole // scale} {unit}" + (f" {rest} {lower_unit}" if rest else "")
    return f"{whole} s"


def format_bytes(n: float) -> str:
    """`9.4 GB`, `412 MB`, `3.2 MB`, `-35 MB`: units are powers of 1024, as Slurm means them."""
    exponent = byte_exponent(n)
    return f"{byte_digits(n, exponent, is_fine=True)} {BYTE_UNITS[exponent]}"


def byte_digits(n: float, exponent: int, *, is_fine: bool = False) -> str:
    """Three digits at most: one decimal from GB on, and in a fine number below ten also in KB and MB."""
    value = n / 1024**exponent
    has_decimal = (
        abs(value) < 99.95 if exponent >= GB_EXPONENT else is_fine and exponent > 0 and abs(value) < 9.95
    )
    return f"{value:.{int(has_decimal)}f}"


def byte_exponent(n: float) -> int:
    """Power of 1024 of the unit that writes `n` with at most three digits before the point."""
    return bisect_right(_BYTE_UNIT_ENDS, abs(n))


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
    seconds = _seconds(given.lower())
    if not seconds:
        raise ValueError(f"expected {EXPECTED}, got `{given}`")
    return seconds


def _seconds(text: str) -> float | None:
    if match := _CLOCK.fullmatch(text):
        days, *others = match.groups()
        parts = [int(part) for part in others if part is not None]
        if days is None and len(parts) < 3:  # minutes, or minutes:seconds
            parts.insert(0, 0)
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    if re.sub(_AMOUNTS_OF_TIME, "", text).strip():
        return None
    return sum(float(count) * _TIME_UNITS[unit] for count, unit in _AMOUNTS_OF_TIME.findall(text))


def format_limit(seconds: float) -> str:
    """`1-12:00:00`, `2:30:00`: as sbatch takes it. Rounded up to minutes, which is all Slurm keeps."""
    minutes = max(1, math.ceil(seconds / 60))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:00" if days else f"{hours}:{minutes:02}:00"
