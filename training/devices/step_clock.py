"""Times of steps on the device, although the host queues them ahead of it.

A CPU computes a step before `Step.take` returns, so the host's clock is right. A GPU takes work from a queue:
the time at which a step was queued says nothing about its end. There an event is recorded after each step,
rows of metrics.csv take their times from the events, and the host waits for the device once before the clock
is read at the end of a train stage.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from training.devices.device import Device

AHEAD_S = 0.25
"""Most queued work in seconds: a requested stop has to wait for it."""
LEAST_AHEAD = 2
"""Fewest queued steps, however long they take: with fewer the device would wait for the host."""


class Mark(Protocol):
    """A point in the work of a device."""

    def wait(self) -> None:
        """Wait until the device has reached it."""

    def since(self, earlier: Any) -> float:
        """Seconds from an earlier mark; the device has reached both."""


class HostMark:
    """A point in time."""

    def __init__(self) -> None:
        self._at_s = time.monotonic()

    def wait(self) -> None:
        pass

    def since(self, earlier: HostMark) -> float:
        return self._at_s - earlier._at_s


class CudaMark:
    """An event after the queued work of the current stream."""

    def __init__(self) -> None:
        import torch

        self._event = torch.cuda.Event(enable_timing=True)
        self._event.record()

    def wait(self) -> None:
        self._event.synchronize()

    def since(self, earlier: CudaMark) -> float:
        return float(earlier._event.elapsed_time(self._event)) / 1e3


class Marker(Protocol):
    """Makes a mark after all queued work of the device."""

    def __call__(self) -> Mark: ...


def marker_of(device: Device) -> Marker:
    """Choose the marks of a device."""
    return CudaMark if device.kind == "cuda" else HostMark


@dataclass(frozen=True)
class StepTime:
    """End of a step. Its time can be read once the scalars of the step have been read."""

    before_s: float
    first: Mark
    last: Mark

    def seconds(self) -> float:
        """Seconds of training up to the end of the step, over all attempts of the run."""
        return self.before_s + self.last.since(self.first)


class StepClock:
    """Seconds of training of a run, over all its attempts: the time between `begin` and `end`, added up."""

    def __init__(self, mark: Marker = HostMark) -> None:
        self._mark = mark
        self._queued: deque[Mark] = deque()
        self._most_queued = LEAST_AHEAD

    def begin(self, seconds: float) -> None:
        """Start to count, from the seconds of training so far. Waits for the device."""
        self._before_s = seconds
        self._first: Mark = self._mark()
        self._first.wait()
        self._last = self._first
        self._began_s = time.monotonic()
        self._queued.clear()

    def step(self) -> StepTime:
        """Record that a step was queued. Waits while more than `AHEAD_S` of work is queued."""
        mark = self._mark()
        self._queued.append(mark)
        while len(self._queued) > self._most_queued:
            done = self._queued.popleft()
            done.wait()
            lasted_s = max(done.since(self._last), 1e-6)
            self._most_queued = max(LEAST_AHEAD, int(AHEAD_S / lasted_s))
            self._last = done
        return StepTime(self._before_s, self._first, mark)

    def now(self) -> float:
        """Seconds of training by the host's clock; steps may still be queued."""
        return self._before_s + time.monotonic() - self._began_s

    def end(self) -> float:
        """Wait for all steps; returns the seconds of training."""
        if self._queued:
            self._queued[-1].wait()
        return self.now()
