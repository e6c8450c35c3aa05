"""Three texts, a Slurm that answers as the real one and runs nothing, and what is typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm

import pretokenize_dataset
import slurm.queue.find_jobs
import slurm.tokens.submit_tasks

ROOT = Path(__file__).resolve().parents[3]
FLAGS = ("--tokenizer", "bytes", "--output", "parts", "--tokens-per-shard", "40K", "--workers", "0")
TEXTS = ("part-0.txt", "part-1.txt", "part-2.txt")
ASKED = (*TEXTS, *FLAGS, "--slurm", "default", "slurm.mem=600MB")
Type = Callable[..., int]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Its commands are first on PATH; what is submitted would run this checkout."""
    found = FakeSlurm(tmp_path / "cluster")
    monkeypatch.setenv("PATH", found.path)
    monkeypatch.setattr(slurm.tokens.submit_tasks, "_snapshot", lambda folder: ROOT)
    monkeypatch.setattr(slurm.queue.find_jobs, "SETTLE_S", 0.0)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory of the user, with three texts of 70 KB each."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in TEXTS:
        write_text(folder / name, lines=1300)
    monkeypatch.chdir(folder)
    return folder


def write_text(path: Path, lines: int = 4000) -> None:
    path.write_text("".join(f"{n} times the water rose, and the mark stayed high.\n" for n in range(lines)))


@pytest.fixture
def type_(home: Path, cluster: FakeSlurm) -> Type:
    """`python pretokenize_dataset.py part-0.txt ... --slurm default` in this process; its exit status."""

    def run(*arguments: str, tasks: int = 3) -> int:
        return pretokenize_dataset.main([*ASKED, "--tasks", str(tasks), *arguments])

    return run


@pytest.fixture
def told(type_: Type, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """The same with --json; returns the answer."""

    def run(*arguments: str, **options: Any) -> dict[str, Any]:
        capsys.readouterr()
        status = type_(*arguments, "--json", **options)
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return {**answer, "status": status}

    return run


def do_task(task: int, tasks: int = 3, *more: str) -> None:
    """Do what a job does, by hand."""
    arguments = [*TEXTS, *FLAGS, *more, "--block-range", f"{task}/{tasks}"]
    assert pretokenize_dataset.main(arguments) == 0
