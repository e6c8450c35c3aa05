"""A long wait ends with what a check raises; a short one, and that of a fork, does not."""

from __future__ import annotations

import os

import pytest

from data_loading import interruptible_wait as waiting
from data_loading.interruptible_wait import Wait, checked_while_waiting


class Stop(Exception):
    pass


def stop() -> None:
    raise Stop


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    return now


def test_a_short_wait_goes_on_a_long_one_ends(clock: list[float]) -> None:
    with checked_while_waiting(stop):
        wait = Wait()
        wait.check()
        clock[0] += waiting.PATIENCE_S + 1
        with pytest.raises(Stop):
            wait.check()
    wait.check()


def test_a_fork_is_not_asked(clock: list[float]) -> None:
    with checked_while_waiting(stop):
        wait = Wait()
        clock[0] += waiting.PATIENCE_S + 1
        child = os.fork()
        if child == 0:
            try:
                wait.check()
            except Stop:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
