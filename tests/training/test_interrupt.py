"""Signals set a flag; one Ctrl-C that arrives twice is one wish, a later one is another."""

from __future__ import annotations

import os
import signal
import time

import pytest

from training import interrupt
from training.interrupt import SIGNALS, Interrupt, Interrupted


@pytest.mark.usefixtures("hears_hangup")
@pytest.mark.parametrize("number", SIGNALS)
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


def test_a_signal_blocked_by_the_parent_is_let_in() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.raise_signal(signal.SIGTERM)  # to this thread
    with Interrupt() as asked:
        assert asked.requested == signal.SIGTERM


def test_a_hangup_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt() as asked:
            os.kill(os.getpid(), signal.SIGHUP)
            assert asked.requested is None
    finally:
        signal.signal(signal.SIGHUP, before)
