"""Sweeps on this machine: through Hydra, in processes of their own, told truthfully."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from composed_once import kept_composer
from tiny_run import write_text

import slurm.submit.sweep
from conf.between_keys.rules import RULES
from conf.command_line.request import read_request
from conf.composing.compose import Composer
from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError
from slurm.launch.local_runs import Interrupted, LocalRuns, RunFailed, run_one
from slurm.records.start_records import Start, note_start
from slurm.submit.sweep import run_sweep
from tests.golden_text import Golden
from training.attempt.run_files import read_status

pytestmark = pytest.mark.usefixtures("quick_start")

STAND_IN = """
import json, os, pathlib, signal, sys, time, yaml
folder = pathlib.Path(sys.argv[1])
config = yaml.safe_load((folder / "config.yaml").read_text())
def note(event):
    with open(folder.parent / "order.txt", "a") as file:
        file.write(f"{config['seed']} {event}\\n")
note("begins")
def leave(state, code, reason=None, val_loss=None):
    note("ends")
    (folder / "status.json").write_text(json.dumps({"state": state, "reason": reason, "step": 1}))
    (folder / "run.json").write_text(json.dumps({"results": {"val_loss": val_loss} if val_loss else None}))
    sys.exit(code)
todo = config["notes"] if config["seed"] == 1 or config["notes"] in ("wait", "meet") else ""
if todo == "fail":
    leave("failed", 1, "diverged")
if todo == "crash":
    sys.exit("the last words")
if todo == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if todo == "bus":
    os.kill(os.getpid(), signal.SIGBUS)
