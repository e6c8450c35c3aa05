"""The thread that downloads ahead: its order, and when it stops."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Hashable

import pytest

from data_loading.remote import prefetcher
from data_loading.remote.disk_budget import NoRoom
from data_loading.remote.download import Check, Stopped
from data_loading.remote.prefetcher import Prefetcher
from experiment_utils.errors import UserError


class SomeReader:
    pass


class Fetching:
    """Records tasks; those in `hangs` end by their check alone."""

    def __init__(self, *hangs: str) -> None:
        self.begun: list[Hashable] = []
        self.done: list[Hashable] = []
        self.stopped: list[Hashable] = []
        self.hangs = set(hangs)
        self.errors: dict[Hashable, list[Exception]] = {}

    def __call__(self, task: Hashable, check: Check) -> None:
        self.begun.append(task)
        if self.errors.get(task):
            raise self.errors[task].pop()
        try:
            while task in self.hangs:
                check()
                time.sleep(0.001)
        except Stopped:
            self.stopped.append(task)
            raise
        self.done.append(task)


def until(state: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not state():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_tasks_are_done_in_their_order_and_the_thread_ends() -> None:
    fetching, reader = Fetching(), SomeReader()
    prefetch = Prefetcher(fetching)
    prefetch.want(reader, ["a", "b", "c"])
    until(lambda: fetching.done == ["a", "b", "c"])
    until(lambda: all(thread.name != "prefetch" for thread in threading.enumerate()))
    prefetch.want(reader, ["d"])
    until(lambda: fetching.done[-1] == "d")


@pytest.mark.parametrize("how", ["replaced", "reader gone", "closed"])
def test_task_that_is_not_wanted_stops(how: str) -> None:
    fetching, reader = Fetching("a"), SomeReader()
    prefetch = Prefetcher(fetching)
    prefetch.want(reader, ["a", "b"])
    until(lambda: fetching.begun == ["a"])
    if how == "replaced":
        prefetch.want(reader, ["c"])
        until(lambda: fetching.done == ["c"])
    elif how == "closed":
        prefetch.close()
    else:
        del reader
        gc.collect()
    until(lambda: fetching.stopped == ["a"])
    assert "b" not in fetching.begun


def test_a_reader_that_waits_stops_other_tasks_only() -> None:
    fetching, reader = Fetching("a"), SomeReader()
    prefetch = Prefetcher(fetching)
    prefetch.want(reader, ["a", "b"])
    until(lambda: fetching.begun == ["a"])
    with prefetch.paused("a"):
        time.sleep(0.02)
        assert fetching.stopped == []
    with prefetch.paused("urgent"):
        until(lambda: fetching.stopped == ["a"])
        fetching.hangs.clear()
        time.sleep(0.02)
        assert fetching.done == []
    until(lambda: fetching.done == ["a", "b"])


def test_no_room_is_tried_again_and_a_failure_is_left_to_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetcher, "_RETRY_S", 0.01)
    fetching, reader = Fetching(), SomeReader()
    fetching.errors = {"a": [NoRoom(1, 2), NoRoom(1, 2)], "b": [UserError("gone", code="object-missing")]}
    prefetch = Prefetcher(fetching)
    prefetch.want(reader, ["a", "b", "c"])
    until(lambda: fetching.done == ["a", "c"])
    assert fetching.begun == ["a", "a", "a", "b", "c"]
