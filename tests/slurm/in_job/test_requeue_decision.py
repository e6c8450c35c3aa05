"""Which ends of a run put its job back into the queue."""

from __future__ import annotations

import signal

import pytest

from slurm.in_job.requeue_decision import Stopped, Verdict, judge
from tests.golden_text import Golden

USR1, USR2, TERM, INT = signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT


def verdict(
    state: str, code: int, number: int | None = None, *, idle: int = 0, preempted: bool | None = None,
    may_requeue: bool = True, is_early: bool = False, is_late: bool = False,
) -> Verdict:  # fmt: skip
    return judge(
        Stopped(state, code, "because", number, idle),
        may_requeue=may_requeue,
        max_idle=3,
        is_being_preempted=lambda: preempted,
        is_early=is_early,
        was_for_another_start=lambda: is_late,
    )


@pytest.mark.parametrize(
    ("state", "code", "number", "preempted", "end"),
    [
        ("done", 0, None, None, "done"),
        ("done", 0, USR2, None, "done"),
        ("timeout", 1, USR2, None, "requeued"),
        ("timeout", 1, USR1, None, "requeued"),
        ("cancelled", 1, TERM, True, "requeued"),
        ("cancelled", 1, TERM, False, "ended"),
        ("cancelled", 1, TERM, None, "ended"),
        ("cancelled", 130, INT, True, "ended"),
        ("timeout", 1, None, True, "ended"),
        ("failed", 1, None, True, "ended"),
        ("failed", 2, USR2, True, "ended"),
        ("oom", 1, USR2, True, "ended"),
        ("oom", 1, TERM, True, "ended"),
    ],
)
def test_ends(state: str, code: int, number: int | None, preempted: bool | None, end: str) -> None:
    found = verdict(state, code, number, preempted=preempted)
    assert (found.end, found.exit_code) == (end, code)


def test_no_step_forward() -> None:
    assert verdict("timeout", 1, USR2, idle=2).end == "requeued"
    found = verdict("timeout", 1, USR2, idle=3)
    assert (found.end, found.exit_code) == ("gave_up", 1)
    assert "3 starts" in str(found.reason)
    assert "because" in str(found.reason)
    assert "slurm.time" in str(found.reason)


def test_not_asked_for() -> None:
    found = verdict("timeout", 1, USR2, may_requeue=False)
    assert (found.end, found.exit_code) == ("ended", 1)
    assert "slurm.requeue=false" in str(found.reason)
    assert verdict("done", 0, USR2, may_requeue=False).reason is None


@pytest.mark.parametrize(("number", "state"), [(TERM, "cancelled"), (USR2, "timeout")])
@pytest.mark.parametrize(("preempted", "told"), [(True, "preempted"), (False, None)])
def test_preempted_and_not_started_again(number: int, state: str, preempted: bool, told: str | None) -> None:
    """The run itself knows only of a signal."""
    found = verdict(state, 1, number, preempted=preempted, may_requeue=False)
    assert (found.end, found.state) == ("ended", told)


def test_slurm_is_asked_only_after_sigterm() -> None:
    def never() -> bool:
        raise AssertionError

    for number in (USR2, None):
        judge(Stopped("timeout", 1, "", number, 0), may_requeue=True, max_idle=3, is_being_preempted=never)


def test_a_signal_long_before_the_time_limit_is_a_preemption(golden: Golden) -> None:
    for asked, state in ((True, "preempted"), (False, None), (None, None)):
        found = verdict("timeout", 1, USR2, preempted=asked, is_early=True)
        assert (found.end, found.state) == ("requeued", state)
        golden.text(str(found.reason))


@pytest.mark.parametrize("number", [TERM, None], ids=["of_the_job", "of_another_rank"])
def test_a_termination_for_the_start_before(number: int | None, golden: Golden) -> None:
    state = "cancelled" if number else "failed"
    found = verdict(state, 1, number, preempted=False, is_late=True)
    assert (found.end, found.state) == ("requeued", None)
    golden.text(str(found.reason))
    assert verdict(state, 1, number, preempted=False, is_late=True, idle=3).end == "gave_up"
    found = verdict(state, 1, number, preempted=False, is_late=True, may_requeue=False)
    assert (found.end, found.exit_code) == ("ended", 1)
    assert verdict("cancelled", 1, TERM, preempted=True, is_late=True).state == "preempted"
