"""Growth by step as text: `+0.3 MB/step, no leak`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiment_utils.json_values import finite
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


def leaks_in_record(leak: Mapping[str, Any]) -> list[str]:
    """Format each kind that leaks, `shm +0.4 MB/step, LEAK`. leak: of a stage's record."""
    kinds = {"": leak, "shm ": leak.get("shmem"), "GPU ": leak.get("gpu")}
    found = []
    for kind, of in kinds.items():
        if isinstance(of, Mapping) and of.get("is_leak") is True:
            slope = finite(of.get("slope_bytes_per_step")) or 0.0
            found.append(f"{kind}{format_growth(Leak(slope, is_significant=True, is_known=True))}")
    return found
