"""`stage`: measure before and after a piece of work, record both, and print one line."""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from memory.measure.cuda_allocator import Gpu
from memory.measure.host import run_memory
from memory.measure.peaks import PEAKS, Open, StagePeak
from memory.measure.process import Process
from memory.measure.snapshot import Snapshot, snapshot
from memory.record.recorder import Recorder
from memory.record.ring import highest_between
from memory.record.stage_line import stage_label, stage_line

log = logging.getLogger("memory")
Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


class Stage(ContextDecorator):
    """One measured piece of work, made by `stage`.

    before, after: snapshots around the body, None until they are taken.
    change: after less before, in bytes, by the names of `Snapshot.amounts`.
    peak: the most in between, None until the end.
    added: values from `add`, which go into the record of the end.
    seconds: duration of the body, None until the end.
    """

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self.name, self.facts = name, facts
        self.before: Snapshot | None = None
        self.after: Snapshot | None = None
        self.change: dict[str, int] = {}
        self.peak: StagePeak | None = None
        self.seconds: float | None = None
        self.added: dict[str, Any] = {}
        self._parts: tuple[str, ...] = ()

    def __call__(self, function: Function) -> Function:
        """Decorate a plain function; the call of an async one or a generator ends before its work begins.

        Raises:
            TypeError: use `with stage(...)` in the body of such a function.
        """
        kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_kind(function) for is_kind in kinds):
            raise TypeError(f"stage measures plain functions: use `with stage(...)` in {function.__name__}")
        return super().__call__(function)

    def add(self, name: str, value: Any, *parts: str) -> None:
        """Add a plain value to the record of the end. parts: shown in the line instead of the change."""
        self.added[name] = value
        self._parts += parts

    def _recreate_cm(self) -> Stage:
        """Each call of a decorated function is a stage of its own, also in recursion and in threads."""
        return Stage(self.name, self.facts)

    def __enter__(self) -> Stage:
        self._recorder = _recorder
        self._depth = _depth.get()
        thread = threading.current_thread()
        self._thread = None if thread is threading.main_thread() else thread.name
        self.before = _measured()
        self._record("begin", self.before)
        _depth.set(self._depth + 1)
        gpu = self.before.gpu
        self._open: Open | None = _quietly(lambda: PEAKS.begin(gpu), None)
        self._started_s = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._started_s
        # less one, not what it was: a generator may end within a stage that began after it
        _depth.set(max(0, _depth.get() - 1))
        before, after = self.before, _measured()
        assert before is not None
        self.after, recorder = after, self._recorder
        nothing: tuple[StagePeak, int | None] = StagePeak(), None
        self.peak, peak_bytes = _quietly(lambda: _peak(self._open, before, after, recorder.ring), nothing)
        amounts = before.amounts
        self.change = {name: now - amounts[name] for name, now in after.amounts.items() if name in amounts}
        ended = {} if error is None else {"error": _text(error)}
        rest = {"peak": self.peak.to_json(), "seconds": round(self.seconds, 6), **self.added}
        self._record("end", after, change=self.change, **ended, **rest)
        line = stage_line(
            stage_label(self.name, self.facts, self._depth, self._thread),
            after,
            {**self.change, **_run_change(before, after)},
            self.seconds,
            error=ended.get("error"),
            peak_bytes=peak_bytes,
            growth=self._parts,
        )
        recorder.print_line(line)

    def _record(self, event: str, at: Snapshot, **more: Any) -> None:
        if self._recorder.path is None:
            return
        if self._thread is not None:
            more["thread"] = self._thread
        where = {"depth": self._depth, "snapshot": at.to_json()}
        self._recorder.write(event, self.name, self.facts, at.time_s, **where, **more)


def stage(name: str, /, **facts: Any) -> Stage:
    """Measure a piece of work: `with stage("train", step=1200) as s:`, or `@stage("load")`
    on a plain function.

    One record is on disk before the body runs. Another, with the change and, after an exception, its
    `error`, is on disk before the next line runs. Both survive a SIGKILL. Then one line is printed. Stages
    can be nested and run in any thread. Measuring never raises and never breaks the body.

    Args:
        name: of the stage.
        facts: go into the records; `step` also into the line.
    """
    return Stage(name, facts)


@contextmanager
def record_to(
    path: str | os.PathLike[str] | None,
    *,
    attempt: int,
    rank: int = 0,
    echo: Callable[[str], None] | None = None,
    details: bool = False,
) -> Iterator[None]:
    """While the block runs, stages of this process append to `path` and pass their lines to `echo`.

    Outside such a block nothing is recorded, and lines go to the logger `memory`.

    Args:
        path: JSONL file, made if missing and appended to; or the run's folder, in which it is memory.jsonl
            of rank 0 and memory.rankN.jsonl of rank N. None keeps no records.
        attempt: of the run, from 1.
        rank: of this process; each rank has its own file.
        echo: takes each line, of 80 columns at most; None prints nothing.
        details: lines carry the parts of their numbers after ` | `, whatever the length.
    """
    global _recorder
    outer = _recorder
    inner = Recorder(path, attempt=attempt, rank=rank, echo=echo, details=details)
    _recorder = inner
    try:
        yield
    finally:
        _recorder = outer
        inner.close()


def note_gpu(gpu: Gpu | None) -> None:
    """Between stages: pass the use of the device, as it was just read, to the supervisor's samples."""
    _recorder.note_gpu(gpu, time.time())


def _measured() -> Snapshot:
    """A snapshot, or an empty one with the reason: measuring must not break what is measured."""
    try:
        found = snapshot()
        _recorder.note_gpu(found.gpu, found.time_s)
        return found
    except Exception as error:
        log.debug("memory cannot be measured", exc_info=error)
        return Snapshot(time.time(), Process(0), notes=(f"cannot be measured: {_text(error)}",))


def _quietly(measure: Callable[[], Result], default: Result) -> Result:
    try:
        return measure()
    except Exception as error:
        log.debug("peaks cannot be measured", exc_info=error)
        return default


def _run_change(before: Snapshot, after: Snapshot) -> dict[str, int]:
    """Change of the run's memory, if it is known."""
    if before.run_bytes is None or after.run_bytes is None:
        return {}
    return {"run_bytes": after.run_bytes - before.run_bytes}


def _peak(
    mine: Open | None, before: Snapshot, after: Snapshot, ring: str | None
) -> tuple[StagePeak, int | None]:
    """The peaks of a stage, and the run's memory at the highest sample."""
    peak = StagePeak() if mine is None else PEAKS.end(mine, after.mark_bytes, before.gpu)
    run_bytes = None
    if before.gpu is None and after.gpu is not None:
        peak.gpu_bytes = after.gpu.peak_bytes  # first used in this stage
    if ring is not None:
        highest, peak.samples = highest_between(ring, before.time_s, after.time_s)
        if highest is not None:
            peak.sampled_unreclaimable_bytes = highest.unreclaimable_bytes
            run_bytes = run_memory(highest.unreclaimable_bytes, highest.own_bytes, after.limit_at)
    return peak, run_bytes


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # an exception whose own __str__ fails
        return type(error).__name__


_recorder = Recorder(None, attempt=1, echo=log.info)
_depth: ContextVar[int] = ContextVar("depth", default=0)
"""Open stages of the thread, or of the asyncio task."""
