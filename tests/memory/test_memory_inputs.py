"""What cannot be read, or written to, is told in one line."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from supervised import outcome_in

from memory.__main__ import main

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("command", ["explain", "report", "watch", "stacks", "attribute"])
@pytest.mark.parametrize("run", ["~nosuchuser/x", "a" * 300, "a\0b"])
def test_a_name_that_no_run_can_have(capsys: pytest.CaptureFixture[str], command: str, run: str) -> None:
    assert main([command, run]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.privileged
@pytest.mark.parametrize("command", ["explain", "report", "watch", "stacks", "attribute"])
def test_a_run_of_somebody_else(tmp_path: Path, command: str) -> None:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root, to be somebody else")
    locked = tmp_path / "locked"
    (locked / "run").mkdir(parents=True)
    (locked / "run" / "outcome.json").write_text("{}")
    locked.chmod(0o700)
    for parent in tmp_path.parents[:3]:
        if parent != Path("/tmp"):
            parent.chmod(0o755)
    tmp_path.chmod(0o755)
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    unread = tmp_path / "unread"
    unread.mkdir()
    (unread / "outcome.json").touch(mode=0o600)
    for run in (locked / "run", locked, unread):
        done = subprocess.run(
            [*nobody, sys.executable, "-m", "memory", command, str(run)],
            cwd=ROOT, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert "may not be read by this user" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["explain", "report", "watch", "stacks", "attribute"])
def test_files_that_are_nested_too_deeply(tmp_path: Path, command: str) -> None:
    """Nothing is raised; what was passed over may be told."""
    for name in ("outcome.json", "status.json", "run.json", "memory.attribution.json", "run.lock"):
        (tmp_path / name).write_text("[" * 200_000)
    (tmp_path / "memory.jsonl").write_text('{"a":' * 100_000)
    assert main([command, str(tmp_path), *(["--once"] if command == "watch" else [])]) in (0, 2)


def _into(redirection: str, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m memory {words} {redirection}"],
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def test_a_full_disk_to_write_to() -> None:
    done = _into("> /dev/full", "--json")
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: No space left")
    assert done.stderr.count("\n") == 1


def test_what_nobody_wants_to_read(tmp_path: Path) -> None:
    """As of the other rooms: its exit status is that of the command."""
    for words, status in (("--json", 0), (f"explain {tmp_path}/none", 2)):
        done = _into(">&-", words)
        assert done.returncode == status
        assert "closed" not in done.stderr


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize("more", ["", "--log "])
def test_run_where_streams_are_closed(tmp_path: Path, closed: str, more: str) -> None:
    words = f"run --output {tmp_path}/mem {more}-- sh -c 'touch {tmp_path}/ran; exit 3'"
    assert _into(closed, words).returncode == 3
    assert (tmp_path / "ran").exists()
    assert outcome_in(tmp_path / "mem")["exit_code"] == 3
