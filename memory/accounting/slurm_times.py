"""Moments as clients of Slurm print them."""

from __future__ import annotations

from datetime import datetime


def moment(text: str) -> float | None:
    """Unix time of `1772445600` or, in local time, `2026-03-02T10:00:00`; None of `N/A`, `Unknown`, ..."""
    text = text.strip()
    if text.isdigit():
        return float(text) or None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
