"""`stage`: measure before and after a piece of work, record both, and tell it in one line."""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar, cast

from memory.measure.cuda_allocator import Gpu
from memory.measure.peaks import PEAKS, Open, Peak
from memory.measure.process import Process
from memory.measure.snapshot import Snapshot, snapshot
from memory.record.recorder import Recorder, records_path
from memory.record.ring import highest_between
from memory.record.stage_line import stage_label, stage_line

log = logging.getLogger("memory")
Function = TypeVar("Function", bound=Callable[..., Any])

_WORTH_TELLING_BYTES = 16 << 20
"""Of a peak above what remains: the allocators' own coming and going is below it."""


class Stage(ContextDecorator):
    """One piece of work, measured; made by `stage`.

    before, after: the snapshots around the body, None until they are taken.
    change: after less before, in bytes, by the names of `Snapshot.amounts`.
    peak: the most in between, None until the end.
    found: what the body told of memory with `tell`; it goes into the record of the end.
    seconds: how long the body took.
    """

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self.name, self.facts = name, facts
        self.before: Snapshot | None = None
        self.after: Snapshot | None = None
        self.change: dict[str, int] = {}
        self.peak: Peak | None = None
        self.seconds: float | None = None
        self.found: dict[str, Any] = {}
        self._words: list[str] = []

    def __call__(self, function: Function) -> Function:
        """As a decorator: of a plain function, an async one, or a generator (async or not), which is measured
        from its first value to its end, with what its reader does in between.
        """
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self._recreate_cm():
                    return await function(*args, **kwargs)

            return cast(Function, awaited)
        if inspect.isgeneratorfunction(function):

            @wraps(function)
            def generated(*args: Any, **kwargs: Any) -> Iterator[Any]:
                with self._recreate_cm():
                    return (yield from function(*args, **kwargs))

            return cast(Function, generated)
        if inspect.isasyncgenfunction(function):

            @wraps(function)
            async def streamed(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                with self._recreate_cm():
                    inner = function(*args, **kwargs)
                    ask = inner.asend(None)
                    while True:  # what `yield from` does for a plain one
                        try:
                            value = await ask
                        except StopAsyncIteration:
                            return
                        try:
                            ask = inner.asend((yield value))
                        except GeneratorExit:
                            await inner.aclose()
                            raise
                        except BaseException as error:
                            ask = inner.athrow(error)

            return cast(Function, streamed)
        return super().__call__(function)

    def tell(self, name: str, value: Any, words: str | None = None) -> None:
        """From within the body: add a plain value to its last record, and words to its line."""
        self.found[name] = value
        if words:
            self._words.append(words)

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
        self._open = _begun(self.before)
        self._started_s = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._started_s
        # less one, not what it was: a generator may end within a stage that began after it
        _depth.set(max(0, _depth.get() - 1))
        assert self.before is not None
        self.after = _measured()
        self.peak = _ended(self._open, self.before, self.after, self._recorder.ring)
        before, after = self.before.amounts, self.after.amounts
        self.change = {name: after[name] - before[name] for name in after if name in before}
        told = None if error is None else _told(error)
        more: dict[str, Any] = {} if told is None else {"error": told}
        more |= {"peak": self.peak.to_json(), "seconds": round(self.seconds, 6), **self.found}
        self._record("end", self.after, change=self.change, **more)
        label = stage_label(self.name, self.facts, self._depth, self._thread)
        mains = self.before.main.rss_bytes, self.after.main.rss_bytes
        of_job = before.get("unreclaimable_bytes"), after.get("unreclaimable_bytes")
        rise = _rise(self.peak.rss_bytes, *mains)
        highest = _highest(self.peak.sampled_unreclaimable_bytes, *of_job)
        line = stage_line(label, self.after, self.change, self.seconds, told, rise, highest)
        self._recorder.say(" | ".join([line, *self._words]))

    def _record(self, event: str, at: Snapshot, **more: Any) -> None:
        if self._recorder.path is None:
            return
        if self._thread is not None:
            more["thread"] = self._thread
        where = {"depth": self._depth, "snapshot": at.to_json()}
        self._recorder.write(event, self.name, self.facts, at.time_s, **where, **more)


def stage(name: str, /, **facts: Any) -> Stage:
    """Measure a piece of work: `with stage("train", step=1200) as s:`, or `@stage("load")`.

    One record is on disk before the body runs, one before the next line after it, which also holds the
    change and, after an exception, its `error`; both survive a SIGKILL. Then one line is told. Stages
    may be nested and run in any thread. Measuring never raises and never breaks the body.

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
) -> Iterator[None]:
    """While the block runs, stages of this process append to `path` and tell their lines to `echo`.

    Outside such a block nothing is recorded, and lines go to the logger `memory`.

    Args:
        path: JSONL file, made if missing and appended to; or the run's folder, in which it is memory.jsonl
            of rank 0 and memory.rankN.jsonl of rank N. None keeps no records.
        attempt: of the run, from 1.
        rank: of this process; each rank has its own file.
        echo: takes each line; None tells nothing.
    """
    global _recorder
    outer, _recorder = _recorder, Recorder(records_path(path, rank), attempt=attempt, rank=rank, echo=echo)
    inner = _recorder
    try:
        yield
    finally:
        _recorder = outer
        inner.close()


def note_gpu(gpu: Gpu | None) -> None:
    """Between stages: let the supervisor's samples have the use of the device, as it was just read."""
    _recorder.note_gpu(gpu, time.time())


def _measured() -> Snapshot:
    """A snapshot, or an empty one that says why: measuring must not break what is measured."""
    try:
        found = snapshot()
        _recorder.note_gpu(found.gpu, found.time_s)
        return found
    except Exception as error:
        log.debug("memory cannot be measured", exc_info=error)
        return Snapshot(time.time(), Process(0), notes=(f"cannot be measured: {_told(error)}",))


def _begun(before: Snapshot) -> Open | None:
    try:
        return PEAKS.begin(before.gpu)
    except Exception as error:
        log.debug("peaks cannot be measured", exc_info=error)
        return None


def _ended(mine: Open | None, before: Snapshot, after: Snapshot, ring: str | None) -> Peak:
    try:
        peak = Peak() if mine is None else PEAKS.end(mine, after.mark_bytes, before.gpu)
        if before.gpu is None and after.gpu is not None:
            peak.gpu_bytes = after.gpu.peak_bytes  # first used in this stage
        if ring is not None:
            highest, peak.samples = highest_between(ring, before.time_s, after.time_s)
            peak.sampled_unreclaimable_bytes = None if highest is None else highest.unreclaimable_bytes
        return peak
    except Exception as error:
        log.debug("peaks cannot be measured", exc_info=error)
        return Peak()


def _rise(peak: int | None, before: int | None, after: int | None) -> int | None:
    """How far above its beginning a stage went, where it also came down again."""
    highest = _highest(peak, before, after)
    return None if highest is None or before is None else highest - before


def _highest(peak: int | None, before: int | None, after: int | None) -> int | None:
    """The peak, where it is well above both ends."""
    if peak is None or before is None or after is None:
        return None
    return peak if peak - max(before, after) >= _WORTH_TELLING_BYTES else None


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # an exception whose own __str__ fails
        return type(error).__name__


_recorder = Recorder(None, attempt=1, echo=log.info)
_depth: ContextVar[int] = ContextVar("depth", default=0)
"""Of the thread, or of the asyncio task."""
