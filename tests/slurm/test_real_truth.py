"""What a real Slurm says of jobs in every state, and what is left where its daemons are silent."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memory.accounting.sacct import Answer
from slurm.records.submissions import SLURM, Array, Place, Submission, add_place
from slurm.status import study_states
from slurm.status.slurm_answers import ask_in_unix_time
from tests.golden_text import Golden
from tests.local_slurm import Cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.privileged,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("its_clients"),
]

GROW = f"srun {sys.executable} -c 'x = [bytes(1 << 20) * 9 for _ in range(99)]; y = x[0] * 60'"
NO_MODULE = "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1"
CASES: dict[str, tuple[list[str], str]] = {
    "never": ([], NO_MODULE),
    "grows": (["--mem=60"], GROW),
    "held": (["--hold"], "true"),
    "depends": (["--dependency=afterok:{never}"], "true"),
    "dropped": (["--hold"], "true"),
    "runs": ([], "sleep 3600"),
    "array": (["--array=0-1%1"], "sleep 3600"),
    "limit": (["--time=0:10"], "sleep 3600"),
}
PATIENCE_S = 150.0


@pytest.fixture(scope="module")
def study(slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run for each case, `array` with two, as if a launcher had submitted them."""
    folder = tmp_path_factory.mktemp("entry") / "sweep"
    arrays, jobs = [], {}
    logs = folder / ".submissions" / "1" / "submitit"
    logs.mkdir(parents=True)
    for number, (name, (options, script)) in enumerate(CASES.items()):
        title = f"entry-{os.getpid()}-{name}"
        jobs[name] = slurm_cluster.say(
            "sbatch", "--parsable", f"--job-name={title}", f"--output={logs}/%j_0_log.out",
            f"--error={logs}/%j_0_log.err", *(one.format(**jobs) for one in options), f"--wrap={script}",
        )  # fmt: skip
        runs = [f"{name}{task}" for task in (0, 1)] if name == "array" else [name]
        arrays.append(Array(number, title, [[run] for run in runs], job_id=jobs[name]))
        for task, run in enumerate(runs):
            (folder / run).mkdir()
            (folder / run / "config.yaml").write_text("seed: 0\n")
            add_place(folder / run, Place("1", number, task))
    Submission("1", folder, SLURM, time.time(), "root", os.uname().nodename, str(folder), "-", arrays).write()
    slurm_cluster.say("scancel", jobs["dropped"])
    yield folder
    slurm_cluster.say("scancel", *jobs.values(), check=False)


def impatient_of(command: str) -> Callable[[list[str], float], Answer]:
    """Asks `command` for two seconds, and all others as long as the room does."""

    def ask(asked: list[str], timeout_s: float) -> Answer:
        return ask_in_unix_time(asked, min(timeout_s, 2.0) if asked[0] == command else timeout_s)

    return ask


def told(
    study: Path, ask: Callable[[list[str], float], Answer] = ask_in_unix_time
) -> dict[str, tuple[str, str]]:
    return {entry.name: (entry.state, entry.reason or "") for entry in study_states(study, ask=ask)}


def states(found: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {run: state for run, (state, _) in found.items()}


SOON = {
    "never": "never_started", "grows": "oom", "held": "queued", "depends": "blocked", "dropped": "cancelled",
    "runs": "running", "array0": "running", "array1": "queued", "limit": "timeout",
}  # fmt: skip


@pytest.fixture
def settled(study: Path, its_clients: None) -> Path:
    """The study when all that is to end has ended."""
    until_s = time.monotonic() + PATIENCE_S
    while states(found := told(study)) != SOON:
        assert time.monotonic() < until_s, found
        time.sleep(1)
    return study


def test_every_state(settled: Path, golden: Golden) -> None:
    found = told(settled)
    reasons = {run: reason for run, (_, reason) in found.items()}
    assert "ModuleNotFoundError" in reasons["never"]
    assert ".0 (on n" in reasons["grows"]
    assert "root" in reasons["dropped"]
    assert "slurm.parallel" in reasons["array1"]


@contextmanager
def silent(where: Cluster, daemon: str) -> Iterator[None]:
    """Stopped, so that it takes calls and does not answer."""
    pid = int((where.folder / "run" / f"{daemon}.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_sacct_is_silent(settled: Path, slurm_cluster: Cluster, golden: Golden) -> None:
    """An OOM kill of a step without a supervisor is then known to nobody."""
    with silent(slurm_cluster, "slurmdbd"):
        found = told(settled, impatient_of("sacct"))
        entry = study_states(settled, ask=impatient_of("sacct"))[0]
    assert states(found) == SOON | {"grows": "never_started"}
    assert "sacct" in entry.notes[0]


@contextmanager
def down(where: Cluster, daemon: str) -> Iterator[None]:
    """Ended, so that nobody takes calls."""
    process = Path("/proc") / (where.folder / "run" / f"{daemon}.pid").read_text().strip()
    os.kill(int(process.name), signal.SIGTERM)
    try:
        until_s = time.monotonic() + PATIENCE_S
        while process.exists():
            assert time.monotonic() < until_s, f"{daemon} does not end"
            time.sleep(0.1)
        yield
    finally:
        where.script("start")


def test_sacct_is_down(settled: Path, slurm_cluster: Cluster) -> None:
    with down(slurm_cluster, "slurmdbd"):
        entries = study_states(settled)
    assert {entry.name: entry.state for entry in entries} == SOON | {"grows": "never_started"}
    assert "sacct" in entries[0].notes[0]


def test_slurmctld_is_silent(settled: Path, slurm_cluster: Cluster) -> None:
    with silent(slurm_cluster, "slurmctld"):
        found = told(settled, impatient_of("squeue"))
    blocked = found["depends"][0]  # sacct tells no reasons of jobs that wait
    assert states(found) == SOON | {"depends": blocked}
    assert blocked in ("queued", "blocked")
