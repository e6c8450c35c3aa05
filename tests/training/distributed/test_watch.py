"""A rank that is killed is noticed without any collective, and one that left in order is no failure."""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore, TCPStore

from slurm.local_ranks import free_port
from training.distributed import watch
from training.distributed.connections import Connections
from training.distributed.place import Place
from training.distributed.watch import Watch, left_key

ROOT = Path(__file__).resolve().parents[3]
OTHER = """
import sys, time
from datetime import timedelta
from torch.distributed import TCPStore
from training.distributed.place import Place
from training.distributed.watch import Watch

store = TCPStore("127.0.0.1", int(sys.argv[1]), 2, is_master=False, timeout=timedelta(seconds=60))
Watch(store, Place(1, 2, address="127.0.0.1", port=int(sys.argv[1])), ["here", "there"], print)
print("ready", flush=True)
time.sleep(600)
"""


def place(rank: int, port: int = 0) -> Place:
    return Place(rank, 3, address="127.0.0.1", port=port)


def until(holds: Callable[[], bool], within_s: float = 60.0) -> bool:
    end_s = time.monotonic() + within_s
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.01)
    return holds()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Watch, subprocess.Popen[str]]]:
    """Rank 0 in this process, which notices no missing heartbeat, and rank 1 in another."""
    monkeypatch.setattr(watch, "LOST_AFTER_S", math.inf)
    port = free_port()
    store = TCPStore(
        "127.0.0.1", port, 2, is_master=True, timeout=timedelta(seconds=60), wait_for_workers=False
    )
    own: Any = store
    watched = Watch(own.clone(), Place(0, 2, address="127.0.0.1", port=port), ["here", "there"], print)
    command = [sys.executable, "-c", OTHER, str(port)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    yield store, watched, other
    watched.close()
    other.kill()
    other.wait()


def test_a_killed_rank_is_noticed_by_its_connection(two: tuple[Any, Watch, subprocess.Popen[str]]) -> None:
    _, watched, other = two
    assert until(lambda: bool(watched._connections._sockets))
    assert watched.failure is None
    other.send_signal(signal.SIGKILL)
    assert until(lambda: watched.failure is not None)
    assert watched.failure is not None
    assert (watched.failure.rank, watched.failure.kind, watched.failure.host) == (1, "lost", "there")


@pytest.mark.slow
def test_a_rank_that_left_is_no_failure(two: tuple[Any, Watch, subprocess.Popen[str]]) -> None:
    store, watched, other = two
    assert until(lambda: bool(watched._connections._sockets))
    store.set(left_key(1), "1")
    other.send_signal(signal.SIGKILL)
    assert until(lambda: watched._connections.closed() == [1])
    time.sleep(2 * watch.BEAT_S)
    assert watched.failure is None


def test_only_ranks_are_taken_for_ranks() -> None:
    store: Any = HashStore()
    first = Connections(store, place(0))
    second, third = (Connections(store, place(rank)) for rank in (1, 2))
    assert first._listener is not None
    stranger = socket.create_connection(("127.0.0.1", first._listener.getsockname()[1]))
    stranger.sendall(b"GET / HTTP/1.1\r\nHost: nothing here\r\n\r\n")
    assert until(lambda: first.closed() == [] and set(first._sockets) == {1, 2} and not first._greeting)
    stranger.close()
    assert first.closed() == []
    third.close()
    assert until(lambda: first.closed() == [2])
    second.close()
    assert until(lambda: first.closed() == [1, 2])
    first.close()


def test_a_rank_without_a_connection_goes_on() -> None:
    store: Any = HashStore()
    first = Connections(store, place(0))
    first.close()
    other = Connections(store, place(1))
    assert other.closed() == []
    other.close()
