"""`training.profile=10:20`: what these steps spend their time and memory on.

A trace for https://ui.perfetto.dev or chrome://tracing, the operations that took most, and of a GPU a
snapshot of its allocations for torch's viewer. Numbers of the run are the same; these steps are slower.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from conf.step_range import parse_steps
from experiment_utils import atomic_files

if TYPE_CHECKING:
    from torch.profiler import profile

log = logging.getLogger("training")

SHOWN = 8
"""Operations in the log."""


class Profiler:
    """Traces steps of one attempt. Does nothing if no step is asked for, or none of them is left."""

    def __init__(
        self, folder: Path, asked: str | None, total_steps: int, *, keeps_history: bool = False
    ) -> None:
        """Trace the steps `asked` for (as `training.profile`), at most up to `total_steps`.

        Args:
            keeps_history: something else (memory.attribute) needs torch's record of CUDA allocations later.
        """
        steps = range(0) if asked is None else parse_steps(asked)
        self._steps = range(steps.start, min(steps.stop, total_steps + 1)) if steps else steps
        if steps and not self._steps:
            log.warning("training.profile=%s: the run ends at step %s: nothing is traced", asked, total_steps)
        self._folder = folder
        self._keeps_history = keeps_history
        self._torchs: profile | None = None
        self._first = 0
        self._last = 0

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Around the step of this number, from 1."""
        if number not in self._steps:
            yield
            return
        if self._torchs is None:
            self._begin(number)
        yield
        self._last = number
        if number == self._steps[-1]:
            self.close()

    def close(self) -> None:
        """Write what was seen so far; nothing where nothing is being seen."""
        if self._torchs is None:
            return
        from memory.attribute.allocators import end_cuda_history, save_cuda_snapshot

        found, self._torchs, self._steps = self._torchs, None, range(0)
        found.stop()
        name = f"profile-steps-{self._first}-{self._last}"
        try:
            self._write(found, name)
            if save_cuda_snapshot(self._folder / f"{name}.pickle"):
                log.info("%s.pickle: to be dropped on https://docs.pytorch.org/memory_viz", name)
        except OSError as error:
            log.warning("the profile cannot be written (%s); the run continues", error)
        finally:
            if not self._keeps_history:
                end_cuda_history()

    def _begin(self, number: int) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        from memory.attribute.allocators import record_cuda_history

        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else its own notes stand among our lines
        self._first = number
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            activities.append(ProfilerActivity.CUDA)
            record_cuda_history()
        self._torchs = profile(activities=activities, record_shapes=True, profile_memory=True)
        self._torchs.start()

    def _write(self, found: profile, name: str) -> None:
        temporary = self._folder / f".{name}.json.gz"  # its suffix tells torch to compress
        found.export_chrome_trace(str(temporary))
        if not temporary.exists():  # torch says nothing of a full disk
            raise OSError(f"{name}.json.gz: torch did not write it")
        atomic_files.fsync_file(temporary)
        os.replace(temporary, self._folder / f"{name}.json.gz")
        log.info(
            "%s.json.gz: a trace of %s steps for https://ui.perfetto.dev", name, self._last - self._first + 1
        )
        for line in _lines(found):
            log.info("profile %s", line)


def _lines(found: profile) -> Iterator[str]:
    """The operations that took most of the time of their device, themselves and not what they call."""
    on_gpu = any(event.self_device_time_total for event in found.key_averages())

    def own_us(event: object) -> float:
        return float(getattr(event, "self_device_time_total" if on_gpu else "self_cpu_time_total"))

    events = sorted(found.key_averages(), key=own_us, reverse=True)
    total = sum(map(own_us, events)) or 1.0
    for event in events[:SHOWN]:
        yield f"{own_us(event) / total:4.0%}  {own_us(event) / 1e3:9.1f} ms  {event.count:6,} x {event.key}"
