"""`stage`: measure before and after a piece of work, record both, and tell it in one line."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from memory.format import stage_label, stage_line
from memory.process import Process
from memory.recorder import Recorder
from memory.snapshots import Snapshot, snapshot

log = logging.getLogger("memory")


class Stage(ContextDecorator):
    """One piece of work, measured; made by `stage`.

    before, after: the snapshots around the body, None until they are taken.
    change: after less before, in bytes, by the names of `Snapshot.amounts`.
    seconds: how long the body took.
    """

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self.name, self.facts = name, facts
        self.before: Snapshot | None = None
        self.after: Snapshot | None = None
        self.change: dict[str, int] = {}
        self.seconds: float | None = None

    def _recreate_cm(self) -> Stage:
        """Each call of a decorated function is a stage of its own, also in recursion and in threads."""
        return Stage(self.name, self.facts)

    def __enter__(self) -> Stage:
        self._recorder = _recorder
        self._depth = getattr(_here, "depth", 0)
        thread = threading.current_thread()
        self._thread = None if thread is threading.main_thread() else thread.name
        self.before = _measured()
        self._record("begin", self.before)
        _here.depth = self._depth + 1
        self._started_s = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._started_s
        _here.depth = self._depth
        assert self.before is not None
        self.after = _measured()
        before, after = self.before.amounts, self.after.amounts
        self.change = {name: after[name] - before[name] for name in after if name in before}
        told = None if error is None else _told(error)
        more = {} if told is None else {"error": told}
        self._record("end", self.after, change=self.change, seconds=round(self.seconds, 6), **more)
        label = stage_label(self.name, self.facts, self._depth, self._thread)
        self._recorder.say(stage_line(label, self.after, self.change, self.seconds, told))

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
    path: Path | None,
    *,
    attempt: int,
    rank: int = 0,
    echo: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """While the block runs, stages of this process append to `path` and tell their lines to `echo`.

    Outside such a block nothing is recorded, and lines go to the logger `memory`.

    Args:
        path: JSONL file, made if missing and appended to; None keeps no records.
        attempt: of the run, from 1.
        rank: of this process; each rank has its own file.
        echo: takes each line; None tells nothing.
    """
    global _recorder
    outer, _recorder = _recorder, Recorder(path, attempt=attempt, rank=rank, echo=echo)
    inner = _recorder
    try:
        yield
    finally:
        _recorder = outer
        inner.close()


def _measured() -> Snapshot:
    """A snapshot, or an empty one that says why: measuring must not break what is measured."""
    try:
        return snapshot()
    except Exception as error:
        log.debug("memory cannot be measured", exc_info=error)
        return Snapshot(time.time(), Process(0), notes=(f"cannot be measured: {_told(error)}",))


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # an exception whose own __str__ fails
        return type(error).__name__


_recorder = Recorder(None, attempt=1, echo=log.info)
_here = threading.local()
