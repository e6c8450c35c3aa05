"""The supervisor is not the one that the kernel chooses where no process holds what fills the limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import supervise

from memory.supervision import process_settings

GB = 1 << 30


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    before = process_settings._score_of_command
    yield
    process_settings._score_of_command = before


def test_the_privileged_step_back(tmp_path: Path) -> None:
    score = tmp_path / "score"
    score.write_text("7\n")
    process_settings.protect_supervisor(8 * GB, str(score))
    assert score.read_text() == "-999"
    process_settings.set_command_score(str(score))
    assert score.read_text() == "7", "the command is as it was"


@pytest.mark.parametrize(
    ("limit", "expected"), [(48 * GB, "1"), (8 * GB, "3"), (100 << 20, "100"), (None, "100")]
)
def test_others_put_the_command_in_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int | None, expected: str
) -> None:
    score = tmp_path / "score"
    score.write_text("0\n")
    write = process_settings._write

    def only_up(file: str, text: str) -> None:
        if int(text) < 0:
            raise PermissionError
        write(file, text)

    monkeypatch.setattr(process_settings, "_write", only_up)
    process_settings.protect_supervisor(limit, str(score))
    assert score.read_text() == "0\n"
    process_settings.set_command_score(str(score))
    assert score.read_text() == expected


def test_no_such_file(tmp_path: Path) -> None:
    process_settings.protect_supervisor(GB, str(tmp_path / "score"))
    process_settings.set_command_score(str(tmp_path / "score"))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's own")
def test_the_command_goes_before_its_supervisor(tmp_path: Path) -> None:
    command = ["sh", "-c", "cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj"]
    own, supervisors = map(int, supervise(tmp_path, command).stdout.split())
    assert own > supervisors
