"""Growth by step in words, for the end of a line: `leak: +1.1 MB/step (0.9 to 1.3), limit in 3.2 h`."""

from __future__ import annotations

import math

from memory.leaks.detector import LEVELLING_OFF, TOO_EARLY, Leak

_UNITS = (("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30))


def leak_words(leak: Leak, holder: str | None = None, unit: str = "step") -> str | None:
    """For the end of a line; None while too little was seen. holder: whose growth it is.

    unit: what `steps` counts: `s` where they are times.
    """
    slope, low, high = leak.slope_bytes_per_step, leak.low_bytes_per_step, leak.high_bytes_per_step
    if slope is None or low is None or high is None or not math.isfinite(high):
        return None
    name, size = _unit(slope if leak.is_significant else max(abs(slope), high - slope))
    rate = f"{_signed(slope / size)} {name}/{unit}"
    if not leak.is_significant:
        rate += f" (+-{_plain((high - slope) / size)})"
        told = {TOO_EARLY: ", too early to tell", LEVELLING_OFF: ", levelling off: no leak"}
        return rate + told.get(leak.verdict, ": no leak")
    where = f" in {holder}" if holder else ""
    when = f", limit in {in_words(leak.eta_s)}" if leak.eta_s is not None else ""
    return f"leak: {rate} ({_plain(low / size)} to {_plain(high / size)}){where}{when}"


def in_words(seconds: float) -> str:
    """`40 s`, `12 min`, `3.2 h`, `5.1 days`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    days = seconds / 86400
    return f"{days:.1f} days" if days < 1000 else "years"


def _unit(amount: float) -> tuple[str, int]:
    """The largest in which it is at least 0.1; a rate of nothing is in MB."""
    if amount < 100:
        return _UNITS[1]
    return max((unit for unit in _UNITS if amount >= 0.1 * unit[1]), default=_UNITS[0], key=lambda u: u[1])


def _plain(value: float) -> str:
    text = f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"
    return "0.0" if text == "-0.0" else text


def _signed(value: float) -> str:
    text = _plain(value)
    return text if text.startswith("-") else f"+{text}"
