"""A thread of the run that downloads files: first what a reader waits for, then what readers will need."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Hashable, Sequence
from concurrent.futures import Future, wait
from typing import Protocol

from data_loading.interruptible_wait import Wait
from data_loading.remote.disk_budget import NoRoom
from data_loading.remote.download import CHECK_S, Check, Stopped

log = logging.getLogger("data_loading")

_RETRY_S = 5.0
"""Pause of downloads ahead when the cache has no room."""
_LOG_AFTER_S = 1.0


class Fetch(Protocol):
    """Does a task; raises what `check` raises, and NoRoom for a task that nothing waits for."""

    def __call__(self, task: Hashable, check: Check, *, is_ahead: bool) -> None: ...


class DownloadThread:
    """Tasks that readers wait for, and tasks ahead; one thread does them, and ends when there are none."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch, self._process = fetch, os.getpid()
        self._changed = threading.Condition()
        self._waiting: list[tuple[Hashable, Future[None]]] = []
        self._ahead: weakref.WeakKeyDictionary[object, list[Hashable]] = weakref.WeakKeyDictionary()
        self._thread: threading.Thread | None = None
        self.current: Hashable | None = None
        """The task that the thread does now."""

    def want(self, reader: object, tasks: Sequence[Hashable]) -> None:
        """Replace the tasks ahead of a reader, which end with it. A forked process prefetches nothing."""
        if os.getpid() == self._process:
            with self._changed:
                self._ahead[reader] = list(tasks)
                self._start()

    def wait_for(self, task: Hashable, name: str) -> None:
        """Return when a task is done, which goes before all others. name: for the log line of a long wait.

        Raises what the task raises, or the run's own checks (`checked_while_waiting`).
        """
        waiting, started, is_logged = Wait(), time.monotonic(), False
        if os.getpid() != self._process:  # threads are not in a fork
            self._fetch(task, waiting.check, is_ahead=False)
            return
        entry: tuple[Hashable, Future[None]] = task, Future()
        with self._changed:
            self._waiting.append(entry)
            self._start()
        try:
            while not wait([entry[1]], CHECK_S).done:
                waiting.check()
                if not is_logged and time.monotonic() - started > _LOG_AFTER_S:
                    is_logged = True
                    log.info("waiting for %s", name)
            entry[1].result()
        finally:
            with self._changed:
                self._waiting.remove(entry)
        if is_logged:
            log.info("%s came after %.1f s", name, time.monotonic() - started)

    def close(self) -> None:
        """Drop all tasks and wait a few seconds for the end of the thread."""
        with self._changed:
            self._ahead.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(_RETRY_S)

    def _start(self) -> None:
        self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
            self._thread.start()

    def _first_waiting(self) -> tuple[Hashable, Future[None]] | None:
        return next((entry for entry in self._waiting if not entry[1].done()), None)

    def _is_wanted(self, task: Hashable) -> bool:
        """Whether the thread should do this task now."""
        with self._changed:
            if (first := self._first_waiting()) is not None:
                return first[0] == task
            return any(task in tasks for tasks in self._ahead.values())

    def _run(self) -> None:
        while True:
            with self._changed:
                first = self._first_waiting()
                ahead = (tasks[0] for tasks in self._ahead.values() if tasks)
                self.current = task = next(ahead, None) if first is None else first[0]
                if task is None:
                    self._thread = None
                    return

            def check(task: Hashable = task) -> None:
                if not self._is_wanted(task):
                    raise Stopped

            result = Future() if first is None else first[1]
            try:
                self._fetch(task, check, is_ahead=first is None)
                result.set_result(None)
            except Stopped:
                continue
            except NoRoom:
                with self._changed:
                    self._changed.wait_for(lambda: self._first_waiting() or not self._ahead, _RETRY_S)
                continue
            except Exception as error:
                result.set_exception(error)
                log.debug("not downloaded: %s", error)  # raised for the reader that needs it
            with self._changed:
                for tasks in self._ahead.values():
                    if task in tasks:
                        tasks.remove(task)
