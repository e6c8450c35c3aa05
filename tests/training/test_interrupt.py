"""Signals set a flag; one Ctrl-C that arrives twice is one wish, a later one is another."""

from __future__ import annotations

import os
import signal
import time

import pytest

from training import interrupt
from training.interrupt import Interrupt, Interrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_raised_at_the_check(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupt() as asked:
        asked.check()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert asked.requested == number
        with pytest.raises(Interrupted, match=number.name):
            asked.check()
    assert signal.getsignal(number) is before


def test_a_later_ctrl_c_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "SAME_KEYPRESS_S", 0.05)
    with Interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
