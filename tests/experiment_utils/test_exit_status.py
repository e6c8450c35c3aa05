"""How commands end, seen from the shell that started them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiment_utils.errors import UserError
from experiment_utils.exit_status import exit_status

ROOT = Path(__file__).resolve().parent.parent.parent
full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")


def ended(command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True)


def assert_one_line_of_a_full_disk(text: str) -> None:
    (line,) = text.splitlines()
    assert line.startswith("error: ")
    assert os.strerror(errno.ENOSPC) in line


@full_disk
@pytest.mark.parametrize(
    "command",
    [
        "-m slurm status --json",
        "-m data_loading list",
        "-m memory here",
        "experiments.py --version",
        "-m highwater",
        "-m highwater memory",
        "-m slurm status --help",
        "-m data_loading --help",
        "-m analysis --help",
        "-m memory --help",
    ],
)
def test_standard_output_on_a_full_disk_is_told_in_one_line(command: str) -> None:
    done = ended(f"{sys.executable} {command} > /dev/full")
    assert done.returncode == 1
    assert_one_line_of_a_full_disk(done.stderr)


@full_disk
def test_more_than_a_buffer_on_a_full_disk() -> None:
    program = "def much():\n    for _ in range(9999):\n        print('much')\n    return 0\n"
    program += "import sys; from experiment_utils.exit_status import exit_status; sys.exit(exit_status(much))"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, cwd=ROOT)
    assert done.returncode == 1
    assert_one_line_of_a_full_disk(done.stderr.decode())


@pytest.mark.parametrize(
    "command",
    [
        "-m slurm status --json",
        "-m data_loading list",
        "-m memory here",
        "experiments.py --version",
        "-m highwater",
        "-m slurm status --help",
        "-m memory --help",
    ],
)
def test_standard_output_that_is_closed(command: str) -> None:
    """Every room is silent, and ends as it does where somebody reads."""
    read = ended(f"{sys.executable} {command}")
    done = ended(f"{sys.executable} {command} >&-")
    assert (done.returncode, done.stderr) == (read.returncode, read.stderr)


def test_a_reader_that_has_seen_enough() -> None:
    program = "import sys; from experiment_utils.exit_status import exit_status; "
    program += "sys.exit(exit_status(lambda: [print(i) for i in range(99999)] and 0))"
    done = ended(f'{sys.executable} -c "{program}" | head -1; echo ${{PIPESTATUS[0]}}')
    assert (done.stdout, done.stderr) == ("0\n1\n", "")


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), BrokenPipeError(32, "Broken pipe")])
def test_what_is_not_of_standard_output_is_not_hidden(error: OSError) -> None:
    def command() -> int:
        raise error

    with pytest.raises(OSError) as raised:  # noqa: PT011
        exit_status(command)
    assert raised.value is error


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_refusal_of_a_file_is_one_line_with_its_name(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise OSError(number, os.strerror(number), "/some/file")

    assert exit_status(command) == 2
    assert capsys.readouterr().err == f"error: /some/file: {os.strerror(number)}\n"


def test_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    def raises(error: BaseException) -> int:
        raise error

    assert exit_status(lambda: 7) == 7
    assert exit_status(lambda: raises(KeyboardInterrupt()), "again") == 130
    assert exit_status(lambda: raises(UserError("wrong"))) == 2
    assert capsys.readouterr().err.splitlines() == ["again", UserError("wrong").render()]


def test_notebooks_show_a_mistake_without_a_traceback() -> None:
    shown = UserError("one", "two")._render_traceback_()
    assert [line.split(": ") for line in shown] == [["error", "one"], ["error", "two"]]
