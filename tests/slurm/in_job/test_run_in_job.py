"""A run inside of a job, with a program that stands for scontrol: the job's own part without a cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_run import ROOT, make_run, tiny_config

from conf import Config
from conf.between_keys.ensembles import members_of
from conf.schema import Ensemble, Slurm
from experiment_utils import atomic_files
from experiment_utils.lease import Periodic
from slurm.in_job.__main__ import check_snapshot, exit_code_of
from slurm.queue.job_entry import setup_lines, word_for
from slurm.records.start_records import Start, note_start, read_starts
from slurm.records.submissions import SLURM, Array, Submission
from tests.golden_text import Golden
from training.attempt.run_files import read_run, read_status

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
    pytest.mark.usefixtures("quick_start"),
]

PATIENCE_S = 240.0


def wait_for(what: Callable[[], Any]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until_s, "nothing came"
        time.sleep(0.02)


WHY = "--oneliner show job 7_2"
"""Slurm is asked for the reason of a signal where it has not told when the job's time is up."""
REQUEUE = [WHY, "requeue 7_2"]
"""And whether somebody has cancelled the job meanwhile."""
SCONTROL = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
case "$1" in
    requeue) exit ${REQUEUE_FAILS:-0} ;;
    *) echo "JobId=7 JobState=${JOB_STATE:-RUNNING} PreemptTime=${PREEMPT_TIME:-None}" ;;
esac
"""


@dataclasses.dataclass
class InJob:
    """A run that can be started as job 7_2 would."""

    run: Path
    bin: Path
    word: str

    def start(self, restart: int = 0, **variables: str) -> subprocess.Popen[str]:
        around = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
            "SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2",
            "SLURM_RESTART_COUNT": str(restart), "PATH": f"{self.bin}:{os.environ['PATH']}", **variables,
        }  # fmt: skip
        code = "import sys; from slurm.queue.job_entry import start; start(sys.argv[1])"
        return subprocess.Popen(
            [sys.executable, "-c", code, self.word],
            cwd=ROOT, env=around, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def at_step(self, step: int) -> None:
        wait_for(lambda: (read_status(self.run).get("step") or 0) >= step)

    def asked(self) -> list[str]:
        """Of scontrol, but for its configuration, which the run's memory report asks for."""
        path = self.bin / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.split() != ["show", "config"]]

    def ends(self) -> list[tuple[str | None, str | None, str | None]]:
        return [(start.end, start.state, start.signal) for start in read_starts(self.run)]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code whose runs compute nothing (stand_in.py)."""
    copy = tmp_path_factory.mktemp("light") / "code"
    left_out = shutil.ignore_patterns(".*", "tests", "benchmarks", "docs", "runs", "Datasets")
    shutil.copytree(ROOT, copy, ignore=left_out)
    shutil.copy(Path(__file__).with_name("stand_in.py"), copy / "core.py")
    return copy


def in_job(
    config: Config, tmp_path: Path, *, how: str = "each", more: tuple[Path, ...] = (), code: Path = ROOT
) -> InJob:
    """code: what the job runs, a copy of the checkout."""
    run = make_run(config)
    runs = [run, *more]
    submission = Submission(
        id="s1", study=run.parent, launcher=SLURM, created_s=0.0, user="u", host="h", cwd=str(tmp_path),
        command="", arrays=[Array(0, "a", [[one.name for one in runs]], how=how)], snapshot=str(code),
    )  # fmt: skip
    submission.write()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "scontrol").write_text(SCONTROL)
    (programs / "scontrol").chmod(0o755)
    return InJob(run, programs, word_for(run.parent, "s1", 0, 0))


def endless(tmp_path: Path, **slurm: Any) -> Config:
    """Many thousand steps: it is still in one of them whenever a test looks."""
    config = tiny_config(tmp_path, max_steps=1_000_000, evals=1, checkpoint_every=100_000)
    repeating = dataclasses.replace(config.dataset, repeat=True)
    return dataclasses.replace(config, dataset=repeating, slurm=Slurm(**slurm))


def ended(job: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = job.communicate(timeout=240)
    return job.returncode, said


def test_code_that_is_not_the_submissions(tmp_path: Path, golden: Golden) -> None:
    other = Submission("s", tmp_path, SLURM, 0.0, "u", "h", "/", "", [], snapshot=str(tmp_path / "gone"))
    with golden.refused("outside-snapshot"):
        check_snapshot(other)


def test_setup_lines_put_the_snapshot_before_the_folder_of_the_job(tmp_path: Path) -> None:
    for folder in ("code", "here"):
        (tmp_path / folder / "slurm").mkdir(parents=True)
        (tmp_path / folder / "slurm" / "__init__.py").write_text("")
        (tmp_path / folder / "slurm" / "told.py").write_text(f"print({folder!r})")
    script = "\n".join([*setup_lines(tmp_path / "code"), f"{sys.executable} -m slurm.told"])
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path / "here",
        env={"PYTHONPATH": "/x"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "code\n", done.stderr


@pytest.mark.slow
def test_a_run_that_is_done(tmp_path: Path) -> None:
    job = in_job(tiny_config(tmp_path, max_steps=4), tmp_path)
    code, said = ended(job.start())
    assert (code, job.ends(), job.asked()) == (0, [("done", "done", None)], []), said
    assert "step" in said, "the job's output has what the run says"
    start = read_starts(job.run)[0]
    assert (start.job_id, start.raw_job_id, start.step_before, start.step_after) == ("7_2", "9", 0, 4)
    attempts = read_run(job.run)["attempts"]
    assert attempts[0]["job_ids"]["SLURM_JOB_ID"] == "9"
    code, said = ended(job.start(restart=1))
    assert (code, len(read_starts(job.run))) == (0, 1), said


@pytest.mark.slow
def test_signals_that_come_while_it_starts(tmp_path: Path) -> None:
    """From the exec to the run's own handlers: none is lost, none ends it without a word."""
    job = in_job(endless(tmp_path), tmp_path)
    for delay_s in (0.0, 0.4, 1.0):
        process = job.start()
        wait_for(lambda: "-m\0slurm.in_job" in Path(f"/proc/{process.pid}/cmdline").read_text())  # noqa: B023
        time.sleep(delay_s)
        process.send_signal(signal.SIGUSR2)
        code, said = ended(process)
        assert (code, read_status(job.run)["state"]) == (0, "timeout"), said
        (job.run / "starts.json").unlink()
    assert job.asked() == [WHY, *REQUEUE] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "slurm", "code", "end", "asked"),
    [
        (signal.SIGUSR2, {}, 0, ("requeued", "timeout", "SIGUSR2"), [WHY, *REQUEUE]),
        (signal.SIGUSR2, {"REQUEUE_FAILS": "1"}, 1, ("ended", "timeout", "SIGUSR2"), None),
        # Slurm takes a job back that it is just ending: one that was cancelled started again
        (signal.SIGUSR2, {"JOB_STATE": "COMPLETING"}, 1, ("ended", "timeout", "SIGUSR2"), [WHY, WHY]),
        (signal.SIGTERM, {}, 1, ("ended", "cancelled", "SIGTERM"), [WHY]),
        (signal.SIGTERM, {"PREEMPT_TIME": "2026-11-22T08:00:00"}, 0,
         ("requeued", "preempted", "SIGTERM"), [WHY, *REQUEUE]),
    ],
)  # fmt: skip
def test_a_signal(
    light: Path, tmp_path: Path, golden: Golden, number: signal.Signals, slurm: dict[str, str], code: int,
    end: tuple[str, str, str], asked: list[str] | None,
) -> None:  # fmt: skip
    """The time is up, or another job or a user is to have its place: what Slurm says decides."""
    job = in_job(endless(tmp_path), tmp_path, code=light)
    process = job.start(**slurm)
    job.at_step(1)
    process.send_signal(number)
    found, said = ended(process)
    assert (found, job.ends()) == (code, [end]), said
    assert asked in (None, job.asked())
    golden.text(str(read_starts(job.run)[0].reason).rpartition("; ")[2], numbers=False)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["first", "another"])
