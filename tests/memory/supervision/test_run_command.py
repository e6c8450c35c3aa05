"""`python -m memory run`, as a user types it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from supervised import outcome_in

from memory.__main__ import main
from tests.golden_text import Golden

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ROOT = Path(__file__).parents[3]
MB = 1 << 20


def memory(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memory", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=240, **options,
    )  # fmt: skip


@pytest.mark.parametrize("code", [0, 3])
def test_run_is_the_command(tmp_path: Path, code: int) -> None:
    command = ["sh", "-c", f"cat; exit {code}"]
    done = memory("run", "--output", tmp_path / "new" / "mem", "--", *command, input="in")
    assert (done.returncode, done.stdout) == (code, "in")
    assert outcome_in(tmp_path / "new" / "mem")["command"] == command
    if code == 0:
        assert done.stderr == ""
    else:
        assert done.stderr.count("\n") == 2
        assert f" {code} " in done.stderr
        assert done.stderr.endswith(f" explain {tmp_path}/new/mem\n")


def test_run_tells_more_when_asked(tmp_path: Path) -> None:
    done = memory(
        "run", "--output", tmp_path, "--verbose", "--log", "--", "sh", "-c", "echo out; echo err >&2"
    )
    assert (done.returncode, done.stdout) == (0, "out\n")
    first, told, _ = done.stderr.splitlines()
    assert first == "err"
    assert "%" in told
    assert "out" in (tmp_path / "log.txt").read_text()


def test_log_that_is_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.txt")
    done = memory("run", "--output", tmp_path, "--log", "--", "sh", "-c", "echo out; exit 6")
    assert (done.returncode, done.stdout) == (6, "out\n")
    assert "log.txt" in done.stderr.splitlines()[0]


def test_run_dies_as_the_command_does(tmp_path: Path) -> None:
    done = memory("run", "--output", tmp_path, "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == -signal.SIGTERM
    assert "SIGTERM" in done.stderr


def test_second_run_in_a_folder_keeps_the_evidence_of_the_first(tmp_path: Path) -> None:
    for code in (3, 4, 0):
        assert memory("run", "--output", tmp_path, "--", "sh", "-c", f"exit {code}").returncode == code
        (tmp_path / "memory.html").write_text(str(code))
    places = [tmp_path / "attempts/1", tmp_path / "attempts/2", tmp_path]
    assert [outcome_in(place)["exit_code"] for place in places] == [3, 4, 0]
    assert [outcome_in(place)["attempt"] for place in places] == [1, 2, 3]
    assert [(place / "memory.html").read_text() for place in places] == ["3", "4", "0"]
    assert all((place / "memory.ring").is_file() for place in places)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--output mem -- no-such-command", 127),
        ("--output mem -- ./text", 126),
        ("--output mem -- text", 127),
        ("--output mem -- ./", 126),
        ("--output mem --", 2),
        ("--output text/mem -- true", 2),
        ("--output text -- true", 2),
        ("-- true", 2),
    ],
    ids=[
        "no command",
        "not executable",
        "not in PATH",
        "folder",
        "empty",
        "in a file",
        "a file",
        "no output",
    ],
)
def test_run_refuses(tmp_path: Path, words: str, code: int, golden: Golden) -> None:
    (tmp_path / "text").write_text("no program")
    done = subprocess.run(
        [sys.executable, "-m", "memory", "run", *words.split()],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == code
    if words in ("-- true", "--output mem --"):
        assert "--output" in done.stderr  # by argparse; with the command as it is typed here
    else:
        golden.text(done.stderr)
    assert not (tmp_path / "mem").exists()


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_command_in_a_folder_without_permission_is_not_executable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "stat", refuse)
    assert main(["run", "--output", str(tmp_path), "--", "/folder/of/root/program"]) == 126


def test_python_that_cannot_be_executed_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.execv", refuse)
    assert main(["run", "--output", str(tmp_path), "--", "true"]) == 2


@pytest.mark.parametrize("command", ["compare", "explain", "report", "run", "stacks", "watch"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"\n  python -m memory {command} " in capsys.readouterr().out
