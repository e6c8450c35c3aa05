"""`python -m slurm logs`: every attempt and rank, nothing twice; following until the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy
from slurm_command import Shown, printed, printed_json, refused

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


def test_each_line_once(study: MadeStudy, shown: Shown) -> None:
    assert shown("logs", "runs/sweep/a").count("first-words") == 1


@pytest.mark.parametrize(
    ("word", "step"), [("RUNNING", "logs runs/sweep/b -f"), ("PENDING", "why runs/sweep/b")]
)
def test_next_command_of_one_that_has_not_ended(
    study: MadeStudy, said: FakeSlurm, capsys: pytest.CaptureFixture[str], word: str, step: str
) -> None:
    said.wait("4242_1", word, "None", start=str(int(NOW_S - 10)), nodes="n1")
    assert f" {step} " in printed(capsys, "logs", "runs/sweep/b").splitlines()[-1]


def test_one_attempt(study: MadeStudy, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [printed(capsys, "logs", "runs/sweep/a", "--attempt", "1", *more) for more in ((), ("-f",))]
    for text in texts:
        assert ["first-words" in text, "last-words" in text, "stacks" in text] == [True, False, False]
    found = printed_json(capsys, "logs", "runs/sweep/a", "--attempt", "2")
    assert [line.rpartition(" ")[2] for line in found["files"][0]["lines"]] == ["n2", "last-words"]


def test_bad_input(study: MadeStudy, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    for arguments in (("a", "--attempt", "3"), ("b", "--attempt", "1"), ("a", "-f", "--json")):
        golden.text(refused(capsys, "logs", f"runs/sweep/{arguments[0]}", *arguments[1:]))


def test_a_run_that_has_written_nothing(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    (study.submission.folder / "submitit" / "4242_1_0_log.err").unlink()
    said.wait("4242_1")
    shown("logs", "runs/sweep/b")


class Followed:
    """A run that runs until `end`; between two looks at its files the next of `steps` is done."""

    def __init__(self, study: MadeStudy, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
        self.study, self.said = study, said
        self.clock = 1000.0
        self.steps: list[Callable[[], None]] = []
        said.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 900)), nodes="n1")
        study.status("a", "running", attempt=2)
        study.lock("a")
        monkeypatch.setattr(time, "monotonic", lambda: self.clock)
        monkeypatch.setattr(time, "sleep", self._pass)

    def write(self, path: Path, text: str) -> None:
        with open(path, "a") as file:
            file.write(text)

    def _pass(self, seconds: float) -> None:
        self.clock += 6
        if self.steps:
            self.steps.pop(0)()
        else:
            self.study.status("a", "failed", attempt=2, reason="ValueError: no")
            self.said.queue = []


@pytest.fixture
def followed(study: MadeStudy, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Followed:
    return Followed(study, said, monkeypatch)


def test_following_until_it_ends(followed: Followed, shown: Shown) -> None:
    """Also a last line without an end, and lines of a file that was written again."""
    log = followed.study.folder / "a" / "log.txt"
    followed.steps = [
        lambda: followed.write(log, "2027-01-15 07:20:00 a-new-line\n"),
        lambda: followed.write(log, "2027-01-15 07:20:01 half a li"),
    ]
    text = shown("logs", "runs/sweep/a", "-f")
    assert [text.count(one) for one in ("a-new-line", "half a li")] == [1, 1]


def test_following_shows_each_line_once(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job's output repeats the log, of which only the end is shown; the log can get a line later."""
    monkeypatch.setattr(logs, "_FIRST_LINES", 2)
    output = followed.study.submission.folder / "submitit" / "4242_0_0_log.out"
    log = followed.study.folder / "a" / "log.txt"
    followed.steps = [
        lambda: followed.write(output, "a-new-line\nof-stdout-alone\n"),
        lambda: followed.write(log, "2027-01-15 07:20:00 a-new-line\n"),
    ]
    text = printed(capsys, "logs", "runs/sweep/a", "-f")
    assert "first-words" not in text
    assert [text.count(one) for one in ("last-words", "a-new-line", "of-stdout-alone")] == [1, 1, 1]
