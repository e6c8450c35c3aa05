"""Use of a run's GPU over an attempt, from the samples of its supervisor."""

from __future__ import annotations

from typing import Any

from memory.measure.gpu_activity import GpuActivity, MeanActivity
from memory.record.samples import Sample


class GpuUse:
    """Highest memory, and means over time of what the driver reports."""

    def __init__(self) -> None:
        self._mean = MeanActivity()
        self._used: int | None = None
        self._total: int | None = None

    def add(self, sample: Sample) -> None:
        """Add a sample; samples come in order."""
        if sample.gpu_used_bytes is None:
            return
        self._used = max(self._used or 0, sample.gpu_used_bytes)
        self._total = sample.gpu_total_bytes
        self._mean.add(sample.time_s, GpuActivity(sample.gpu_busy_percent, sample.gpu_power_mw))

    def to_json(self) -> dict[str, Any] | None:
        """peak_used_bytes, total_bytes, busy_percent, power_w; None if the run used no GPU."""
        if self._used is None:
            return None
        busy, power_mw = self._mean.means
        return {
            "peak_used_bytes": self._used,
            "total_bytes": self._total,
            "busy_percent": None if busy is None else round(busy, 1),
            "power_w": None if power_mw is None else round(power_mw / 1000, 1),
        }
