"""Slots: every missing run once, what a signal between two runs means, and steps that end by themselves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from made_studies import MadeStudy

from experiment_utils import atomic_files, lease
from slurm.cluster.current_job import Job
from slurm.in_job import run_in_job, slots
from slurm.in_job.__main__ import is_over_or_cancelled
from slurm.in_job.requeue_decision import Verdict
from slurm.in_job.slots import TO_BE_REQUEUED, end_job, is_over, run_slot, run_steps, step_command, take_cores
from slurm.launch.processes import Children
from slurm.plans.gpu_slots import GpuSlot
from slurm.records.start_records import DONE, ENDED, GAVE_UP, REQUEUED, Start, note_start, read_starts
from slurm.records.submissions import note_cancelled
from tests.golden_text import Golden
from training.attempt.run_files import LOCK

ROOT = Path(__file__).resolve().parents[3]
NAMES = ["a", "b", "c"]
USR2, TERM = signal.SIGUSR2, signal.SIGTERM


class Worker:
    """Job 9, task 2 of array 7, with one slot. ends: (end, state, signal) of each run that it takes."""

    def __init__(self, study: MadeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = [study.folder / name for name in NAMES]
        self.took: list[str] = []
        self.ends: dict[str, tuple[str, str, int | None]] = {}
        self.preempted: bool | None = False
        self.run_alone: Callable[..., Verdict] = self.run
        monkeypatch.setattr(slots, "run_alone", lambda *given: self.run_alone(*given))
        monkeypatch.setattr(Job, "is_being_preempted", lambda job: self.preempted)

    def run(self, runs: list[Path], job: Job, children: Children, watch: lease.Watch, _: object) -> Verdict:
        (run,) = runs
        with lease.take(run / LOCK, "it", watch):
            self.took.append(run.name)
            end, state, number = self.ends.get(run.name, (DONE, "done", None))
            if number is not None:
                os.kill(os.getpid(), number)
            start = Start(job.id, job.raw_id, job.restart, "n1", 1, time.time(), 1, 0, end=end, state=state)
            note_start(run, Start(**{**vars(start), "signal": None if number is None else str(number)}))
            if end == DONE:
                atomic_files.write_json(run / "status.json", {"state": "done"})
        return Verdict(end, 0 if end in (DONE, REQUEUED) else 1, None, state)

    def start(self, restart: int = 0) -> int:
        self.took.clear()
        job = Job("7_2", "9", restart)
        return run_slot([[run] for run in self.runs], job, partial(is_over, job=job))


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(lease, "LAPSE_S", 0.6)
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    return Worker(MadeStudy(tmp_path / "sweep", NAMES, how="shared"), monkeypatch)


@pytest.mark.parametrize(
    ("end", "preempted", "code"),
    [
        ((DONE, "done", USR2), False, TO_BE_REQUEUED),  # the run came to its end all the same
        ((REQUEUED, "timeout", USR2), False, TO_BE_REQUEUED),
        ((ENDED, "timeout", USR2), False, 1),  # slurm.requeue=false
        ((ENDED, "cancelled", TERM), False, 1),
        ((ENDED, "failed", USR2), False, TO_BE_REQUEUED),  # by itself, just then
        ((GAVE_UP, "timeout", USR2), False, TO_BE_REQUEUED),
        ((DONE, "done", TERM), False, 1),  # scancel
        ((DONE, "done", TERM), True, TO_BE_REQUEUED),  # another job is to have its place
    ],
)
def test_a_signal_is_for_the_job(
    worker: Worker, end: tuple[str, str, int], preempted: bool, code: int
) -> None:
    """No run is begun after it; the job starts again if runs are missing, unless that was decided already."""
    worker.ends["a"], worker.preempted = end, preempted
    assert (worker.start(), worker.took) == (code, ["a"])


def test_the_next_start_takes_what_is_missing(worker: Worker) -> None:
    worker.ends = {"a": (ENDED, "failed", None), "b": (DONE, "done", USR2)}
    assert (worker.start(), worker.took) == (TO_BE_REQUEUED, ["a", "b"])
    assert (worker.start(1), worker.took) == (0, ["c"]), "and none that has failed by itself"
    assert (worker.start(2), worker.took) == (0, [])


def test_a_signal_with_the_last_run(worker: Worker) -> None:
    worker.ends["c"] = (DONE, "done", USR2)
    assert (worker.start(), worker.took) == (0, NAMES)


def test_starts_that_bring_nothing_are_bounded(worker: Worker) -> None:
    worker.ends["a"] = (ENDED, "failed", USR2)
    assert [worker.start(restart) for restart in (2, 3)] == [TO_BE_REQUEUED, 1]


def _hold(run: Path, **changes: Any) -> Path:
    """The lease of a process on another host."""
    holder = {"host": "n7", "pid": 5, "started_at": 6, "since": "then", "job_id": "8", "token": "x"}
    (run / LOCK).write_text(json.dumps(holder | changes))
    return run / LOCK


def test_a_run_of_a_process_that_lives_is_left_to_it(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _hold(worker.runs[0])
    with lease.Periodic(0.05, lambda: os.utime(path)):
        assert (worker.start(), worker.took) == (0, ["b", "c"])
    assert "n7" in capsys.readouterr().out


def test_a_run_of_a_process_that_is_gone_comes_last(worker: Worker) -> None:
    _hold(worker.runs[0])
    assert (worker.start(), worker.took) == (0, ["b", "c", "a"])


@pytest.mark.parametrize("end", ["done", "gone", "signal"])
def test_a_run_of_an_earlier_start_of_this_job_is_waited_for(worker: Worker, end: str) -> None:
    """Slurm took that start for dead, and ends it when its node answers again."""
    run = worker.runs[0]
    path = _hold(run, job_id="9")
    note_start(run, Start("7_2", "9", 0, "n7", 4, 1.0, 1, 0))

    def touch() -> None:
        touches.append(1)
        if len(touches) < 30 or end == "signal":
            os.utime(path)
        if len(touches) == 30 and end == "done":
            atomic_files.write_json(run / "status.json", {"state": "done"})
        if len(touches) == 30 and end == "signal":
            os.kill(os.getpid(), USR2)

    touches: list[int] = []
    with lease.Periodic(0.05, touch):
        code = worker.start(1)
    assert len(touches) >= 30
    assert worker.took == ["b", "c", *(["a"] if end == "gone" else [])]
    assert code == (TO_BE_REQUEUED if end == "signal" else 0)
    assert (run / "log.txt").read_text().count("job 7_2 waits") == 1


def test_slots_take_every_run_once(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(12)]
    study = MadeStudy(tmp_path / "sweep", names, how="shared")
    code = """
        import os, sys, time
        from functools import partial
        from pathlib import Path
        from experiment_utils import atomic_files, lease
        from slurm.cluster.current_job import Job
        from slurm.in_job import slots
        from slurm.in_job.requeue_decision import Verdict

        def run_alone(runs, job, children, watch, is_over):
            with lease.take(runs[0] / "run.lock", "it", watch):
                if slots.is_done(runs[0]):
                    return Verdict("done", 0, None, "done")
                with open(runs[0] / "journal", "a") as file:
                    print(os.getpid(), file=file)
                time.sleep(0.05)
                atomic_files.write_json(runs[0] / "status.json", {"state": "done"})
            return Verdict("done", 0, None, "done")

        slots.run_alone = run_alone
        job = Job("7_2", "9")
        programs = [[Path(sys.argv[1]) / name] for name in sys.argv[2:]]
        sys.exit(slots.run_slot(programs, job, partial(slots.is_over, job=job)))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(study.folder), *names]
    workers = [subprocess.Popen(command, cwd=ROOT, env={**os.environ, "SLURM_JOB_ID": "9"}) for _ in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    journals = [(study.folder / name / "journal").read_text().split() for name in names]
    assert [len(journal) for journal in journals] == [1] * 12
    assert len({pid for journal in journals for pid in journal}) > 1


def test_a_run_that_another_slot_has_just_ended_is_not_begun(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at it and its lease."""
    worker.run_alone = run_in_job.run_alone
    monkeypatch.setattr(run_in_job, "_run", lambda runs, *more: worker.took.append(runs[0].name))
    answers = iter([False, True])
    assert run_slot([worker.runs[:1]], Job("7_2", "9"), lambda run: next(answers)) == 0
    assert worker.took == []


def test_each_slot_has_its_share_of_cores_memory_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that overlap get the same cores, and Slurm shows all GPUs and the memory of the job to each."""
    around = {"SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_NODE": "1200"}
    command = step_command("word", 1, 2, around, GpuSlot("GPU-b", 2, 60))
    assert {"--overlap", "--cpu-bind=none", "--cpus-per-task=4", "--mem=528M"} <= {*command}
    variables = {"SLURM_MEM_PER_NODE=528", "CUDA_VISIBLE_DEVICES=GPU-b"}
    assert variables <= {*command[command.index("env") :]}
    assert command[-2:] == ["word", "1"]
    taken: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5, 6, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: taken.append(cores))
    for slot in range(3):
        environment = {"SLURM_CPUS_PER_TASK": "4"}
        take_cores(slot, 3, environment)
        assert environment["SLURM_CPUS_PER_TASK"] == "1"
    assert taken == [[4], [5], [6, 7]]


def test_a_slot_of_an_unbound_job_is_left_on_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the node's, and each job of it would take the first."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: pytest.fail(f"bound to {cores}"))
    environment = {"SLURM_CPUS_PER_TASK": "4"}
    take_cores(0, 2, environment)
    assert environment["SLURM_CPUS_PER_TASK"] == "2"


def _steps(worker: Worker, monkeypatch: pytest.MonkeyPatch, code: str) -> list[int]:
    """Exit statuses of three steps that run this code. argv: the slot, a folder."""
    monkeypatch.setattr(
        slots,
        "step_command",
        lambda word, slot, *_: [sys.executable, "-c", code, str(slot), str(worker.runs[0].parent)],
    )
    return run_steps([[run] for run in worker.runs], 3, 3, "word", Job("7_2", "9"))


_SRUN = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(137))\n"
    "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(75))\n"
    "signal.pthread_sigmask(signal.SIG_SETMASK, [])\n"
    "open(f'{sys.argv[2]}/ready-{sys.argv[1]}', 'w').close()\n"
    "time.sleep(60)"
)
"""As srun takes SIGTERM: it kills its step at once. SIGUSR2 it hands on, and the run stops in time."""


