"""Measures a call on this device: time and synchronizations; and saves what a check found."""

from __future__ import annotations

import json
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.harness import in_turns

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
    """Return memory that no tensor uses to the device."""
    if ON_GPU:
        with suppress(RuntimeError):
            torch.cuda.empty_cache()


def timed(calls: dict[str, Call], quick: bool, seconds: float = 0.4) -> dict[str, dict[str, float]]:
    """Milliseconds of each call: medians over rounds in which the calls take turns.

    `launch_ms` is the time until the CPU had launched everything. seconds: duration of one turn.
    """
    seconds, rounds = (0.05, 2) if quick else (seconds, 5)

    def turn(call: Call) -> Callable[[], tuple[float, float]]:
        for _ in range(3):
            call()
        sync()
        started = time.perf_counter()
        call()
        sync()
        count = max(2, min(200, int(seconds / max(time.perf_counter() - started, 1e-6))))

        def take() -> tuple[float, float]:
            started = time.perf_counter()
            for _ in range(count):
                call()
            launched = time.perf_counter() - started
            sync()
            return 1e3 * launched / count, 1e3 * (time.perf_counter() - started) / count

        return take

    found = {}
    for name, taken in in_turns({name: turn(call) for name, call in calls.items()}, rounds).items():
        launched, whole = zip(*taken, strict=True)
        values = {
            "ms": median(whole),
            "min_ms": min(whole),
            "max_ms": max(whole),
            "launch_ms": median(launched),
        }
        found[name] = {key: round(value, 4) for key, value in values.items()}
    return found


def syncs(call: Call, times: int = 20) -> dict[str, float]:
    """Synchronizations that torch makes in one call, by the line of Python that caused them.

    Those inside the driver, of copies from pageable memory, are not among them.
    """
    if not ON_GPU:
        return {}
    found: Counter[str] = Counter()

    def note(message: Any, *_: Any, **__: Any) -> None:
        if "called a synchronizing" in str(message):
            own = [
                f"{Path(frame.filename).name}:{frame.lineno}"
                for frame in traceback.extract_stack()
                if not any(part in frame.filename for part in ("/gpu/", "/torch/", "warnings.py"))
            ]
            found[own[-1] if own else "?"] += 1

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
