"""A thread of the run that downloads what readers will need, while they read something else."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

from data_loading.remote.disk_budget import NoRoom
from data_loading.remote.download import Check, Stopped
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_RETRY_S = 5.0
"""Pause before the next attempt when the cache has no room."""


class Prefetcher:
    """Tasks of each reader, done in their order by one thread, which ends when there are none."""

    def __init__(self, fetch: Callable[[Hashable, Check], None]) -> None:
        """fetch: does a task; it raises what its argument `check` raises."""
        self._fetch, self._process = fetch, os.getpid()
        self._changed = threading.Condition()
        self._wanted: weakref.WeakKeyDictionary[object, list[Hashable]] = weakref.WeakKeyDictionary()
        self._urgent: Hashable | None = None
        self._current: Hashable | None = None
        self._thread: threading.Thread | None = None

    def want(self, reader: object, tasks: Sequence[Hashable]) -> None:
        """Replace the tasks of a reader, which end with it. A forked process prefetches nothing."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._wanted[reader] = list(tasks)
            self._changed.notify()
            if tasks and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
                self._thread.start()

    @contextmanager
    def paused(self, task: Hashable) -> Iterator[None]:
        """Do nothing but this task within the block, in which a reader waits for it."""
        if os.getpid() != self._process:
            yield
            return
        self._urgent = task
        try:
            yield
        finally:
            with self._changed:
                self._urgent = None
                self._changed.notify()

    def is_doing(self, task: Hashable) -> bool:
        """Whether the thread does this task now."""
        return os.getpid() == self._process and self._current == task

    def close(self) -> None:
        """Drop all tasks and wait a few seconds for the end of the thread."""
        with self._changed:
            self._wanted.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(_RETRY_S)

    def _next(self) -> Hashable | None:
        return next((tasks[0] for tasks in self._wanted.values() if tasks), None)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._urgent is None or self._next() is None)
                self._current = task = self._next()
                if task is None:
                    self._thread = None
                    return

            def check(task: Hashable = task) -> None:
                if self._urgent not in (None, task) or all(task not in tasks for tasks in self._all_tasks()):
                    raise Stopped

            try:
                self._fetch(task, check)
            except Stopped:
                self._current = None
                continue
            except NoRoom:
                self._current = None
                with self._changed:
                    self._changed.wait(_RETRY_S)
                continue
            except (UserError, OSError) as error:  # raised again for the reader that needs the file
                log.debug("not downloaded ahead: %s", error)
            with self._changed:
                for tasks in self._all_tasks():
                    if task in tasks:
                        tasks.remove(task)

    def _all_tasks(self) -> list[list[Hashable]]:
        return list(self._wanted.values())
