"""Follow running runs until they end: the process that `logging=` starts for a run, and `--follow`.

It reads what a run writes for itself and writes it elsewhere. The run does nothing for it and never waits: it
is a process of its own, and where that fails the run has lost a copy.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from analysis.export.run_facts import RunFacts, ending_of, facts_of_run
from analysis.export.series import Series
from analysis.export.writers import Writer
from training.attempt.run_files import state_of

Open = Callable[[RunFacts], Writer]
"""Makes the writer of a run."""

_LOOKED_AT_S = 1.0
"""Seconds between checks whether the run that started this still lives."""

ITS_OWN_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Meant for the run, where they come to all processes of a job; this ends when the run does."""


class Parent:
    """Who started this. Its end, or a line on standard input, says that nothing more will come."""

    def __init__(self, pid: int, pipe: IO[str] | None = None) -> None:
        self._pid, self._pipe = pid, pipe or sys.stdin
        for number in ITS_OWN_END:
            signal.signal(number, signal.SIG_IGN)
        with suppress(OSError):
            os.nice(10)  # where cores are scarce, those who train come first

    def wait(self, seconds: float) -> bool:
        """Sleep so long, or until nothing more will come; returns that."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            if os.getppid() != self._pid:
                return True
            readable, _, _ = select.select([self._pipe], [], [], min(left_s, _LOOKED_AT_S))
            if readable:
                return True
        return os.getppid() != self._pid


class NoParent:
    """Follows until the runs have ended."""

    def wait(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False


class _Followed:
    """One run. Its writer is opened when it has a first point: a run that is queued may still fail."""

    def __init__(self, folder: Path, label: str | None, open_writer: Open, every: int) -> None:
        self._folder, self._label, self._open, self._every = folder, label, open_writer, every
        self._writer: Writer | None = None
        self._series: Series | None = None
        self.points = 0

    def take(self, *, is_over: bool) -> None:
        if self._writer is None or self._series is None:
            if not (self._folder / "metrics.csv").exists():
                return
            facts = facts_of_run(self._folder, self._label)
            self._writer = self._open(facts)
            self._series = Series(self._folder, facts.attempts, after=self._writer.after, every=self._every)
        self.points += self._writer.add(self._series.new(is_over=is_over))

    def end(self) -> str | None:
        """Returns where its series are; None where it has none."""
        self.take(is_over=True)
        if self._writer is None:
            return None
        place = self._writer.destination
        self._writer.end(*ending_of(self._folder))
        return place


def follow(
    folders: Sequence[tuple[Path, str | None]],
    open_writer: Open,
    *,
    parent: Parent | NoParent,
    every: int,
    poll_s: float,
) -> dict[Path, tuple[str | None, int]]:
    """Until each has ended; returns for each where its series are, and how many points it got.

    folders: each with its label. every: steps from one point to the next.

    Raises:
        UserError, OSError: as the writers.
    """
    going = {folder: _Followed(folder, label, open_writer, every) for folder, label in folders}
    found: dict[Path, tuple[str | None, int]] = {}
    is_over = False
    while going:
        for folder, followed in list(going.items()):
            if is_over or _has_ended(folder):
                del going[folder]
                found[folder] = followed.end(), followed.points
            else:
                followed.take(is_over=False)
        if going:
            is_over = parent.wait(poll_s)
    return found


def _has_ended(folder: Path) -> bool:
    state: Any = state_of(folder)
    return state not in (None, "running")
