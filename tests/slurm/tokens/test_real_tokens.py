"""A set made by jobs of a real Slurm, some of them killed: the ids of a set made by one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from data_loading.pretokenizer.make_set import CONTINUES
from data_loading.tokens.token_set import open_token_set
from tests.data_loading.pretokenizer.test_shard_sets import starts_of, tokens_of
from tests.local_slurm import Cluster
from tests.slurm.tokens.conftest import ROOT, write_text

pytestmark = [pytest.mark.privileged, pytest.mark.slow, pytest.mark.timeout(900)]

TASK = "00001-of-00003"
FLAGS = ("part-*.txt", "--tokenizer", "bytes", "--tokens-per-shard", "2M", "--val-fraction", "0.1")
ASKED = (*FLAGS, "--output", "parts", "--slurm", "default", "--tasks", "3", "--json")
OPTIONS = ("slurm.mem=600MB", "slurm.time=20", "slurm.cpus_per_task=2")
HOOK = """
import os, sys
if "slurm.tokens.run_task" in sys.orig_argv and "00001-of-00003" in sys.orig_argv:
    import pathlib, signal, time
    from experiment_utils import atomic_files
    begun = pathlib.Path(__file__).with_name("begun")
    seen = 0
    def on_point(name):
        global seen
        seen += name.endswith(":noted")
        if seen == 2:
            {what}
    if not begun.exists():
        begun.touch()
        atomic_files.on_point = on_point
"""
"""Run by the first process that does the task in the middle, when it has noted its second block."""
Type = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Working directory of the user: three texts, one a task, each of some megabytes."""
    for number in range(3):
        write_text(tmp_path / f"part-{number}.txt", lines=260_000 + number)
    return tmp_path


@pytest.fixture
def type_(slurm_cluster: Cluster, home: Path) -> Type:
    """The command; returns its answer."""
    slurm_cluster.say("scancel", "--me", check=False)
    until(lambda: not slurm_cluster.say("squeue", "-h"), "an empty queue")
    setup = f'slurm.setup=["export PYTHONPATH={home}/hook"]'

    def run() -> dict[str, Any]:
        done = in_place(home, slurm_cluster, *ASKED, *OPTIONS, setup)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


def in_place(home: Path, cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "pretokenize_dataset.py"), *arguments],
        cwd=home, env={**os.environ, **cluster.variables}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def hook(home: Path, what: str) -> None:
    (home / "hook").mkdir()
    (home / "hook" / "sitecustomize.py").write_text(HOOK.format(what=what))


def until(done: Callable[[], Any], what: str, patience_s: float = 240.0) -> None:
    deadline = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.3)


def log_of(home: Path, task: str) -> str:
    path = home / ".parts.slurm" / task / "log.txt"
    return path.read_text() if path.exists() else ""


def until_made(home: Path, cluster: Cluster) -> None:
    def is_over() -> bool:
        return (home / "parts" / "manifest.json").exists() or not cluster.say("squeue", "-h")

    until(is_over, "the end of all jobs")
    until(lambda: not cluster.say("squeue", "-h"), "an empty queue")
    logs = "\n".join(log_of(home, name) for name in ("00000-of-00003", TASK, "00002-of-00003"))
    assert (home / "parts" / "manifest.json").exists(), logs


def assert_as_of_one_process(home: Path, cluster: Cluster) -> None:
    alone = in_place(home, cluster, *FLAGS, "--output", "alone", "--workers", "0")
    assert alone.returncode == 0, alone.stderr
    found, expected = (open_token_set(home / name) for name in ("parts", "alone"))
    assert tokens_of(found) == tokens_of(expected)
    assert starts_of(found) == starts_of(expected)
    assert found.manifest is not None
    assert expected.manifest is not None
    for name in ("fingerprint", "tokens", "documents", "sources", "val", "options", "tokenizer"):
        assert found.manifest[name] == expected.manifest[name]
    assert not (home / ".parts.tasks").exists()


def test_a_task_that_is_killed_resumes_when_it_is_submitted_again(
    type_: Type, home: Path, slurm_cluster: Cluster
) -> None:
    hook(home, "os.kill(os.getpid(), signal.SIGKILL)")
    first = type_()
    assert first["submitted"] == ["00000-of-00003", TASK, "00002-of-00003"]
    until(lambda: not slurm_cluster.say("squeue", "-h"), "an empty queue")
    assert not (home / "parts").exists()
    again = type_()
    assert (again["done"], again["submitted"]) == ([0, 2], [TASK])
    until_made(home, slurm_cluster)
    assert CONTINUES in log_of(home, TASK)
    assert_as_of_one_process(home, slurm_cluster)
    assert type_()["up_to_date"]


def test_a_task_whose_time_is_up_is_put_back_into_the_queue(
    type_: Type, home: Path, slurm_cluster: Cluster
) -> None:
    hook(home, "time.sleep(3600)")
    job = type_()["jobs"][0]["job"]
    until(lambda: len(list((home / ".parts.tasks").glob(f".{TASK}.partial/shard_*"))) > 2, "some tokens")
    slurm_cluster.say("scancel", "--signal=USR2", f"{job}_1")
    until_made(home, slurm_cluster)
    log = log_of(home, TASK)
    assert "start 2" in log
    assert CONTINUES in log
    assert_as_of_one_process(home, slurm_cluster)


@pytest.fixture
def both_nodes(slurm_cluster: Cluster) -> Iterator[None]:
    """Are there again afterwards, without a job."""
    yield
    slurm_cluster.say("scancel", "--me", check=False)
    slurm_cluster.script("start")


@pytest.mark.parametrize("lost", ["kill-node", "kill-slurmd"])
@pytest.mark.usefixtures("both_nodes")
def test_a_node_that_is_lost_or_only_thought_so(
    type_: Type, home: Path, slurm_cluster: Cluster, lost: str
) -> None:
    """Slurm starts the task again elsewhere: it resumes what died with its node, and waits for what lives on
    since slurmd alone has died."""
    hook(home, "while not begun.with_name('go').exists(): time.sleep(0.2)")
    job = type_()["jobs"][0]["job"]
    until(lambda: len(list((home / ".parts.tasks").glob(f".{TASK}.partial/shard_*"))) > 2, "some tokens")
    slurm_cluster.script(lost, slurm_cluster.row(f"{job}_1", "%N"))
    until(lambda: "start 2" in log_of(home, TASK), "the second start")
    (home / "hook" / "go").touch()
    until_made(home, slurm_cluster)
    assert (CONTINUES in log_of(home, TASK)) == (lost == "kill-node")
    assert_as_of_one_process(home, slurm_cluster)