def test_a_termination_that_was_for_the_start_before(
    light: Path, tmp_path: Path, at: str, golden: Golden
) -> None:
    """A node was lost and Slurm put the job back; the node returns, and is told to end what is gone."""
    job = in_job(endless(tmp_path), tmp_path, code=light)
    note_start(job.run, Start("7_2", "9", 0, "n1", 1, 0.0, 1, 0))
    process = job.start(restart=1)
    job.at_step(1)
    status = read_status(job.run)
    os.kill(process.pid if at == "first" else status["pid"], signal.SIGTERM)
    code, said = ended(process)
    assert code == 0, said
    assert job.asked()[-1] == "requeue 7_2"
    end = read_starts(job.run)[-1]
    assert end.end == "requeued"
    golden.text(str(end.reason))


@pytest.mark.slow
def test_starts_that_bring_no_step_forward(light: Path, tmp_path: Path, golden: Golden) -> None:
    job = in_job(endless(tmp_path, max_idle_attempts=2), tmp_path, code=light)
    for restart, asked in ((0, [WHY, *REQUEUE]), (1, [WHY, *REQUEUE, WHY])):
        process = job.start(restart)
        wait_for(lambda: "-m\0slurm.in_job" in Path(f"/proc/{process.pid}/cmdline").read_text())  # noqa: B023
        process.send_signal(signal.SIGUSR2)
        code, said = ended(process)
        assert job.asked() == asked, said
    assert (code, job.ends()[-1]) == (1, ("gave_up", "timeout", "SIGUSR2"))
    code, said = ended(job.start(2))
    last = read_starts(job.run)[-1]
    assert (code, last.end, last.state) == (1, "gave_up", "failed"), "and it is not even begun"
    golden.text(str(last.reason).split(". ")[0], numbers=False)
    assert len(read_run(job.run).get("attempts", [])) <= 2


