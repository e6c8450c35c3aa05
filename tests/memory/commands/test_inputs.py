"""What cannot be read, or written to, is told in one line."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from supervised import outcome_in

from memory.__main__ import main
from tests.golden_text import Golden

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ROOT = Path(__file__).parents[3]


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
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


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


def test_a_full_disk_to_write_to(golden: Golden) -> None:
    done = _into("> /dev/full", "--json")
    assert done.returncode == 1
    golden.text(done.stderr)


def test_what_nobody_wants_to_read(tmp_path: Path) -> None:
    """As of the other rooms: its exit status is that of the command."""
    for words, status in (("--json", 0), (f"explain {tmp_path}/none", 2)):
        done = _into(">&-", words)
        assert done.returncode == status
        assert done.stderr.count("\n") == (status != 0)


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize("more", ["", "--log "])
def test_run_where_streams_are_closed(tmp_path: Path, closed: str, more: str) -> None:
    words = f"run --output {tmp_path}/mem {more}-- sh -c 'touch {tmp_path}/ran; exit 3'"
    assert _into(closed, words).returncode == 3
    assert (tmp_path / "ran").exists()
    assert outcome_in(tmp_path / "mem")["exit_code"] == 3


OF_A_RUN = (
    "outcome.json", "status.json", "run.json", "run.lock", "config.yaml", "memory.ring", "memory.jsonl",
    "memory.rank1.jsonl", "memory.blackbox.1.txt", "memory.attribution.json", "log.txt", "stderr.txt",
)  # fmt: skip


def _asked(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a user asks, with no more memory than a reader needs; one that waits for ever is found out."""
    words = {"watch": "watch --once", "compare": f"compare {shlex.quote(str(folder))}"}.get(command, command)
    line = (
        f"ulimit -v 2000000; exec {shlex.quote(sys.executable)} -m memory {words} {shlex.quote(str(folder))}"
    )
    return subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("explain", "fifo"), ("explain", "device"), ("explain", "socket"), ("report", "fifo"),
        ("watch", "fifo"), ("watch", "device"), ("stacks", "fifo"), ("attribute", "device"),
        ("compare", "socket"),
    ],
)  # fmt: skip
def test_what_is_no_plain_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path may have no more than 108 characters
    for name in OF_A_RUN:
        path = tmp_path / name
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(name)
    done = _asked(command, tmp_path)
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_beyond_all_reason_is_not_read(tmp_path: Path) -> None:
    for name in ("outcome.json", "memory.ring"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(1 << 30)
    done = _asked("explain", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.strerror(errno.EFBIG) in done.stdout


def test_lines_that_never_end_are_not_held(tmp_path: Path) -> None:
    (tmp_path / "outcome.json").write_text('{"exit_code": 3}')
    with open(tmp_path / "memory.jsonl", "wb") as file:
        file.write(b"x" * (64 << 20))
    done = _asked("explain", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("failed")


KILLED = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=4242.0. Some of the step tasks have been "
    "OOM Killed."
)


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        ("explain --log -", "x" * 3_000_000 + f"\n{KILLED}\n"),
        (f"explain --log <(printf '%s\\n' '{KILLED}')", ""),
        (f"explain <(printf '%s\\n' '{KILLED}')", ""),
    ],
)
def test_a_log_that_comes_through_a_pipe(words: str, stdin: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m memory {words} --no-sacct"],
        cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("oom_cgroup")


def test_no_log_on_standard_input(golden: Golden) -> None:
    done = _into("<&-", "explain --log -")
    assert (done.returncode, done.stdout) == (2, "")
    golden.text(done.stderr)


@pytest.mark.parametrize(
    ("command", "encoding"),
    [
        ("explain", "ascii"), ("report", "ascii"), ("report", "latin-1"), ("report", "utf-8"),
        ("compare", "latin-1"), ("report --json", "utf-8"),
    ],
)  # fmt: skip
def test_letters_that_the_terminal_does_not_have(tmp_path: Path, command: str, encoding: str) -> None:
    """Half of a pair in a stage's name; the blocks of a report."""
    main_process = {"pid": 5, "name": "p\ud800", "anon_bytes": 90 << 20}
    snapshot = {"scope": "job", "unreclaimable_bytes": 90 << 20, "main": main_process, "limit_at": "/\ud800"}
    begin = {"version": 1, "event": "begin", "stage": "tr\ud800", "attempt": 1, "rank": 0, "depth": 0}
    records = [{**begin, "time_s": 1.7e9 + at, "elapsed_s": at, "snapshot": snapshot} for at in range(3)]
    (tmp_path / "memory.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    done = _asked(command, tmp_path, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ud800" in done.stdout or command == "explain"


@pytest.mark.parametrize("command", ["explain", "report", "watch", "stacks", "attribute", "compare"])
def test_a_name_that_is_empty_is_not_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Of a variable that is not set."""
    (tmp_path / "outcome.json").write_text('{"exit_code": 3}')
    monkeypatch.chdir(tmp_path)
    assert main([command, "", *([""] if command == "compare" else [])]) == 2
    assert capsys.readouterr().err.startswith("error: RUN ")


def test_an_output_that_is_empty_is_not_where_one_stands(golden: Golden) -> None:
    done = _into("", "run --output '' -- true")
    assert done.returncode == 2
    golden.text(done.stderr)


def test_a_picture_of_a_stage_that_has_no_letters(tmp_path: Path) -> None:
    begin = {"version": 1, "event": "begin", "stage": "read \udcff", "attempt": 1, "rank": 0, "depth": 0}
    snapshot = {"scope": "job", "unreclaimable_bytes": 90 << 20, "limit_bytes": 1 << 30}
    records = [{**begin, "time_s": 1.7e9 + at, "elapsed_s": at, "snapshot": snapshot} for at in range(3)]
    (tmp_path / "memory.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["report", str(tmp_path), "--png", "--html"]) == 0
