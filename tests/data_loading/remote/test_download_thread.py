"""The thread that downloads: its order, when it stops, and what it leaves to readers."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Hashable

import pytest

from data_loading import interruptible_wait
from data_loading.remote import download_thread
from data_loading.remote.disk_budget import NoRoom
from data_loading.remote.download import Check, Stopped
from data_loading.remote.download_thread import DownloadThread
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

    def __call__(self, task: Hashable, check: Check, *, is_ahead: bool) -> None:
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
    thread = DownloadThread(fetching)
    thread.want(reader, ["a", "b", "c"])
    until(lambda: fetching.done == ["a", "b", "c"])
    until(lambda: all(thread.name != "prefetch" for thread in threading.enumerate()))
    thread.want(reader, ["d"])
    until(lambda: fetching.done[-1] == "d")


@pytest.mark.parametrize("how", ["replaced", "reader deleted", "closed"])
def test_task_that_is_not_wanted_stops(how: str) -> None:
    fetching, reader = Fetching("a"), SomeReader()
    thread = DownloadThread(fetching)
    thread.want(reader, ["a", "b"])
    until(lambda: fetching.begun == ["a"])
    if how == "replaced":
        thread.want(reader, ["c"])
        until(lambda: fetching.done == ["c"])
    elif how == "closed":
        thread.close()
    else:
        del reader
        gc.collect()
    until(lambda: fetching.stopped == ["a"])
    assert "b" not in fetching.begun


def test_task_of_a_waiting_reader_stops_other_tasks_only() -> None:
    fetching, reader = Fetching("a"), SomeReader()
    thread = DownloadThread(fetching)
    thread.want(reader, ["a", "b"])
    until(lambda: fetching.begun == ["a"])
    waiting = threading.Thread(target=thread.wait_for, args=("a", "a"))
    waiting.start()
    until(lambda: bool(thread._waiting))
    time.sleep(0.02)
    assert fetching.stopped == []
    fetching.hangs = {"b"}
    waiting.join()
    until(lambda: "b" in fetching.begun)
    thread.wait_for("urgent", "urgent")
    assert fetching.stopped == ["b"]
    fetching.hangs.clear()
    until(lambda: fetching.done[-1] == "b")
    assert [task for task in fetching.done if task != "a"] == ["urgent", "b"]


def test_wait_ends_when_the_run_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task ends too, and another reader can wait for it again."""
    monkeypatch.setattr(interruptible_wait, "PATIENCE_S", 0.0)
    fetching = Fetching("a")
    thread = DownloadThread(fetching)

    def stop() -> None:
        raise KeyboardInterrupt

    with interruptible_wait.checked_while_waiting(stop), pytest.raises(KeyboardInterrupt):
        thread.wait_for("a", "a")
    until(lambda: fetching.stopped == ["a"])
    fetching.hangs.clear()
    thread.wait_for("a", "a")
    assert fetching.done == ["a"]


@pytest.mark.parametrize("error", [UserError("vanished", code="object-missing"), OSError(5, "I/O error")])
def test_no_room_is_tried_again_and_a_failure_is_left_to_the_reader(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_thread, "_RETRY_S", 0.01)
    fetching, reader = Fetching(), SomeReader()
    fetching.errors = {"a": [NoRoom(1, 2), NoRoom(1, 2)], "b": [error, error]}
    thread = DownloadThread(fetching)
    thread.want(reader, ["a", "b", "c"])
    until(lambda: fetching.done == ["a", "c"])
    assert fetching.begun == ["a", "a", "a", "b", "c"]
    with pytest.raises(type(error)):
        thread.wait_for("b", "b")
    thread.wait_for("b", "b")
    assert fetching.done == ["a", "c", "b"]
