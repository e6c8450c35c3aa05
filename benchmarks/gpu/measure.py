"""Measures a call on this device: time, synchronizations, kernels, memory; and saves what a check found."""

from __future__ import annotations

import json
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"

Call = Callable[[], Any]


class Report(dict[str, Any]):
    """Results of a check, written to its file after each part, so that a check cut short keeps the others."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = Path(path)

    def save(self) -> None:
        self.path.write_text(json.dumps(self, indent=1))

    @contextmanager
    def part(self, name: str) -> Iterator[dict[str, Any]]:
        """A part of the report. An exception becomes its `error` and does not end the check."""
        found = self.setdefault(name, {})
        started = time.time()
        try:
            yield found
        except Exception as error:
            found["error"] = f"{type(error).__name__}: {str(error)[:500]}"
            found["at"] = traceback.format_exc()[-600:]
            clean()
        found["took_s"] = round(found.get("took_s", 0) + time.time() - started, 1)
        self.save()


def sync() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def clean() -> None:
    """Give memory that no tensor uses back to the device."""
    if ON_GPU:
        with suppress(RuntimeError):
            torch.cuda.empty_cache()


def timed(calls: dict[str, Call], quick: bool, seconds: float = 0.4) -> dict[str, dict[str, float]]:
    """Milliseconds of each call: medians over rounds in which the calls take turns.

    `launch_ms` is the time until the CPU had launched everything. seconds: how long one turn takes.
    """
    seconds, rounds = (0.05, 2) if quick else (seconds, 5)
    counts: dict[str, int] = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        sync()
        started = time.perf_counter()
        call()
        sync()
        counts[name] = max(2, min(200, int(seconds / max(time.perf_counter() - started, 1e-6))))
    whole: dict[str, list[float]] = {name: [] for name in calls}
    launched: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(counts[name]):
                call()
            launched[name].append(1e3 * (time.perf_counter() - started) / counts[name])
            sync()
            whole[name].append(1e3 * (time.perf_counter() - started) / counts[name])
    return {
        name: {
            "ms": round(median(times), 4),
            "min_ms": round(min(times), 4),
            "max_ms": round(max(times), 4),
            "launch_ms": round(median(launched[name]), 4),
        }
        for name, times in whole.items()
    }


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def device_ms(call: Call, times: int = 10) -> float:
    """Median milliseconds of a call by the device's own clock."""
    spent = []
    for number in range(times + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        sync()
        if number >= 3:
            spent.append(start.elapsed_time(end))
    return median(spent)


def peak_mib(call: Call) -> dict[str, int]:
    """MiB that tensors held at most during a call, and that torch had reserved."""
    if not ON_GPU:
        call()
        return {}
    sync()
    clean()
    torch.cuda.reset_peak_memory_stats()
    call()
    sync()
    return {
        "tensors": torch.cuda.max_memory_allocated() >> 20,
        "reserved": torch.cuda.max_memory_reserved() >> 20,
    }


def syncs(call: Call, times: int = 20) -> dict[str, float]:
    """Synchronizations that torch makes in one call, by the line of Python that caused them.

    Those inside the driver, of copies from pageable memory, are not among them: `kernels` lists such copies.
    """
    if not ON_GPU:
        return {}
    found: Counter[str] = Counter()

    def note(message: Any, *_: Any, **__: Any) -> None:
        if "called a synchronizing" in str(message):
            frames = [
                frame
                for frame in traceback.extract_stack()
                if not any(part in frame.filename for part in ("/gpu/", "/torch/", "warnings.py"))
            ]
            last = frames[-1] if frames else None
            found[f"{Path(last.filename).name}:{last.lineno}" if last else "?"] += 1

    call()
    sync()
    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(times):
                call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
            warnings.showwarning = before
    return {line: round(count / times, 2) for line, count in found.most_common(12)}


def kernels(call: Call, times: int = 3, trace: str | None = None) -> dict[str, Any]:
    """Kernels, copies and device time of one call, by torch's profiler. trace: file to write its trace to."""
    from torch.profiler import ProfilerActivity, profile

    call()
    sync()
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if ON_GPU else [])]) as profiler:
        for _ in range(times):
            call()
        sync()
    if trace:
        with suppress(Exception):
            profiler.export_chrome_trace(trace)
    events = profiler.events() or []
    on_device = [event for event in events if str(event.device_type).endswith("CUDA")]
    spent: Counter[str] = Counter()
    for event in on_device:
        spent[event.name] += event.time_range.elapsed_us()
    names = Counter(event.name for event in on_device)
    is_copy = ("Memcpy", "Memset")
    waits = Counter(event.name for event in events if "Synchronize" in event.name)
    return {
        "kernels": round(sum(n for name, n in names.items() if not name.startswith(is_copy)) / times, 1),
        "device_ms": round(sum(spent.values()) / 1e3 / times, 3),
        "copies": {name: round(n / times, 1) for name, n in names.items() if name.startswith(is_copy)},
        "waits": {name: round(n / times, 1) for name, n in waits.items()},
        "operations": sum(event.cpu_parent is None for event in events) // times,
        "longest": [f"{us / 1e3 / times:.3f} ms: {name[:100]}" for name, us in spent.most_common(12)],
    }
