"""`wait=true` watches until no job will run or runs any of the runs."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

import slurm.submit.watch_runs as watching
from slurm.queue.slurm_client import NoAnswer
from slurm.submit.watch_runs import WaitInterrupted, wait_for
from tests.slurm.submit.conftest import Type
from tests.slurm.submit.test_resubmit_runs import command

HELD = {"a": "running", "b": "queued"}


def answers(monkeypatch: pytest.MonkeyPatch, found: list[dict[str, str] | Exception]) -> Iterator[object]:
    """What squeue answers, one after another; returns what is left of it."""
    left = iter(found)

    def in_flight(study: Path, runs: list[str]) -> dict[str, str]:
        answer = next(left)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(watching, "POLL_S", 0.0)
    monkeypatch.setattr(watching, "in_flight", in_flight)
    return left


@pytest.mark.parametrize("last", [{}, {"b": "blocked"}])
def test_it_ends_when_none_will_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, last: dict[str, str]
) -> None:
    """A blocked run never starts. Each change is one line; while slurmctld is away it goes on."""
    caplog.set_level("INFO", "slurm")
    left = answers(monkeypatch, [HELD, HELD, NoAnswer("away"), {"a": "running"}, last, {"never": "asked"}])
    wait_for(tmp_path, ["a", "b"])
    assert next(left) == {"never": "asked"}
    assert len(caplog.messages) == 3


def test_ctrl_c_and_a_slurm_that_stays_away_end_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(monkeypatch, [HELD, KeyboardInterrupt()])  # type: ignore[list-item]
    with pytest.raises(WaitInterrupted):
        wait_for(tmp_path, ["a", "b"])
    answers(monkeypatch, [HELD, NoAnswer("away")])
    monkeypatch.setattr(watching, "PATIENCE_S", -1.0)
    with pytest.raises(NoAnswer):
        wait_for(tmp_path, ["a", "b"])


def test_a_blocked_run_is_blocked_for_every_command(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert type_("seed=0") == 0
    path = next((cluster.folder / "jobs").glob("*.job"))
    path.write_text(repr(literal_eval(path.read_text()) | {"reason": "DependencyNeverSatisfied"}))
    capsys.readouterr()
    assert type_("seed=0") == 0
    assert "blocked" in capsys.readouterr().out
    assert command("resubmit", "default") == 0
    assert "blocked" in capsys.readouterr().out
    assert type_("seed=0", "wait=true") == 1
    assert len(cluster.jobs) == 1