def test_a_killed_start_counts_as_idle(tmp_path: Path, golden: Golden) -> None:
    job = in_job(endless(tmp_path, max_idle_attempts=1), tmp_path)
    note_start(job.run, Start("7_2", "9", 0, "n1", 1, 1.0, 1, 0))
    code, said = ended(job.start(1))
    assert code == 1
    golden.text(said, numbers=False)
    assert not (job.run / "run.json").exists()


@pytest.mark.slow
def test_a_second_start_waits_in_its_job_for_the_first(light: Path, tmp_path: Path, golden: Golden) -> None:
    """Slurm took the first for dead, and ends it as soon as its node answers again."""
    job = in_job(endless(tmp_path), tmp_path, code=light)
    first = job.start()
    job.at_step(1)
    second = job.start(1)
    log = job.run / "log.txt"
    wait_for(lambda: log.exists() and "waits" in log.read_text())
    golden.text(log.read_text().split(" ", 2)[2], numbers=False)
    assert [start.end for start in read_starts(job.run)] == [None], "of the first"
    first.send_signal(signal.SIGTERM)
    ended(first)
    wait_for(lambda: len(read_run(job.run)["attempts"]) == 2)
    second.send_signal(signal.SIGTERM)
    ended(second)
    assert [start.restart for start in read_starts(job.run)] == [0, 1]


@pytest.mark.slow
def test_a_start_whose_run_is_taken_over_leaves_its_files(light: Path, tmp_path: Path) -> None:
    job = in_job(endless(tmp_path), tmp_path, code=light)
    first = job.start(HIGHWATER_LEASE_S="3")
    job.at_step(1)
    pid = read_status(job.run)["pid"]
    os.kill(pid, signal.SIGSTOP)
    holder = {"host": "n7", "pid": 1, "started_at": 1, "since": "now", "job_id": "8", "token": "of n7"}
    atomic_files.write_json(job.run / "run.lock", holder)
    (job.run / "status.json").write_text("of n7")
    with Periodic(0.2, lambda: os.utime(job.run / "run.lock")):
        time.sleep(3)
        os.kill(pid, signal.SIGCONT)
        code, said = ended(first)
    assert code == 0, said
    assert (job.run / "status.json").read_text() == "of n7"
    assert json.loads((job.run / "run.lock").read_text()) == holder
    assert [start.end for start in read_starts(job.run)] == [None], "its end is not noted: the file is of n7"
    assert not (job.run / "outcome.json").exists()


def test_a_folder_that_is_not_there_on_this_machine(tmp_path: Path, golden: Golden) -> None:
    job = in_job(tiny_config(tmp_path), tmp_path)
    record = job.run.parent / ".submissions" / "s1" / "submission.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"cwd": str(tmp_path / "gone")}))
    code, said = ended(job.start())
    assert code == 2
    golden.text(said, numbers=False)
    record.unlink()
    assert exit_code_of(job.word) == 2


def as_ensemble(tmp_path: Path, config: Config) -> tuple[InJob, list[Path]]:
    asked = Ensemble(seed=["0", "1", "2"], together=3)
    first, *rest = members_of(dataclasses.replace(config, ensemble=asked))
    others = [make_run(member) for member in rest]
    job = in_job(first, tmp_path, how="ensemble", more=tuple(others))
    return job, [job.run, *others]


@pytest.mark.slow
def test_an_ensemble_is_one_program_and_each_run_tells_its_end(tmp_path: Path) -> None:
    job, runs = as_ensemble(tmp_path, tiny_config(tmp_path))
    code, said = ended(job.start())
    assert code == 0, said
    for run in runs:
        assert read_status(run)["state"] == "done"
        assert [(start.end, start.job_id, start.attempt) for start in read_starts(run)] == [
            ("done", "7_2", 1)
        ]
    code, said = ended(job.start(1))
    assert (code, [len(read_starts(run)) for run in runs]) == (0, [1] * len(runs)), said


@pytest.mark.slow
def test_an_ensemble_whose_time_is_up_goes_on_with_those_that_are_not_over(tmp_path: Path) -> None:
    job, runs = as_ensemble(tmp_path, endless(tmp_path))
    first = job.start()
    job.at_step(5)
    first.send_signal(signal.SIGUSR2)
    code, said = ended(first)
    assert (code, job.asked()[-1:]) == (0, ["requeue 7_2"]), said
    states = [read_status(run) for run in runs]
    assert [status["state"] for status in states] == ["timeout"] * 3
    assert len({status["step"] for status in states}) == 1
    second = job.start(1)
    wait_for(lambda: (read_status(job.run).get("step") or 0) > states[0]["step"])
    second.send_signal(signal.SIGTERM)
    ended(second)
    resumed = [read_run(run)["attempts"][-1]["resumed_from_step"] for run in runs]
    assert resumed == [states[0]["step"]] * 3
