"""Numbers as people write them: counts are powers of 1000, sizes are powers of 1024."""

from __future__ import annotations

import re

_COUNT_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NUMBER = r"(\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d+))?"
_COUNT = re.compile(rf"^{_NUMBER}\s*([KMBT]?)$", re.IGNORECASE)
_SIZE = re.compile(rf"^{_NUMBER}\s*([KMGT]?)(?:i?B)?$", re.IGNORECASE)


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
