"""A folder of runs where the test stands, and a Slurm that says what the test wants."""

from __future__ import annotations

import re
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

import pytest
from made_studies import FakeSlurm
from slurm_command import Shown, printed

from tests.golden_text import Golden

if TYPE_CHECKING:
    from tests.local_slurm import Cluster


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """What squeue and sacct answer to the commands."""
    made = FakeSlurm()
    for place in ("slurm.status.slurm_answers", "slurm.commands.why"):
        monkeypatch.setattr(f"{place}.ask_in_unix_time", made.ask)
    return made


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user stands; now is when `made_studies` thinks it is."""
    from made_studies import NOW_S

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HIGHWATER_RUNS_DIR", raising=False)
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    return tmp_path


@pytest.fixture
def sbatch_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sbatch --test-only` accepts every job."""
    accepted = CompletedProcess([], 0, "", "")
    monkeypatch.setattr("slurm.submit.resource_check._test_only", lambda options: accepted)


@pytest.fixture
def its_clients(slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """squeue, sacct, ... of this process ask the cluster on this machine."""
    for name, value in slurm_cluster.variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], golden: Golden) -> Shown:
    """Output of `python -m slurm ...`, pinned; numbers=False for sizes of the disk.

    Wrapped lines are joined: where they are wrapped depends on the length of the temporary folder.
    """

    def pinned(*arguments: str, numbers: bool = True) -> str:
        text = printed(capsys, *arguments)
        golden.text(re.sub(r"\n {4,}(?=\S)", " ", text), numbers=numbers)
        return text

    return pinned
