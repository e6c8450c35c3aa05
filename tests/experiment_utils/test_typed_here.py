"""Commands in messages are printed as they are typed where the user is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiment_utils.typed_here import ROOT, as_typed_here, wrap

pytestmark = pytest.mark.usefixtures("typed_here")
HINT = (
    "python -m slurm status s; python experiments.py seed=1; python -m slurm.in_job x; /bin/python -m memory"
)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an environment that is not active, without the console script."""
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "path", ["", str(ROOT)])
    return folder


def script_in(folder: Path, name: str) -> None:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


def test_in_the_checkout_they_are_as_written(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert as_typed_here(HINT) == HINT.replace("python ", f"{bin_folder}/python ", 2)
    script_in(bin_folder, "python")
    monkeypatch.setenv("PATH", str(bin_folder))
    assert as_typed_here(HINT) == HINT


def test_elsewhere_they_never_import_a_module_of_that_folder(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.py").touch()
    monkeypatch.chdir(tmp_path)
    python = "env/bin/python"
    rest = "; python -m slurm.in_job x; /bin/python -m memory"
    by_file = f"{python} {ROOT}/highwater slurm status s; {python} {ROOT}/highwater run seed=1{rest}"
    assert as_typed_here(HINT) == by_file
    script_in(bin_folder, "highwater")
    by_script = by_file.replace(f"{python} {ROOT}/highwater", f"{bin_folder}/highwater")
    assert as_typed_here(HINT) == by_script
    monkeypatch.setenv("PATH", str(bin_folder))
    assert as_typed_here("by: python -m\n  slurm").split() == ["by:", "highwater", "slurm"]


def test_a_command_is_never_broken_into_lines() -> None:
    command = f"python -m slurm resubmit {'a' * 30} --only never_started --mem x2"
    lines = wrap(f"It waits for what has ended long ago. It is started by: {command}; then look again.", 40)
    assert f"{command};" in lines
    assert all(len(line) <= 40 for line in lines if command not in line)


@pytest.mark.parametrize("path", ["", "."])
def test_a_memory_py_of_the_user_is_not_ours(tmp_path: Path, path: str) -> None:
    """`highwater memory run` starts the command in a folder that has files of our names."""
    for name in ("memory.py", "core.py"):
        (tmp_path / name).write_text("raise SystemExit(0)\n")
    for name in ("slurm", "conf", "models"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    command = [sys.executable, f"{ROOT}/highwater", "memory", "run", "--output", "mem", "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", "print('ran'); raise SystemExit(3)"],
        cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "ran\n")
    hint = done.stderr.rpartition("next: ")[2]
    again = subprocess.run(hint, shell=True, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True)
    assert again.returncode == 0
    assert (tmp_path / "mem" / "outcome.json").exists()
