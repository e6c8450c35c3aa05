"""Sweeps in the foreground: through Hydra, each run in a process of its own."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from composed_once import kept_composer

import slurm.submit.local_process
from conf.between_keys.rules import RULES
from conf.command_line.request import read_request
from conf.composing.compose import Composer
from experiment_utils import lock_file
from experiment_utils.errors import UserError
from memory.measure.process import started_at
from slurm.records.submissions import LOCAL, submissions
from slurm.status import study_states
from slurm.submit.submit_runs import SubmittedRuns
from slurm.submit.sweep import submit_sweep
from tests.golden_text import Golden

pytestmark = pytest.mark.usefixtures("quick_start")

Sweep = Callable[..., SubmittedRuns]
DATA = (
    "dataset=text", "dataset.path=my.txt", "tokenizer=bytes", "training.max_steps=2",
    "memory.supervise=false",
)  # fmt: skip


@pytest.fixture
def sweep(place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Sweep:
    """Run a sweep of stand-ins through Hydra, as the entry does."""
    caplog.set_level(logging.INFO, "slurm")
    monkeypatch.setattr("slurm.launch.processes.CORE", [str(Path(__file__).with_name("local_stand_in.py"))])

    def run(*arguments: str, config_dir: Path | None = None) -> SubmittedRuns:
        composer = Composer(config_dir) if config_dir else kept_composer()
        request = read_request([*DATA, *arguments], composer, multirun=True)
        return submit_sweep(request, composer, RULES)

    return run


def states(runs: SubmittedRuns) -> list[str]:
    return [outcome.state for outcome in runs.outcomes.values()]


def events(place: Path) -> list[str]:
    """`SEED begins` and `SEED ends`, in their order."""
    lines = (place / "runs" / "default" / "order.txt").read_text().splitlines()
    return [" ".join(line.split()[:2]) for line in lines]


def test_runs_one_after_another_in_a_submission(
    sweep: Sweep, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = {path.name for path in place.iterdir()}
    runs = sweep("seed=0,1,2")
    assert states(runs) == ["done"] * 3
    assert [round(o.val_loss or 0, 4) for o in runs.outcomes.values()] == [2.003, 3.003, 4.003]
    assert events(place) == [f"{seed} {event}" for seed in (0, 1, 2) for event in ("begins", "ends")]
    (first,) = (line for line in caplog.messages if line.startswith("[1/3] done 32d-lr0.003-seed0-"))
    assert "val 2.0030" in first
    study = place / "runs" / "default"
    (submission,) = submissions(study)
    assert (submission.launcher, submission.snapshot) == (LOCAL, None)
    assert submission.arrays[0].tasks == [[folder.name] for folder in runs.folders]
    assert yaml.safe_load((runs.folders[0] / "config.yaml").read_text())["training"]["max_steps"] == 2
    of_the_set = {"my.npy", "my.npy.json", "my.npy.checked.json", "my.docs.npy", "my.tokenizer"}
    assert {path.name for path in place.iterdir()} - before <= {"runs", *of_the_set}
    assert {path.name for path in study.iterdir() if path.is_file()} == {"order.txt"}
    assert states(sweep("seed=0,1,2,3")) == ["done"] * 4
    assert events(place)[6:] == ["3 begins", "3 ends"], "only what is missing"


def test_runs_in_parallel(sweep: Sweep, place: Path) -> None:
    """Each ends only when all have begun."""
    assert states(sweep("seed=0,1,2,3", "notes=meet", "hydra.launcher.jobs=4")) == ["done"] * 4
    assert {event.split()[1] for event in events(place)[:4]} == {"begins"}


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("notes", "state", "reason"),
    [
        ("fail", "failed", "diverged"),
        ("crash", "never_started", "the last words"),
        ("kill", "failed", "killed by SIGKILL"),
    ],
)
def test_one_failure_does_not_stop_the_rest(
    sweep: Sweep, caplog: pytest.LogCaptureFixture, notes: str, state: str, reason: str, jobs: int
) -> None:
    runs = sweep("seed=0,1,2", f"notes={notes}", f"hydra.launcher.jobs={jobs}")
    assert sorted(states(runs)) == sorted(["done", "done", state])
    failed = runs.outcomes[runs.folders[1]]
    assert (failed.exit_code, failed.state, failed.val_loss) == (1, state, None)
    if jobs > 1 or notes != "crash":  # else its stderr is the terminal's
        assert failed.reason == reason
    assert f"] {state} 32d-lr0.003-seed1-" in caplog.text


def test_equal_runs_run_once(
    sweep: Sweep, place: Path, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    runs = sweep("optimizer.lr=1e-3,0.001", "seed=0,0")
    (folder,) = runs.outcomes
    assert events(place) == ["0 begins", "0 ends"]
    (message,) = (line for line in caplog.messages if line.startswith(folder.name))
    golden.text(message.replace(folder.name, "RUN"))


def test_a_run_of_another_process_is_left_and_the_rest_runs(
    sweep: Sweep, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that holds its lock, and one that has it in its submission."""
    first = f"{os.uname().nodename}:1:{started_at(1)}"
    monkeypatch.setattr(slurm.submit.local_process, "this_process", lambda: first)
    runs = sweep("seed=0,1,2", "notes=fail")
    monkeypatch.undo()
    monkeypatch.chdir(place)
    monkeypatch.setattr("slurm.launch.processes.CORE", [str(Path(__file__).with_name("local_stand_in.py"))])
    held, waits, done = runs.folders
    (held / "status.json").unlink()
    (waits / "status.json").unlink()
    with lock_file.lock(held / "run.lock", "the run folder"):
        runs = sweep("seed=0,1,2,3", "notes=fail")
    assert [runs.outcomes[folder].state for folder in (held, waits, done)] == ["running", "queued", "done"]
    assert states(runs).count("done") == 2


