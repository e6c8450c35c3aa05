"""A queue worker whose time is up: where no run has stopped for it, its job goes on for what is left."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_studies import MadeStudy

from experiment_utils import atomic_files
from memory.estimate.available import GPU_SHARE
from slurm.cluster.current_job import PACKED, Job
from slurm.in_job import run_in_job as running
from slurm.in_job import shared_job as sharing
from slurm.in_job.requeue_decision import Verdict
from slurm.plans.gpu_slots import GpuSlot
from slurm.records.start_records import DONE, ENDED, GAVE_UP, LEFT, REQUEUED, Start, note_start, read_starts
from tests.golden_text import Golden

NAMES = ["a", "b", "c"]


class Worker:
    """Job 9, task 2 of array 7. ends: how each run ends that it takes: (end, state, signal)."""

    def __init__(self, study: MadeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = [study.folder / name for name in NAMES]
        self.took: list[str] = []
        self.put_back = 0
        self.ends: dict[str, tuple[str, str, str | None]] = {}
        self.preempted: bool | None = False
        monkeypatch.setattr(sharing, "run_beside_others", self.run)
        monkeypatch.setattr(Job, "requeue", lambda job: self._put_back())
        monkeypatch.setattr(Job, "is_being_preempted", lambda job: self.preempted)
        self.claims = study.folder / "claims"

    def _put_back(self) -> None:
        self.put_back += 1

    def run(self, run: Path, job: Job) -> Verdict:
        self.took.append(run.name)
        end, state, number = self.ends.get(run.name, (DONE, "done", None))
        start = Start(job.id, job.raw_id, job.restart, "n1", 1, time.time(), 1, 0, end=end, state=state)
        note_start(run, Start(**{**vars(start), "signal": number}))
        if end == DONE:
            atomic_files.write_json(run / "status.json", {"state": "done"})
        return Verdict(end, 0 if end in (DONE, REQUEUED) else 1, None)

    def start(self, restart: int = 0) -> int:
        self.took.clear()
        return sharing.run_missing(self.runs, self.claims, Job("7_2", "9", restart))


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(MadeStudy(tmp_path / "sweep", NAMES, how="workers"), monkeypatch)


def test_a_run_that_came_to_its_end_all_the_same(worker: Worker) -> None:
    worker.ends["a"] = (DONE, "done", "SIGUSR2")
    assert (worker.start(), worker.took, worker.put_back) == (0, ["a"], 1)
    assert (worker.start(1), worker.took, worker.put_back) == (0, ["b", "c"], 1)


def test_nothing_is_left_to_go_on_with(worker: Worker) -> None:
    worker.ends["c"] = (DONE, "done", "SIGUSR2")
    assert (worker.start(), worker.took, worker.put_back) == (0, NAMES, 0)


@pytest.mark.parametrize(
    ("end", "put_back"),
    [
        ((REQUEUED, "timeout", "SIGUSR2"), 0),  # it has put the job back itself
        ((ENDED, "timeout", "SIGUSR2"), 0),  # Slurm refused, or slurm.requeue=false
        ((ENDED, "cancelled", "SIGTERM"), 0),
        ((ENDED, "failed", "SIGUSR2"), 1),  # by itself, just then
        ((GAVE_UP, "timeout", "SIGUSR2"), 1),
        ((DONE, "done", "SIGTERM"), 0),  # scancel
    ],
)
def test_a_signal_is_for_the_job(worker: Worker, end: tuple[str, str, str | None], put_back: int) -> None:
    worker.ends["a"] = end
    worker.start()
    assert (worker.took, worker.put_back) == (["a"], put_back)


def test_another_job_is_to_have_its_place(worker: Worker) -> None:
    worker.ends["a"], worker.preempted = (DONE, "done", "SIGTERM"), True
    assert (worker.start(), worker.put_back) == (0, 1)


def test_between_two_runs(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = worker.run

    def then_a_signal(run: Path, job: Job) -> Verdict:
        verdict = ran(run, job)
        os.kill(os.getpid(), signal.SIGUSR2)
        return verdict

    monkeypatch.setattr(sharing, "run_beside_others", then_a_signal)
    assert (worker.start(), worker.took, worker.put_back) == (0, ["a"], 1)


def test_starts_that_bring_nothing_are_bounded(worker: Worker) -> None:
    worker.ends["a"] = (ENDED, "failed", "SIGUSR2")
    assert [(worker.start(restart), worker.put_back) for restart in (2, 3)] == [(0, 1), (1, 1)]


def test_packed_runs_are_on_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm gives steps that overlap the same ones, and refuses a binding that they inherit."""
    command = sharing.step_command("a", "word", 2, {"SLURM_CPUS_PER_TASK": "4"})
    assert {"--overlap", "--cpu-bind=none", "--cpus-per-task=4"} <= {*command}, "all, to take some of"
    taken: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5, 6, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: taken.append(cores))
    for place in range(3):
        environment = {PACKED: f"{place}/3", "SLURM_CPUS_PER_TASK": "4"}
        sharing.take_share(environment)
        assert environment["SLURM_CPUS_PER_TASK"] == "1"
    assert taken == [[4], [5], [6, 7]]