def test_sigterm_does_not_reach_the_srun_of_a_slot(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a preemption Slurm sends it to the steps itself; an srun would kill its step before a checkpoint."""

    def send() -> None:
        while len(list(worker.runs[0].parent.glob("ready-*"))) < 3:
            time.sleep(0.01)
        for number in (TERM, USR2):
            os.kill(os.getpid(), number)
            time.sleep(0.3)

    before = signal.signal(USR2, signal.SIG_IGN)  # if it comes too late for all of them
    thread = threading.Thread(target=send)
    thread.start()
    codes = _steps(worker, monkeypatch, _SRUN)
    thread.join()
    signal.signal(USR2, before)
    assert codes == [TO_BE_REQUEUED] * 3


def test_a_run_whose_step_was_killed_is_not_started_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scancel JOB.STEP: no process but this one sees it end."""
    lost, *others = worker.runs
    host = socket.gethostname()
    note_start(lost, Start("7_2", "9", 0, host, 2**22 + 1, 5.0, 1, 0))
    note_start(others[0], Start("7_2", "9", 0, host, os.getpid(), 5.0, 1, 0))
    assert sorted(_steps(worker, monkeypatch, "import sys; sys.exit(137 * (sys.argv[1] == '0'))")) == [
        0,
        0,
        137,
    ]
    assert [(start.end, start.state, start.started_s) for start in read_starts(lost)] == [
        (ENDED, "failed", 5.0)
    ]
    assert [start.end for start in read_starts(others[0])] == [None], "its process lives"
    assert is_over(lost, Job("7_2", "9", 1))


def test_a_slot_does_not_begin_what_a_killed_slot_of_its_job_had_begun(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.run_alone = run_in_job.run_alone
    monkeypatch.setattr(run_in_job, "_run", lambda runs, *more: worker.took.append(runs[0].name))
    for run in worker.runs:
        note_start(run, Start("7_2", "9", 0, "n1", 2**22 + 1, 5.0, 1, 0))
    assert (worker.start(), worker.took) == (2, [])
    assert {start.end for run in worker.runs for start in read_starts(run)} == {ENDED}


@pytest.mark.parametrize(("codes", "expected"), [([0, 0], 0), ([0, 2], 2), ([-9, 0], 1), ([1, 75], 0)])
def test_the_exit_status_of_a_job(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, codes: list[int], expected: int
) -> None:
    put_back: list[str] = []
    monkeypatch.setattr(Job, "requeue", lambda job: put_back.append(job.id))
    assert end_job(codes, [[run] for run in worker.runs], Job("7_2", "9")) == expected
    assert put_back == ["7_2"] * codes.count(TO_BE_REQUEUED)


def test_a_job_that_slurm_does_not_take_back(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """Its runs were noted as put back; no start of it resumes them."""
    failed, stopped, _ = worker.runs
    for run, end, code in ((failed, ENDED, 1), (stopped, REQUEUED, 75)):
        note_start(run, Start("7_2", "9", 0, "n1", 1, 5.0, 1, 0, end=end, reason=f"exit code {code}"))
    monkeypatch.setattr(Job, "requeue", lambda job: "disabled")
    assert end_job([1, 75], [[run] for run in worker.runs], Job("7_2", "9")) == 1
    starts = [start for run in (failed, stopped) for start in read_starts(run)]
    assert [start.end for start in starts] == [ENDED, ENDED]
    golden.text("\n".join(str(start.reason) for start in starts))


def _replace_by_a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda run: (run / "config.yaml").write_text("a: [1"), "config.yaml"),
        (lambda run: (run / "config.yaml").unlink(), "No such file"),
        (lambda run: (run / LOCK).write_text("{"), LOCK),
        (shutil.rmtree, None),
        (_replace_by_a_file, None),
    ],
)
def test_a_run_whose_files_cannot_be_used_ends_alone(
    worker: Worker, damage: Callable[[Path], object], why: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job goes on for the others, by their settings."""
    lost = worker.runs[0]
    damage(lost)
    worker.run_alone = lambda runs, *more: (run_in_job.run_alone if runs == [lost] else worker.run)(
        runs, *more
    )
    worker.ends["b"] = (DONE, "done", USR2)
    assert (worker.start(), worker.took) == (TO_BE_REQUEUED, ["b"])
    assert "Traceback" not in capsys.readouterr().err
    if why is None:
        assert not lost.is_dir()
    else:
        (start,) = read_starts(lost)
        assert (start.end, start.state) == (ENDED, "failed")
        assert why in str(start.reason)
        assert "\n" not in str(start.reason)


def test_a_slot_begins_nothing_of_an_array_that_was_cancelled(tmp_path: Path) -> None:
    """On a node that Slurm has lost a slot outlives its job."""
    study = MadeStudy(tmp_path / "sweep", ["a"], how="shared")
    submission = study.submission
    job = Job("4242", "4242")
    assert not is_over_or_cancelled(study.folder / "a", job, submission, 0)
    note_cancelled(submission, submission.arrays[0], 1.0)
    assert is_over_or_cancelled(study.folder / "a", job, submission, 0)
