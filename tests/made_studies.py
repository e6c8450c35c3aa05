"""Studies as a submitter, runs and their supervisors leave them, and a Slurm that answers what it is told."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiment_utils.lock_file import Holder
from memory.accounting.sacct import FIELDS, Answer
from slurm.records.submissions import LOCAL, SLURM, Array, Place, Submission, add_place

NOW_S = 1_800_000_000.0
DEAD_PID = 2**22 - 3
"""Of no process: above pid_max of most machines."""


class FakeSlurm:
    """Answers squeue, sacct and scontrol; `calls` are the names of those that were asked.

    queue: lines of squeue, as `wait` makes them; None: slurmctld is down. accounting: the text of sacct;
    None: it is off. shown: of `scontrol show job`, config: of `scontrol show config`; None: it has no answer.
    """

    def __init__(self) -> None:
        self.queue: list[str] | None = []
        self.accounting: str | None = ""
        self.shown: str | None = None
        self.config: str | None = None
        self.late: set[str] = set()
        self.calls: list[str] = []

    def wait(self, job: str, state: str = "PENDING", reason: str = "Priority", **more: Any) -> None:
        """A row of squeue."""
        told = {"raw": job.partition("_")[0], "start": "N/A", "submit": "1799990000", "priority": "4000"}
        told |= {"partition": "main", "nodes": "", "limit": "1:00:00", "name": "sweep"} | more
        assert self.queue is not None
        self.queue.append(
            f"{job}|{told['raw']}|{state}|{told['start']}|{told['submit']}|{told['priority']}|"
            f"{told['partition']}|{told['nodes']}|{told['limit']}|{reason}|{told['name']}"
        )

    def row(self, job: str, state: str, exit_code: str = "0:0", **more: str) -> None:
        """A row of sacct; `4242_3.0` is one of a step."""
        values = {
            "JobID": job, "JobIDRaw": job, "JobName": "sweep", "State": state, "ExitCode": exit_code,
            "Start": str(int(NOW_S - 600)), "End": str(int(NOW_S - 60)), "NodeList": "n1",
            "Timelimit": "00:10:00", **more,
        }  # fmt: skip
        line = "|".join(values.get(name, "") for name in FIELDS)
        self.accounting = f"{self.accounting or '|'.join(FIELDS)}\n{line}"

    def ask(self, command: list[str], timeout_s: float) -> Answer:
        self.calls.append(command[0])
        if command[0] in self.late:
            return Answer(124)
        if command[0] == "squeue":
            if self.queue is None:
                return Answer(
                    1, error="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
                )
            return Answer(0, "".join(f"{line}\n" for line in self.queue))
        if command[0] == "sacct":
            if self.accounting is None:
                return Answer(1, error="Slurm accounting storage is disabled\n")
            return Answer(0, self.accounting)
        shown = self.config if command[1:] == ["show", "config"] else self.shown
        return Answer(0, shown) if shown is not None else Answer(1, error="Invalid job id specified\n")


class MadeStudy:
    """A study under `folder`, whose runs have names and a place each in one array of job 4242."""

    def __init__(self, folder: Path, names: list[str], **more: Any) -> None:
        self.folder = folder
        how = more.pop("how", "each")
        tasks = [names] if how != "each" else [[name] for name in names]
        array = Array(
            0, more.pop("name", "sweep"), tasks, how=how, **{"job_id": "4242", **more.pop("array", {})}
        )
        options = {
            "launcher": SLURM, "created_s": NOW_S - 3600, "user": "me", "host": os.uname().nodename,
            "cwd": "/", "command": "python experiments.py -m seed=0,1", **more,
        }  # fmt: skip
        self.submission = Submission(id="20270115-1", study=folder, arrays=[array], **options)
        folder.mkdir(parents=True, exist_ok=True)
        self.submission.write()
        for number, name in enumerate(names):
            self.run(name)
            add_place(folder / name, Place(self.submission.id, 0, 0 if how != "each" else number))

    def run(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir(exist_ok=True)
        (made / "config.yaml").write_text("seed: 0\n")
        return made

    def status(self, name: str, state: str, age_s: float = 2.0, **more: Any) -> None:
        """status.json, written `age_s` ago."""
        told = {
            "version": 1, "state": state, "stage": "train", "step": 400, "total_steps": 1000, "attempt": 1,
            "heartbeat_s": NOW_S - age_s, "reason": None, "host": "n1", "pid": 100, **more,
        }  # fmt: skip
        path = self.folder / name / "status.json"
        path.write_text(json.dumps(told))
        os.utime(path, (NOW_S - age_s, NOW_S - age_s))

    def outcome(self, name: str, **more: Any) -> None:
        """outcome.json of a supervisor in task 0's job, whose run exited with 1."""
        told = {
            "version": 1, "command": ["python", "core.py"], "pid": 100, "host": "n1", "attempt": 1,
            "started_s": NOW_S - 500, "ended_s": NOW_S - 1, "exit_code": 1, "signal": None, "by": "exit",
            "counters_before": {"oom_kill": 0}, "counters_after": {"oom_kill": 0}, "victim": None,
            "peak_unreclaimable_bytes": 300 << 20, "limit_bytes": 1 << 30, "environment": {}, **more,
        }  # fmt: skip
        (self.folder / name / "outcome.json").write_text(json.dumps(told))

    def killed_for_memory(self, name: str) -> None:
        """What the supervisor leaves of an OOM kill."""
        self.outcome(
            name, exit_code=None, signal="SIGKILL", by="signal", counters_after={"oom_kill": 1},
            victim={"pid": 100, "name": "python", "is_main": True},
            peak_unreclaimable_bytes=(1 << 30) - (1 << 20), limit_at="/slurm/job_4242",
        )  # fmt: skip

    def lock(
        self, name: str, host: str = "n1", pid: int = 100, started_at: int = 1, job: str | None = None
    ) -> None:
        """run.lock of a process."""
        holder = Holder(host, pid, started_at, "2027-01-15 08:00:00", job)
        (self.folder / name / "run.lock").write_text(json.dumps(vars(holder)))

    def wrote(self, name: str, what: str) -> None:
        """The job's stderr, as submitit names it."""
        task = [one for array in self.submission.arrays for tasks in array.tasks for one in tasks].index(name)
        folder = self.submission.folder / "submitit"
        folder.mkdir(exist_ok=True)
        job = self.submission.arrays[0].job_of(task)
        (folder / f"{job}_0_log.err").write_text(what)


def here() -> tuple[str, int, int]:
    """Host, pid and start of this process."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return os.uname().nodename, os.getpid(), started


def in_the_background(folder: Path, names: list[str], job_id: str) -> MadeStudy:
    """Of the local launcher with detach."""
    return MadeStudy(folder, names, launcher=LOCAL, array={"job_id": job_id})


def until(done: Callable[[], bool], timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.2)