def test_packed_runs_see_one_gpu_each() -> None:
    seen = []
    for place in range(3):
        environment = {PACKED: f"{place}/3", "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
        sharing.take_share(environment)
        seen.append(environment["CUDA_VISIBLE_DEVICES"])
    assert seen == ["GPU-a", "GPU-b", "GPU-a"]


def test_a_packed_run_alone_on_its_gpu_has_no_share_of_another(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable of the run that was started before stayed for it."""
    monkeypatch.delenv(GPU_SHARE, raising=False)
    slots = [GpuSlot("0", 2, 60), GpuSlot("1", 1, 80), GpuSlot("0", 2, 60)]
    monkeypatch.setattr(sharing, "gpu_slots", lambda count: slots[:count])
    script = "import os, sys; open(sys.argv[1], 'w').write(os.environ.get(sys.argv[2], '-'))"
    seen = {name: tmp_path / f"share of {name}" for name in NAMES}
    monkeypatch.setattr(
        sharing, "step_command", lambda run, *_: [sys.executable, "-c", script, str(seen[run]), GPU_SHARE]
    )
    sharing.run_side_by_side(worker.runs[:3], "word", Job("7_2", "9", 0))
    assert [path.read_text() for path in list(seen.values())[:3]] == ["30", "-", "30"]


def test_a_packed_run_is_told_the_memory_of_its_step() -> None:
    """Slurm leaves the job's in its environment: training.micro_batch=auto took all of that, and the poll of
    RSS killed both runs.
    """
    command = sharing.step_command("a", "word", 2, {"SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_NODE": "1200"})
    assert "--mem=528M" in command
    assert command[command.index("env") + 1] == "SLURM_MEM_PER_NODE=528"


def test_a_packed_run_of_an_unbound_job_is_left_on_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the node's, and each job of it would take the first."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: pytest.fail(f"bound to {cores}"))
    environment = {PACKED: "0/2", "SLURM_CPUS_PER_TASK": "4"}
    sharing.take_share(environment)
    assert environment["SLURM_CPUS_PER_TASK"] == "2"


_SRUN = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(137))\n"
    "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(75))\n"
    "signal.pthread_sigmask(signal.SIG_SETMASK, [])\n"
    "open(sys.argv[1], 'w').close()\n"
    "time.sleep(60)"
)
"""As srun takes SIGTERM: it kills its step at once. SIGUSR2 it hands on, and the run stops in time."""


def test_sigterm_does_not_reach_the_srun_of_a_packed_run(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a preemption Slurm has sent it to the runs' own steps; killed, they would leave no checkpoint, and
    the job would not go back into the queue.
    """
    ready = {name: tmp_path / f"{name} is ready" for name in NAMES}
    monkeypatch.setattr(
        sharing, "step_command", lambda run, *_: [sys.executable, "-c", _SRUN, str(ready[run])]
    )

    def send() -> None:
        while not all(path.exists() for path in ready.values()):
            time.sleep(0.01)
        for number in (signal.SIGTERM, signal.SIGUSR2):
            os.kill(os.getpid(), number)
            time.sleep(0.3)

    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # where it comes too late for all of them
    thread = threading.Thread(target=send)
    thread.start()
    code = sharing.run_side_by_side(worker.runs, "word", Job("7_2", "9", 0))
    thread.join()
    signal.signal(signal.SIGUSR2, before)
    assert (code, worker.put_back) == (0, 1)


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_step_that_ends_without_a_word_is_not_started_again_with_its_job(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    """scancel JOB.STEP, or an srun that Slurm refuses its step: nobody but this process sees it end."""
    lost = worker.runs[0]
    (lost / "run.json").write_text("damaged")
    if has_begun:
        note_start(lost, Start("7_2", "9", 0, "n1", 1, 5.0, 1, 0))

    def step(run: str, *_: object) -> list[str]:
        begun.append(run)
        return [sys.executable, "-c", f"raise SystemExit({137 if run == lost.name else 75})"]

    begun: list[str] = []
    monkeypatch.setattr(sharing, "step_command", step)
    for restart, told in ((0, NAMES), (1, NAMES[1:])):
        begun.clear()
        assert sharing.run_side_by_side(worker.runs, "word", Job("7_2", "9", restart)) == 0
        assert (begun, worker.put_back) == (told, restart + 1)
    assert [(start.end, start.started_s == 5.0) for start in read_starts(lost)] == [(ENDED, has_begun)]


def test_a_job_that_slurm_does_not_take_back_is_told_of_its_runs(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """They were noted as put back, by a job that had ended."""
    failed, stopped, _ = worker.runs
    for run, end, code in ((failed, ENDED, 1), (stopped, REQUEUED, 75)):
        note_start(run, Start("7_2", "9", 0, "n1", 1, 5.0, 1, 0, end=end, reason=f"exit code {code}"))
    monkeypatch.setattr(Job, "requeue", lambda job: "disabled")
    monkeypatch.setattr(
        sharing,
        "step_command",
        lambda run, *_: [sys.executable, "-c", f"raise SystemExit({1 if run == failed.name else 75})"],
    )
    assert sharing.run_side_by_side(worker.runs[:2], "word", Job("7_2", "9", 0)) == 1
    starts = [start for run in (failed, stopped) for start in read_starts(run)]
    assert [start.end for start in starts] == [ENDED, ENDED]
    golden.text("\n".join(str(start.reason) for start in starts))


def test_a_job_whose_runs_go_on_in_copies_looks_again_later(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went back at once, and again every half minute, as long as the copies were alive."""
    later: list[str] = []
    monkeypatch.setattr(Job, "come_back", lambda job: later.append(job.id))
    monkeypatch.setattr(
        sharing, "step_command", lambda run, *_: [sys.executable, "-c", "raise SystemExit(76)"]
    )
    assert sharing.run_side_by_side(worker.runs, "word", Job("7_2", "9", 1)) == 0
    assert (later, worker.put_back) == (["7_2"], 0)
    assert [read_starts(run) for run in worker.runs] == [[], [], []]


@pytest.mark.parametrize(("number", "looks"), [(None, ["7_2"]), ("SIGTERM", [])])
def test_a_worker_that_was_cancelled_looks_at_no_copy_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, number: str | None, looks: list[str]
) -> None:
    """`slurm cancel` ended the job, which put itself back into the queue."""
    later: list[str] = []
    monkeypatch.setattr(Job, "come_back", lambda job: later.append(job.id))
    worker.ends = {"b": (ENDED, "cancelled" if number else "failed", number)}

    def unless_beside(run: Path, job: Job) -> Verdict:
        return Verdict(LEFT, 76, None) if run.name == "a" else worker.run(run, job)

    monkeypatch.setattr(sharing, "run_beside_others", unless_beside)
    worker.start()
    assert (later, worker.put_back) == (looks, 0)


def _replace_by_a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("")


@pytest.mark.parametrize(
    ("damage", "code", "why"),
    [
        (lambda run: (run / "config.yaml").write_text("a: [1"), 2, "config.yaml"),
        (lambda run: (run / "config.yaml").unlink(), 2, "No such file"),
        (shutil.rmtree, 2, None),
        (_replace_by_a_file, 2, None),
    ],
)
def test_a_run_whose_files_cannot_be_used_ends_alone(
    worker: Worker,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], object],
    code: int,
    why: str | None,
) -> None:
    """Its worker ended with it: the others were never started, and its error was told as theirs. One with a
    step of its own was told as killed, or as one that Slurm could not start.
    """
    lost, job, real = worker.runs[0], Job("7_2", "9", 0), running.run_in_job
    damage(lost)
    monkeypatch.setattr(
        running, "run_in_job", lambda run, job: (real if run == lost else worker.run)(run, job)
    )
    monkeypatch.setattr(sharing, "run_beside_others", running.run_beside_others)
    assert (worker.start(), worker.took) == (code, ["b", "c"])
    if why is None:
        assert not lost.is_dir()
    else:
        running.note_lost(lost, job)  # whoever started its step has seen it end
        (start,) = read_starts(lost)
        assert (start.end, start.state) == (ENDED, "failed")
        assert why in str(start.reason)
        assert "\n" not in str(start.reason)


@pytest.mark.parametrize("damage", [shutil.rmtree, _replace_by_a_file])
def test_a_job_goes_on_for_the_others_of_one_whose_files_cannot_be_used(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    """Its settings were those that the whole job went by: it ended with an error, and the others with it."""
    lost = worker.runs[0]
    damage(lost)

    def unless_lost(run: Path, job: Job) -> Verdict:
        if run == lost:
            return Verdict(ENDED, 2, None)
        verdict = worker.run(run, job)
        os.kill(os.getpid(), signal.SIGUSR2)
        return verdict

    monkeypatch.setattr(sharing, "run_beside_others", unless_lost)
    assert (worker.start(), worker.took, worker.put_back) == (0, ["b"], 1)
