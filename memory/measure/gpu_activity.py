"""Busy time and power of this process's CUDA device, as NVML reports them.

NVML is loaded when a process that uses CUDA first asks, through nvidia-ml-py. A driver that does not report a
value (a MIG instance, an older card, no permission) is not asked for it again. Source: NVML API reference,
nvmlDeviceGetUtilizationRates (share of time in which a kernel ran, over the last sixth of a second to second)
and nvmlDeviceGetPowerUsage (milliwatts, of the whole board).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from memory.measure.cuda_allocator import device_uuid

AT_MOST_EVERY_S = 1.0
"""A supervisor takes a sample this often."""


class GpuActivity(NamedTuple):
    """Activity of a device; None if the driver does not report it."""

    busy_percent: int | None = None
    """Share of the time in which a kernel ran, 0 to 100."""
    power_mw: int | None = None
    """Power draw in milliwatts."""


UNKNOWN = GpuActivity()
_LONGEST_S = 60.0
"""A value holds for this long at most: after it the run said nothing."""


class MeanActivity:
    """Means of an activity over time: each value holds from its moment to the next one."""

    def __init__(self) -> None:
        self._sums, self._seconds = [0.0, 0.0], [0.0, 0.0]
        self._last, self._last_s = UNKNOWN, 0.0

    def add(self, time_s: float, activity: GpuActivity) -> None:
        """Add the activity of a moment; moments come in order."""
        lasted_s = min(time_s - self._last_s, _LONGEST_S)
        for number, value in enumerate(self._last):
            if value is not None:
                self._sums[number] += value * lasted_s
                self._seconds[number] += lasted_s
        self._last, self._last_s = activity, time_s

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Means of busy_percent and power_mw; None if no value was known over some time."""
        busy, power = (
            total / lasted_s if lasted_s > 0 else None
            for total, lasted_s in zip(self._sums, self._seconds, strict=True)
        )
        return busy, power


class ActivityReader:
    """Reads the activity of one device, at most every `AT_MOST_EVERY_S`. Never raises."""

    def __init__(self) -> None:
        self._questions: list[Callable[[], int] | None] | None = None
        self._last, self._due_s = UNKNOWN, 0.0

    def read(self, device: int, now_s: float) -> GpuActivity:
        """Ask the driver; in between, return its last answer.

        Args:
            device: as CUDA counts it in this process; the first one that is given stays.
            now_s: time, in seconds.
        """
        if self._questions is None:
            self._questions = _questions(device)
        if now_s >= self._due_s:
            self._due_s = now_s + AT_MOST_EVERY_S
            self._last = GpuActivity(*(self._ask(number) for number in range(len(GpuActivity._fields))))
        return self._last

    def _ask(self, number: int) -> int | None:
        assert self._questions is not None
        question = self._questions[number]
        try:
            return None if question is None else question()
        except Exception:  # NVMLError, and all that a broken driver makes of it
            self._questions[number] = None
            return None


def _questions(device: int) -> list[Callable[[], int] | None]:
    """Ask for busy_percent and power_mw of a device; None for both if NVML does not know the device."""
    uuid = device_uuid(device)
    try:
        import pynvml

        pynvml.nvmlInit()
        handle: Any = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())
    except Exception:  # the package, its library or the device is missing
        return [None, None]
    return [
        lambda: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        lambda: int(pynvml.nvmlDeviceGetPowerUsage(handle)),
    ]