if todo == "wait":
    signal.signal(signal.SIGINT, lambda *_: leave("cancelled", 130, "interrupted (Ctrl-C)"))
    signal.signal(signal.SIGTERM, lambda *_: leave("cancelled", 1, "stopped by SIGTERM"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
    (folder / "up").touch()
    time.sleep(60)
if todo == "meet":
    (folder / "up").touch()
    while len(list(folder.parent.glob("*/up"))) < 4:
        time.sleep(0.01)
time.sleep(config["optimizer"]["eps"])
leave("done", 0, val_loss=2.0 + config["seed"] + config["optimizer"]["lr"])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a text, where the test stands."""
    write_text(tmp_path / "my.txt")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    return tmp_path


@pytest.fixture(autouse=True)
def _told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "slurm")


def stand_in(folder: Path, *, quiet: bool) -> list[str]:
    return [sys.executable, "stand_in.py", str(folder)]


DATA = ("dataset=text", "dataset.path=my.txt", "tokenizer=bytes", "training.max_steps=2")


@pytest.fixture(scope="module")
def of_the_checkout() -> Composer:
    return kept_composer()


@pytest.fixture
def sweep(
    place: Path, of_the_checkout: Composer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., LocalRuns]:
    """Run a sweep of stand-ins through Hydra, as the entry does."""
    made = LocalRuns

    def stand_in_runs(*arguments: Any, **options: Any) -> LocalRuns:
        return made(*arguments, **options, command=stand_in)

    monkeypatch.setattr(slurm.submit.sweep, "LocalRuns", stand_in_runs)

    def run(*arguments: str, config_dir: Path | None = None) -> LocalRuns:
        composer = Composer(config_dir) if config_dir else of_the_checkout
        request = read_request([*DATA, *arguments], composer, multirun=True)
        return run_sweep(request, composer, RULES)

    return run


def states(runs: LocalRuns) -> list[str]:
    return [outcome.state for outcome in runs.outcomes.values()]


def events(place: Path) -> list[str]:
    """`SEED begins` and `SEED ends`, in their order."""
    return (place / "runs" / "default" / "order.txt").read_text().splitlines()


def begun(place: Path) -> int:
    return sum(event.endswith(" begins") for event in events(place))


def test_runs_one_after_another(
    sweep: Callable[..., LocalRuns], place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = sweep("seed=0,1,2", "optimizer.eps=0.1")
    assert states(runs) == ["done"] * 3
    assert [round(o.val_loss or 0, 4) for o in runs.outcomes.values()] == [2.003, 3.003, 4.003]
    assert events(place) == [f"{seed} {event}" for seed in (0, 1, 2) for event in ("begins", "ends")]
    lines = [record.message for record in caplog.records if record.name == "slurm"]
    first = next(line for line in lines if line.startswith("[1/3] done 32d-lr0.003-seed0-"))
    assert "val 2.0030" in first
    assert [line for line in lines if line.startswith("[3/3] done")]
    for folder in runs.outcomes:
        assert folder.parent == Path("runs/default")
        assert yaml.safe_load((folder / "config.yaml").read_text())["training"]["max_steps"] == 2


def test_nothing_but_run_folders_and_data_is_left(sweep: Callable[..., LocalRuns], place: Path) -> None:
    before = {path.name for path in place.iterdir()}
    sweep("seed=0,1")
    added = {path.name for path in place.iterdir()} - before
    of_the_set = {"my.npy", "my.npy.json", "my.npy.checked.json", "my.docs.npy", "my.tokenizer"}
    assert added <= {"runs", *of_the_set}
    assert {path.name for path in (place / "runs" / "default").iterdir() if path.is_file()} == {"order.txt"}


def test_side_by_side(sweep: Callable[..., LocalRuns], place: Path) -> None:
    """Each ends only when all have begun."""
    runs = sweep("seed=0,1,2,3", "notes=meet", "hydra.launcher.jobs=4")
    assert states(runs) == ["done"] * 4
    assert {event.split()[1] for event in events(place)[:4]} == {"begins"}


def test_one_failure_does_not_stop_the_rest(
    sweep: Callable[..., LocalRuns], caplog: pytest.LogCaptureFixture
) -> None:
    runs = sweep("seed=0,1,2", "notes=fail")
    assert states(runs) == ["done", "failed", "done"]
    failed = list(runs.outcomes.values())[1]
    assert (failed.exit_code, failed.reason, failed.val_loss) == (1, "diverged", None)
    assert "[2/3] failed 32d-lr0.003-seed1-" in caplog.text


@pytest.mark.parametrize(
    ("notes", "state", "reason"),
    [("crash", "never_started", "last words"), ("kill", "failed", "SIGKILL"), ("bus", "failed", "SIGBUS")],
)
def test_a_run_that_says_nothing_more(
    sweep: Callable[..., LocalRuns], notes: str, state: str, reason: str, golden: Golden
) -> None:
    runs = sweep("seed=0,1", f"notes={notes}", "hydra.launcher.jobs=2", "memory.supervise=false")
    assert sorted(states(runs)) == ["done", state]
    (failed,) = (outcome for outcome in runs.outcomes.values() if outcome.state == state)
    assert reason in str(failed.reason)
    golden.text(str(failed.reason))


def test_equal_runs_run_once(
    sweep: Callable[..., LocalRuns], place: Path, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    runs = sweep("optimizer.lr=1e-3,0.001", "seed=0,0")
    assert len(runs.outcomes) == 1
    assert begun(place) == 1
    (folder,) = runs.outcomes
    (message,) = (line for line in caplog.messages if line.startswith(folder.name))
    golden.text(message.replace(folder.name, "RUN"))


def test_a_run_that_another_process_holds_is_told_and_the_rest_runs(
    sweep: Callable[..., LocalRuns], golden: Golden
) -> None:
    first = sweep("seed=0,1")
    folder = next(iter(first.outcomes))
    (folder / "status.json").unlink()
    with lock_file.lock(folder / "run.lock", "the run folder"):
        runs = sweep("seed=0,1")
    assert sorted(states(runs)) == ["done", "failed"]
    assert str(os.getpid()) in str(runs.outcomes[folder].reason)
    golden.text(str(runs.outcomes[folder].reason).replace(folder.name, "RUN"), numbers=False)


def test_a_run_that_was_killed_on_a_node_of_the_cluster_goes_on_here(place: Path) -> None:
    (run,) = read_request([*DATA, "seed=1", "notes=fail"], kept_composer(), multirun=False).runs
    folder = run_one(run.config, command=stand_in).folder
    holder = {"host": "n7", "pid": 5, "started_at": 6, "since": "then", "job_id": "8"}
    atomic_files.write_json(folder / "run.lock", holder)
    with pytest.raises(lock_file.LockHeld):
        run_one(run.config, command=stand_in)
    note_start(folder, Start("7_1", "8", 0, "n7", 4, 1.0, 1, 0, 0, 2.0, end="ended", state="oom"))
    run_one(run.config, command=stand_in)
    assert not (folder / "run.lock").exists()


def test_what_an_earlier_attempt_said_is_not_told_of_a_later_one(place: Path) -> None:
    (run,) = read_request([*DATA, "seed=1", "notes=fail"], kept_composer(), multirun=False).runs
    folder = run_one(run.config, command=stand_in).folder
    (place / "stand_in.py").write_text("import sys; sys.exit('damaged')")
    outcome = run_one(run.config, command=stand_in, quiet=True)
    assert (outcome.folder, outcome.state, outcome.reason) == (folder, "never_started", "damaged")


def test_a_damaged_run_folder_does_not_stop_the_rest(sweep: Callable[..., LocalRuns], place: Path) -> None:
    first = sweep("seed=0,1", "notes=crash")
    (folder,) = (folder for folder in first.outcomes if "seed1" in folder.name)
    (folder / "run.json").write_text("{")
    (folder / "status.json").write_text("")
    assert states(sweep("seed=0,1,2", "notes=crash")) == ["done", "never_started", "done"]


def test_all_that_is_wrong_with_the_data_is_told_before_anything_starts(
    sweep: Callable[..., LocalRuns], place: Path
) -> None:
    with pytest.raises(UserError) as raised:
        sweep("training.max_steps=2,100000000", "training.seq_len=16,100000")
    told = "\n".join(str(problem) for problem in raised.value.problems)
    assert "training.max_steps" in told
    assert "training.seq_len" in told
    assert not (place / "runs").exists()


def wait_then_signal(place: Path, number: int, running: int) -> threading.Thread:
    def send() -> None:
        deadline = time.monotonic() + 30
        while len(list(place.glob("runs/*/*/up"))) < running and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_signal_stops_the_running_ones_and_starts_no_more(
    sweep: Callable[..., LocalRuns], place: Path, number: int, code: int, jobs: int
) -> None:
    thread = wait_then_signal(place, number, running=jobs)
    runs = sweep("seed=0,1,2,3", "notes=wait", f"hydra.launcher.jobs={jobs}")
    thread.join()
    assert runs.interrupted is not None
    assert runs.interrupted.exit_code == code
    assert len(runs.outcomes) == jobs
    assert begun(place) == jobs
    assert {outcome.exit_code for outcome in runs.outcomes.values()} == {code}


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
        second = self.launcher.launch([[*fixed, f"optimizer.lr={best / 2}"]], initial_job_idx=len(first))
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


def test_results_reach_another_sweeper(
    foreign_sweeper: Path, sweep: Callable[..., LocalRuns], place: Path
) -> None:
    runs = sweep("hydra/sweeper=descent", "optimizer.lr=interval(1e-3,1)", config_dir=foreign_sweeper)
    losses, last = eval((place / "losses.txt").read_text())
    assert {rate: round(loss, 6) for rate, loss in losses.items()} == {0.5: 2.5, 0.25: 2.25, 1.0: 3.0}
    assert round(last, 6) == 2.125
    assert len(runs.outcomes) == 4
    assert runs.request.is_open


@pytest.mark.slow
def test_a_failed_run_is_an_exception_to_another_sweeper(
    foreign_sweeper: Path, sweep: Callable[..., LocalRuns], place: Path
) -> None:
    (place / "stand_in.py").write_text(
        STAND_IN.replace('config["seed"] == 1', 'config["optimizer"]["lr"] == 1.0')
    )
    runs = sweep("hydra/sweeper=descent", "notes=fail", config_dir=foreign_sweeper)
    losses, _ = eval((place / "losses.txt").read_text())
    assert losses[1.0] == "RunFailed"
    assert sorted(states(runs)) == ["done", "done", "done", "failed"]


def test_what_another_sweeper_asks_for_is_checked(
    foreign_sweeper: Path, sweep: Callable[..., LocalRuns], place: Path
) -> None:
    file = foreign_sweeper / "hydra" / "sweeper" / "descent.yaml"
    file.write_text(file.read_text().replace("1.0", "-1.0"))
    with pytest.raises(UserError) as error:
        sweep("hydra/sweeper=descent", config_dir=foreign_sweeper)
    assert {problem.where for problem in error.value.problems} == {"optimizer.lr"}
    assert not (place / "runs").exists()


@pytest.mark.slow
def test_hydras_own_sweeper_and_launcher_work_too(sweep: Callable[..., LocalRuns], place: Path) -> None:
    runs = sweep("seed=0,2", "hydra/sweeper=basic")
    assert states(runs) == ["done", "done"]
    runs = sweep("seed=3,4", "hydra/launcher=basic")
    assert states(runs) == ["done", "done"]
    assert sorted(path.name for path in place.iterdir() if path.suffix == ".yaml") == []


def test_a_mistake_that_hydras_own_launcher_meets_is_not_lost(sweep: Callable[..., LocalRuns]) -> None:
    with pytest.raises(UserError, match=r"training\.max_steps"):
        sweep("training.max_steps=100000000", "hydra/launcher=basic")


@pytest.mark.slow
def test_hydras_own_sweeper_gives_up_at_a_failure_and_what_ran_is_told(
    sweep: Callable[..., LocalRuns],
) -> None:
    runs = sweep("seed=0,1,2", "notes=fail", "hydra/sweeper=basic")
    assert states(runs) == ["done", "failed", "done"]


def test_one_run_by_itself(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (run,) = read_request([*DATA, "seed=1", "notes=fail"], kept_composer(), multirun=False).runs
    outcome = run_one(run.config, command=stand_in)
    assert (outcome.exit_code, outcome.state, outcome.reason) == (1, "failed", "diverged")
    assert json.dumps(outcome.to_json())
    assert read_status(outcome.folder)["state"] == "failed"


def test_words_for_what_other_parts_catch() -> None:
    assert issubclass(RunFailed, Exception)
    assert Interrupted(signal.SIGINT).exit_code == 130
    assert Interrupted(signal.SIGTERM).exit_code == 1