def test_a_damaged_run_folder_does_not_stop_the_rest(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = f"{os.uname().nodename}:{2**22 + 1}:1"
    with monkeypatch.context() as of_the_first:
        of_the_first.setattr(slurm.submit.local_process, "this_process", lambda: gone)
        damaged = sweep("seed=0,1", "notes=crash").folders[1]
    (damaged / "run.json").write_text("{")
    (damaged / "status.json").write_text("")
    assert sorted(states(sweep("seed=0,1,2", "notes=crash"))) == ["done", "done", "never_started"]


def test_all_that_is_wrong_with_the_data_is_reported_before_anything_starts(
    sweep: Sweep, place: Path
) -> None:
    with pytest.raises(UserError) as raised:
        sweep("training.max_steps=2,100000000", "training.seq_len=16,100000")
    assert {problem.where for problem in raised.value.problems} == {"training.max_steps", "training.seq_len"}
    assert not (place / "runs").exists()


def when_up(place: Path, runs: int, act: Callable[[], None]) -> threading.Thread:
    """Do this when so many runs have begun to wait."""

    def wait() -> None:
        deadline = time.monotonic() + 30
        while len(list(place.glob("runs/*/*/up"))) < runs and time.monotonic() < deadline:
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_signal_stops_the_running_ones_and_starts_no_more(
    sweep: Sweep, place: Path, number: int, code: int, jobs: int
) -> None:
    thread = when_up(place, jobs, lambda: os.kill(os.getpid(), number))
    runs = sweep("seed=0,1,2,3", "notes=wait", f"hydra.launcher.jobs={jobs}")
    thread.join()
    assert runs.stopped_with == code
    assert [outcome.exit_code for outcome in runs.outcomes.values()] == [code] * jobs
    assert [event.split()[1] for event in events(place)].count("begins") == jobs
    left = [entry.state for entry in study_states(place / "runs" / "default")]
    assert left == ["cancelled"] * 4


def test_a_sweep_that_is_killed_leaves_runs_that_were_not_started(sweep: Sweep, place: Path) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            sweep("seed=0,1,2", "notes=wait", "hydra.launcher.jobs=1")
        finally:
            os._exit(1)
    when_up(place, 1, lambda: None).join()
    assert [entry.state for entry in study_states(place / "runs" / "default")] == ["queued"] * 3
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert [entry.state for entry in study_states(place / "runs" / "default")] == ["never_started"] * 3


@pytest.mark.parametrize("notes", ["", pytest.param("cliff", marks=pytest.mark.slow)])
def test_results_reach_another_sweeper(foreign_sweeper: Path, sweep: Sweep, place: Path, notes: str) -> None:
    """A run that failed is an exception to it, and is not run again."""
    asked = ("hydra/sweeper=descent", "optimizer.lr=interval(1e-3,1)", f"notes='{notes}'")
    runs = sweep(*asked, config_dir=foreign_sweeper)
    losses, last = eval((place / "losses.txt").read_text())
    assert losses == {0.5: 2.5, 0.25: 2.25, 1.0: "RunFailed" if notes else 3.0}
    assert last == 2.125
    assert sorted(states(runs)) == ["done"] * 3 + ["failed" if notes else "done"]
    assert runs.request.is_open
    assert events(place).count("0 begins") == 4


def test_what_another_sweeper_asks_for_is_checked(foreign_sweeper: Path, sweep: Sweep, place: Path) -> None:
    file = foreign_sweeper / "hydra" / "sweeper" / "descent.yaml"
    file.write_text(file.read_text().replace("1.0", "-1.0"))
    with pytest.raises(UserError) as error:
        sweep("hydra/sweeper=descent", config_dir=foreign_sweeper)
    assert {problem.where for problem in error.value.problems} == {"optimizer.lr"}
    assert not (place / "runs").exists()


@pytest.mark.slow
def test_hydras_own_sweeper_and_launcher_work_too(sweep: Sweep, place: Path) -> None:
    assert states(sweep("seed=0,2", "hydra/sweeper=basic")) == ["done", "done"]
    assert states(sweep("seed=3,4", "hydra/launcher=basic")) == ["done", "done"]
    assert sorted(path.name for path in place.iterdir() if path.suffix == ".yaml") == []
