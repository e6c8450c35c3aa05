"""Signals set a flag; one Ctrl-C that arrives twice is one wish, a later one is another."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.golden_text import Golden
from training import interrupt
from training.distributed.ranks import Ranks
from training.interrupt import SIGNALS, Interrupt, Interrupted
from training.run.exit_reason import ending_of
from training.run.loop import check_there_is_time


@pytest.mark.usefixtures("hears_hangup")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_raised_at_the_check(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupt() as asked:
        asked.check()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert asked.requested == number
        with pytest.raises(Interrupted) as raised:
            asked.check()
    assert number.name in str(raised.value)
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


def test_how_long_until_the_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_END_TIME", "HIGHWATER_GRACE_S"):
        monkeypatch.delenv(name, raising=False)
    with Interrupt() as asked:
        assert asked.left_s() is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked.left_s() is None, "outside of a job nobody is known to kill"
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        assert 0 < (asked.left_s() or 0) <= interrupt.GRACE_S
        monkeypatch.setenv("HIGHWATER_GRACE_S", "5")
        assert (asked.left_s() or 0) <= 5
    with Interrupt() as asked:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert (asked.left_s() or 0) <= 5, "the end of the job is not told: as if it were near"
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 100))
        assert 90 < (asked.left_s() or 0) <= 100


def test_an_evaluation_that_would_take_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("HIGHWATER_GRACE_S", "30")
    with Interrupt() as asked:
        run: Any = SimpleNamespace(
            interrupt=asked, ranks=Ranks(), longest_s={"evaluate": 20.0, "checkpoint": 15.0}
        )
        check_there_is_time(run)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            check_there_is_time(run)
        run.longest_s["evaluate"] = 5.0
        check_there_is_time(run)
        run.longest_s.clear()  # the first one: nobody knows
        check_there_is_time(run)


@pytest.mark.parametrize("left_s", [None, 3600 * 5 + 30, -20, 365 * 86400])
def test_a_signal_ahead_of_a_limit_is_told_by_what_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left_s: float | None, golden: Golden
) -> None:
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    asked = Interrupted(signal.SIGUSR2)
    assert ending_of(asked, tmp_path)[:2] == ("timeout", 1), "in no job"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    if left_s is not None:
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + left_s)))
    *ending, reason = ending_of(asked, tmp_path)
    assert ending == ["timeout", 1]
    assert "SIGUSR2" in reason
    golden.text(reason)
