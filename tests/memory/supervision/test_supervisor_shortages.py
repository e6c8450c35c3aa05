"""A supervisor that can open few files, start no process or write nowhere: the command ends as without it."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from supervised import outcome_in

from memory.supervision.options import command_line
from tests.golden_text import Golden

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts what Linux opens")

TWENTY_CHILDREN = "for i in $(seq 20); do sleep 0.3 & done; sleep 0.2; echo ran; exit 3"


def _supervise(
    folder: Path, command: list[str], *, before: Callable[[], None] | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    environment = options.pop("env", None)
    return subprocess.run(
        command_line(command, folder, **options), preexec_fn=before, env=environment,  # type: ignore[arg-type]
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip


@pytest.mark.parametrize("files", [6, 12, 48])
@pytest.mark.parametrize("log", [False, True])
def test_few_open_files(tmp_path: Path, files: int, log: bool) -> None:
    done = _supervise(
        tmp_path, ["bash", "-c", TWENTY_CHILDREN], log=log,
        before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "ran\n")
    assert "Traceback" not in done.stderr
    if (tmp_path / "outcome.json").exists():
        assert outcome_in(tmp_path)["exit_code"] == 3
    else:
        assert files < 48
        assert "[mem] " in done.stderr


def test_no_process_can_be_made(tmp_path: Path, golden: Golden) -> None:
    """The command replaces its supervisor."""
    folder = Path(__file__).parents[3] / "memory"
    code = (
        "import os, sys\n"
        "def fork(): raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "os.fork = fork\n"
        f"sys.path.insert(0, {str(folder.parent)!r})\n"
        "from memory.supervision.main import main\n"
        f"main(['--output', {str(tmp_path)!r}, '--', 'sh', '-c', 'echo ran; exit 5'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (5, "ran\n")
    golden.text(done.stderr)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_log_when_streams_are_closed(tmp_path: Path, closed: tuple[int, ...]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    _supervise(tmp_path, ["sh", "-c", "echo out; echo err >&2; exit 3"], before=close, log=True)
    log = (tmp_path / "log.txt").read_text()
    assert ("out\n" in log, "err\n" in log) == (True, True)
    assert outcome_in(tmp_path)["exit_code"] == 3


@pytest.mark.parametrize("missing", ["tee", "log"])
def test_log_that_cannot_be_written(tmp_path: Path, missing: str) -> None:
    if missing == "log":
        (tmp_path / "log.txt").mkdir()
    environment = os.environ | ({"PATH": "/nowhere"} if missing == "tee" else {})
    command = ["/bin/sh", "-c", "echo out; exit 4"]
    done = _supervise(tmp_path, command, log=True, env=environment)
    assert (done.returncode, done.stdout) == (4, "out\n")
    assert "log.txt" in done.stderr


def test_closed_reader_ends_the_command_with_a_log(tmp_path: Path) -> None:
    """As without a log: `... | head` must not fill the disk."""
    line = command_line(["/bin/sh", "-c", "exec /usr/bin/head -c 50000000 /dev/zero"], tmp_path, log=True)
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(timeout=240) == -signal.SIGPIPE
    assert (tmp_path / "log.txt").stat().st_size < 10_000_000


@pytest.mark.parametrize("by", ["path", "name"])
def test_script_without_interpreter_is_run_by_sh(tmp_path: Path, by: str) -> None:
    script = tmp_path / "our-script"
    script.write_text('echo "$# $1"; exit 5')
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    program = str(script) if by == "path" else "our-script"
    done = _supervise(tmp_path, [program, "a b", "c"], env=environment)
    assert (done.returncode, done.stdout) == (5, "2 a b\n")


def test_file_that_is_neither_program_nor_text(tmp_path: Path, golden: Golden) -> None:
    script = tmp_path / "data"
    script.write_bytes(b"\0" * 100)
    script.chmod(0o755)
    done = _supervise(tmp_path, [str(script)])
    assert done.returncode == 126
    golden.text(done.stderr)


@pytest.mark.privileged
@pytest.mark.parametrize("size", ["1000k", "8k"])
def test_log_fills_the_disk(tmp_path: Path, size: str) -> None:
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("needs root, to mount a small disk")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", small]).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        done = _supervise(small, ["sh", "-c", "yes 0123456789 | head -c 3000000; exit 3"], log=True)
        assert (done.returncode, len(done.stdout)) == (3, 3_000_000)
        assert (small / "log.txt").stat().st_size > 4000
        if size == "8k":
            assert f"{small}/outcome.json" in done.stderr
        else:
            assert outcome_in(small)["exit_code"] == 3
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.privileged
def test_proc_of_another_pid_namespace_is_not_read(tmp_path: Path) -> None:
    """Its pids are those of other processes."""
    command = command_line(["sh", "-c", "sleep 1.2; exit 3"], tmp_path)
    done = subprocess.run(["unshare", "-fp", *command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    outcome = outcome_in(tmp_path)
    assert (outcome["exit_code"], outcome["peak_unreclaimable_bytes"], outcome["limit_bytes"]) == (
        3,
        None,
        None,
    )
    (note,) = outcome["notes"]
    assert note.startswith("/proc ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outcome.json"]
