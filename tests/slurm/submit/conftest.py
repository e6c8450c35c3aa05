"""A Slurm that answers as the real one, and runs nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from composed_once import compose_once
from fake_slurm import FakeSlurm
from tiny_run import write_text

import slurm.queue.find_jobs
import slurm.submit.resubmit_runs
import slurm.submit.submit_runs
import slurm.submit.watch_runs
from experiment_utils import atomic_files
from experiments import main
from slurm.queue.arrays import ToSend
from slurm.queue.two_phase import intend
from slurm.records.submissions import LOCAL, Array
from slurm.records.submitter_liveness import this_process

ROOT = Path(__file__).resolve().parents[3]
Type = Callable[..., int]
ASKED = (
    "dataset=text", "dataset.path=my.txt", "tokenizer=bytes", "training.max_steps=2", "model.d_model=16",
    "slurm.mem=1GB", "slurm.time=5",
)  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Its commands are first on PATH; what is submitted would run this checkout."""
    found = FakeSlurm(tmp_path / "cluster")
    monkeypatch.setenv("PATH", found.path)
    monkeypatch.setattr(slurm.submit.submit_runs, "_snapshot", lambda runs_dir, copies: ROOT)
    monkeypatch.setattr(slurm.submit.resubmit_runs, "copy_of", lambda submission: ROOT)
    monkeypatch.setattr(slurm.queue.find_jobs, "SETTLE_S", 0.0)
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a text, where the test stands."""
    folder = tmp_path / "home"
    folder.mkdir()
    write_text(folder / "my.txt")
    monkeypatch.chdir(folder)
    return folder


def in_foreground(folders: Sequence[Path], command: str) -> None:
    """Write a submission of these runs, as a command does that is about to work through them."""
    for folder in folders:
        folder.mkdir(exist_ok=True)
    array = Array(0, "local", [[folder.name] for folder in folders], job_id=this_process())
    of_command = {"launcher": LOCAL, "command": command, "snapshot": None}
    intend("local", folders[0].parent, [ToSend(array, ())], time.time(), **of_command)


@pytest.fixture
def type_(
    place: Path, cluster: FakeSlurm, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Type:
    """`python experiments.py ...` of a tiny run on Slurm, in this process; returns its exit status."""
    if "through_hydra" not in request.fixturenames:
        compose_once(monkeypatch)

    def run(*arguments: str) -> int:
        chosen = (
            [] if any(one.startswith("hydra/launcher=") for one in arguments) else ["hydra/launcher=slurm"]
        )
        return main([*ASKED, *chosen, *arguments])

    return run


@pytest.fixture
def through_hydra() -> None:
    """What is typed is composed and handed over by Hydra, as in a process of its own."""


def end(cluster: FakeSlurm, place: Path, states: dict[int, str] | None = None) -> None:
    """All queued runs end: as done, or by their seed as something else."""
    import yaml

    for path in place.glob("runs/*/*/config.yaml"):
        config = yaml.safe_load(path.read_text())
        state = (states or {}).get(config["seed"], "done")
        loss = 2.0 + config["optimizer"]["lr"]
        atomic_files.write_json(
            path.parent / "run.json", {"results": {"val_loss": loss if state == "done" else None}}
        )
        atomic_files.write_json(path.parent / "status.json", {"state": state, "reason": "luckless"})
    for job in cluster.jobs:
        cluster.set_state(job["id"], "COMPLETED")


@pytest.fixture
def cluster_that_runs(
    cluster: FakeSlurm, place: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeSlurm]:
    """What is queued ends a moment later; seed 1 fails."""
    monkeypatch.setattr(slurm.submit.watch_runs, "POLL_S", 0.05)
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.1):
            if cluster.pending:
                end(cluster, place, {1: "failed"})

    thread = threading.Thread(target=run)
    thread.start()
    yield cluster
    stop.set()
    thread.join()


@pytest.fixture(autouse=True)
def _signals_as_before() -> object:
    import signal

    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


FOREIGN = '''
from hydra.plugins.sweeper import Sweeper
from hydra.core.plugins import Plugins

class Descent(Sweeper):
    """Two batches: the second one follows from the results of the first."""

    def __init__(self, rates):
        self.rates = rates

    def setup(self, *, hydra_context, task_function, config):
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config)

    def sweep(self, arguments):
        fixed = [a for a in arguments if not a.startswith("optimizer.lr=")]
        first = self.launcher.launch([[*fixed, f"optimizer.lr={r}"] for r in self.rates], initial_job_idx=0)
        losses = {}
        for rate, job in zip(self.rates, first):
            try:
                losses[rate] = job.return_value
            except Exception as error:
                losses[rate] = type(error).__name__
        best = min((r for r in losses if isinstance(losses[r], float)), key=losses.get)
        rates = [best / 2, self.rates[-1]]
        second = self.launcher.launch([[*fixed, f"optimizer.lr={r}"] for r in rates], initial_job_idx=3)
        open("losses.txt", "w").write(repr((losses, second[0].return_value)))
'''


@pytest.fixture
def foreign_sweeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A sweeper that another package brings, as Optuna's does."""
    from hydra.core.plugins import Plugins
    from hydra.core.singleton import Singleton

    package = tmp_path / "site" / "hydra_plugins" / "descent"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "descent.py").write_text(FOREIGN)
    conf = tmp_path / "their_conf" / "hydra" / "sweeper"
    conf.mkdir(parents=True)
    (conf / "descent.yaml").write_text(
        "_target_: hydra_plugins.descent.descent.Descent\nrates: [0.5, 0.25, 1.0]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    Singleton._instances.pop(Plugins, None)
    yield tmp_path / "their_conf"
    Singleton._instances.pop(Plugins, None)
