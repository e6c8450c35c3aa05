"""`python -m slurm logs`: every attempt and rank, nothing twice; following until the end."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy
from slurm_command import Shown, refused, told, told_json

from slurm.commands import logs
from tests.golden_text import Golden

LOG = """\
2027-01-15 07:00:00 run runs/sweep/a, attempt 1, on n1
2027-01-15 07:00:01 first-words
2027-01-15 07:10:00 stopped by SIGUSR2; type the same command again
2027-01-15 07:12:00 run runs/sweep/a, attempt 2, on n2
2027-01-15 07:12:01 last-words
"""


@pytest.fixture
def study(place: Path, said: FakeSlurm) -> MadeStudy:
    made = MadeStudy(place / "runs" / "sweep", ["a", "b"])
    made.status("a", "failed", attempt=2, reason="ValueError: no")
    run = made.folder / "a"
    (run / "log.txt").write_text(LOG)
    (run / "memory.blackbox.2.txt").write_text("== stacks ==\n")
    folder = made.submission.folder / "submitit"
    folder.mkdir()
    (folder / "4242_0_0_log.out").write_text("first-words\nlast-words\nonly on stdout\n")
    (folder / "4242_0_1_log.err").write_text("rank 1 is lost\n")
    (folder / "4242_1_0_log.err").write_text("of another run\n")
    attempts = [{"attempt": n, "started_s": NOW_S - 100, "host": f"n{n}"} for n in (1, 2)]
    (run / "run.json").write_text(json.dumps({"attempts": attempts}))
    return made


def test_all_of_it_and_nothing_twice(study: MadeStudy, shown: Shown) -> None:
    assert shown("logs", "runs/sweep/a").count("first-words") == 1


@pytest.mark.parametrize(
    ("word", "reason", "step"),
    [("RUNNING", "None", "logs runs/sweep/b -f"), ("PENDING", "Priority", "why runs/sweep/b")],
)
def test_what_next_of_one_that_has_not_ended(
    study: MadeStudy,
    said: FakeSlurm,
    capsys: pytest.CaptureFixture[str],
    word: str,
    reason: str,
    step: str,
) -> None:
    said.wait("4242_1", word, reason, start=str(int(NOW_S - 10)), nodes="n1")
    assert f" {step} " in told(capsys, "logs", "runs/sweep/b").splitlines()[-1]


def test_one_attempt(study: MadeStudy, capsys: pytest.CaptureFixture[str], shown: Shown) -> None:
    text = shown("logs", "runs/sweep/a", "--attempt", "1")
    assert "stacks" not in text
    found = told_json(capsys, "logs", "runs/sweep/a", "--attempt", "2")
    assert found["files"][0]["lines"][-1].endswith("last-words")
    assert len(found["files"][0]["lines"]) == 2


def test_bad_input(study: MadeStudy, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    for arguments in (("a", "--attempt", "3"), ("b", "--attempt", "1"), ("a", "-f", "--json")):
        golden.text(refused(capsys, "logs", f"runs/sweep/{arguments[0]}", *arguments[1:]))


def test_a_run_that_has_written_nothing(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    (study.submission.folder / "submitit" / "4242_1_0_log.err").unlink()
    said.wait("4242_1")
    shown("logs", "runs/sweep/b")


def test_following_until_it_ends(
    study: MadeStudy, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, shown: Shown
) -> None:
    said.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 900)), nodes="n1")
    study.status("a", "running", attempt=2)
    study.lock("a")
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def later(seconds: float) -> None:
        clock[0] += 6
        with open(study.folder / "a" / "log.txt", "a") as file:
            file.write("2027-01-15 07:20:00 a-new-line\n2027-01-15 07:20:01 half a li")
        study.status("a", "failed", attempt=2, reason="ValueError: no")
        said.queue = []

    monkeypatch.setattr(time, "sleep", later)
    shown("logs", "runs/sweep/a", "-f")


def test_following_one_attempt(
    study: MadeStudy, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, shown: Shown
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    text = shown("logs", "runs/sweep/a", "-f", "--attempt", "1")
    assert "stacks" not in text


def test_following_tells_nothing_twice(
    study: MadeStudy, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, shown: Shown
) -> None:
    """A job's output repeats the log, of which the beginning may be left out."""
    monkeypatch.setattr(logs, "_FIRST_LINES", 2)  # of the log fewer messages than of the output
    said.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 900)), nodes="n1")
    study.status("a", "running", attempt=2)
    study.lock("a")
    clock, looks = [1000.0], [0]
    output = study.submission.folder / "submitit" / "4242_0_0_log.out"
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def later(seconds: float) -> None:
        clock[0] += 6
        looks[0] += 1
        if looks[0] == 1:  # its handlers write one after the other
            with open(output, "a") as file:
                file.write("a-new-line\nof-stdout-alone\n")
        elif looks[0] == 2:
            with open(study.folder / "a" / "log.txt", "a") as file:
                file.write("2027-01-15 07:20:00 a-new-line\n")
        else:
            study.status("a", "failed", attempt=2, reason="ValueError: no")
            said.queue = []

    monkeypatch.setattr(time, "sleep", later)
    text = shown("logs", "runs/sweep/a", "-f")
    assert text.count("last-words") == 1
    assert text.count("a-new-line") == 1
    assert text.count("of-stdout-alone") == 1
