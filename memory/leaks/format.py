"""Growth by step as text: `+0.3 MB/step, no leak`."""

from __future__ import annotations

from memory.leaks.detector import Leak

_UNITS = (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))


def format_growth(leak: Leak, unit: str = "step") -> str | None:
    """Format the growth and its verdict, `+1.1 MB/step, LEAK`; None if too few samples were taken.

    Args:
        leak: from `find_leak` or `LeakWatch.look`.
        unit: of the steps, `s` if they are times.
    """
    slope = leak.slope_bytes_per_step
    if slope is None or not leak.is_known:
        return None
    name, size = next(((name, size) for name, size in _UNITS if abs(slope) >= 0.1 * size), _UNITS[1])
    rate = slope / size
    shown = f"{rate:+.1f}" if abs(rate) < 99.95 else f"{rate:+.0f}"
    return f"{shown.replace('-0.0', '+0.0')} {name}/{unit}, {'LEAK' if leak.is_significant else leak.verdict}"
