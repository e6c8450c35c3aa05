"""The state of a run follows from its files, the answers of Slurm and the stderr of its job: a table."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from made_studies import DEAD_PID, NOW_S, FakeSlurm, MadeStudy, here

from experiment_utils.lock_file import Holder
from memory.explain.verdict.explanation import Explanation
from memory.record.ring import RingWriter
from memory.record.samples import Sample
from slurm.records.submissions import Array, Place
from slurm.records.submitter_liveness import NEVER_SENT, NO_ROOM
from slurm.states import STATES
from slurm.status import RunState, study_states
from slurm.status.run_evidence import RunEvidence
from slurm.status.run_history import RunHistory
from slurm.status.state_table import TABLE, decide
from slurm.status.timeline import events_of, fold
from tests.golden_text import Golden

Row = tuple[str, tuple[Any, ...], dict[str, Any]]
"""Whose answer it is in (squeue or sacct), and the arguments of FakeSlurm's method."""


def began(ago_s: float, word: str = "RUNNING", job: str = "4242_0", nodes: str = "n1") -> Row:
    return "squeue", (job, word, "None"), {"start": str(int(NOW_S - ago_s)), "nodes": nodes}


def waits(reason: str, job: str = "4242_0", state: str = "PENDING", **more: str) -> Row:
    return "squeue", (job, state, reason), more


def row(job: str, word: str, code: str = "0:0", ago_s: float | None = None, **more: str) -> Row:
    """ago_s: of its start."""
    begun = {} if ago_s is None else {"Start": str(int(NOW_S - ago_s))}
    return "sacct", (job, word, code), begun | more


def start(**more: Any) -> dict[str, Any]:
    """Of starts.json: the first of the job."""
    return {"job_id": "4242_0", "restart": 0, "attempt": 1, **more}


def packed(**more: Any) -> dict[str, Any]:
    return start(**{"job_id": "4242", **more})


def status(state: str, age_s: float = 2.0, reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"state": state, "age_s": age_s, "reason": reason, **more}


def array(**more: Any) -> dict[str, Any]:
    return {"array": more}


@dataclass
class Case:
    """What is known of run `a`. Without options of the study, or packed, it has a run `b` too."""

    state: str
    rows: list[Row] = field(default_factory=list)
    status: dict[str, Any] | None = None
    start: dict[str, Any] | None = None
    is_locked: bool = False
    stderr: str = ""
    outcome: dict[str, Any] | None = None
    is_oom_kill: bool = False  # the outcome is one
    study: dict[str, Any] = field(default_factory=dict)
    sampled_s: float | None = None  # age of the newest sample of memory.ring
    is_answering: bool = True  # squeue and sacct answer
    config: str | None = None  # of scontrol
    files: dict[str, str | None] = field(default_factory=dict)  # further files of the run; None: a folder
    more: dict[str, Any] = field(default_factory=dict)  # expected beside the state


RUNS = status("running")
SILENT = status("running", 70)
LONG_SILENT = status("running", 900)
TERMINATED = status("cancelled", 70, "stopped by SIGTERM")
WARNED = status("timeout", 130, "stopped by SIGUSR2")
FAILED = status("failed", 2, "ValueError: no")
OF_A_POLL = "JobAcctGatherParams     = OverMemoryKill\n"
KILLED = "srun: error: n1: task 0: Killed\n"
PACK = {"how": "pack"}
NEVER_ASKED = array(job_id=None)
SENT_TERM = start(end="ended", state="cancelled")
GIVEN_UP = {"restart": 3, "end": "gave_up", "reason": "given up: 3 starts"}
HERE_ENDED = f"{here()[0]}:{DEAD_PID}:1"
HERE = ":".join(map(str, here()))
LOCKED_HERE = json.dumps(vars(Holder(*here(), "2027-01-15 08:00:00", None)))
STOPPED = "stopped by SIGUSR2; the checkpoint of step 7 is kept"
NOT_REQUEUED = f"{STOPPED}; it could not be put back into the queue: disabled"
OUT_OF_GPU_MEMORY = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.15 GiB of which 1.10 GiB is free. Of the allocated memory 76.00 GiB is allocated by PyTorch"
)
RANK_GONE = status("failed", 2, "rank 1 (n2) is gone")
KILLED_BY_A_POLL = (
    "slurmstepd-n2: error: StepId=43.0 exceeded memory limit (526319616 > 524288000), being killed\n"
    "slurmstepd-n2: error: Exceeded job memory limit\nsrun: error: n2: task 0: Killed\n"
)
SUMMED_BY_A_POLL = "StepId=4242_0.0 exceeded memory limit (663957504 > 629145600), being killed"
NODE_LOST = (
    "srun: error: Node failure on n2\n"
    "slurmstepd-n1: error: *** JOB 4242 ON n1 CANCELLED AT 2026-11-26T01:39:08 DUE TO NODE "
    "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
)
ABORTS = "srun: error: Aborting, io error and missing step on node 1\n"
STEP_CANCELLED = "slurmstepd-n1: error: *** STEP 4242.0 ON n1 CANCELLED AT 2026-11-25T20:45:06 ***\n"
OOM_KILL = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=4250.0. Some of the step tasks have been OOM "
    "Killed.\n"
)
LOST = row("4242_0", "NODE_FAIL", ago_s=900, Restarts="0", NodeList="n2")
AGAIN = row("4242_0", "PENDING", Restarts="2", NodeList="", Start="Unknown", End="Unknown")
NODES = {"NodeList": "n[1-2]"}
OTHER_START = start(job_id="4100_7", end="ended", signal="SIGTERM")

ENDED_BEFORE = {"cancelled": "stopped by SIGTERM", "failed": "luckless", "timeout": "stopped by USR2"}
REQUEUED_BY_SLURM = (
    "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2027-01-15T08:00:00 DUE TO JOB REQUEUE ***\n"
)
LOST_SUPERVISOR = {
    "end": "ended", "state": "failed", "reason": "its supervisor was killed by SIGKILL",
    "started_s": NOW_S - 5000,
}  # fmt: skip

CASES = {
    "file that is a folder": Case(
        "unreadable", [waits("Priority")], files={"status.json": None}, more={"rule": "unreadable"}
    ),
    "done": Case("done", status=status("done"), more={"rule": "said_done"}),
    "done, status.json lost": Case(
        "done", [row("4242_0", "COMPLETED", ago_s=60)], start=start(end="done", state="done"),
        more={"rule": "said_done"},
    ),
    "scancel of a shared job before its turn": Case(
        "cancelled", [row("4242", "CANCELLED", ago_s=60)], study={"how": "shared"},
        more={"rule": "cancelled_waiting", "source": "sacct"},
    ),
    "scancel of a shared job, of squeue": Case(
        "cancelled", [began(60, "CANCELLED", job="4242")], study={"how": "shared"},
        more={"rule": "cancelled_waiting", "source": "squeue"},
    ),
    # this machine
    "waits for its turn here": Case(
        "queued", study={"launcher": "local", **array(job_id=HERE)}, more={"rule": "waits_here"}
    ),
    "begins here": Case(
        "running", study={"launcher": "local", **array(job_id=HERE)}, files={"run.lock": LOCKED_HERE},
        more={"rule": "begins"},
    ),
    "launcher ended": Case(
        "never_started", study={"launcher": "local", **array(job_id=HERE_ENDED)},
        more={"rule": "abandoned"},
    ),
    # a job that waits
    "no room in the queue": Case(
        "never_started", study=array(job_id=None, error=NO_ROOM, waiter=HERE), more={"rule": "not_sent"}
    ),
    "its turn in its job has not come": Case(
        "queued", [began(60, job="4242")], study={"how": "workers"}, more={"rule": "waits_in_job"}
    ),
    "job without a word for long": Case("stalled", [began(900)], more={"rule": "job_silent"}),
    "start in a year": Case("queued", [waits("Resources", start=str(int(NOW_S + 364 * 86400)))]),
    "dependency never satisfied": Case(
        "blocked", [waits("DependencyNeverSatisfied")], more={"rule": "never_satisfied"}
    ),
    "requeued": Case("queued", [waits("BeginTime")], WARNED),
    "requeued and held": Case(
        "queued", [waits("job requeued in held state")], status("cancelled", 130, "stopped by SIGTERM")
    ),
    "submitted again after a failure": Case(
        "queued", [waits("Priority")], status("failed", 9000, "ValueError: no")
    ),
    "preempted and requeued": Case(
        "queued", [waits("BeginTime")], WARNED,
        start(end="requeued", state="preempted", ended_s=NOW_S - 128),
    ),
    "preempted and started again": Case(
        "running", [began(2, nodes="n2")], WARNED,
        start(end="requeued", state="preempted", ended_s=NOW_S - 128),
    ),
    "preempted, only Slurm knows": Case(
        "queued", [row("4242_0", "PREEMPTED"), waits("BeginTime")], status("running", 130)
    ),
    "being requeued, of squeue": Case(
        "queued", [began(0, "COMPLETING")], status("timeout", 3, "stopped by SIGUSR2"),
        start(ended_s=NOW_S - 3, end="requeued"),
    ),
    "being requeued, of both": Case(
        "queued", [began(0, "COMPLETING"), row("4242_0", "REQUEUED", ago_s=500, End=str(int(NOW_S - 3)))],
        status("timeout", 3, "stopped by SIGUSR2"), start(ended_s=NOW_S - 3, end="requeued"),
    ),
    "requeued, Slurm is silent": Case(
        "queued", [], WARNED, start(end="requeued", state="timeout"), is_answering=False
    ),
    # a job that runs
    "runs": Case("running", [began(100)], RUNS, is_locked=True),
    "silent for a while": Case("running", [began(100)], status("running", 45), is_locked=True),
    "stalled": Case("stalled", [began(5000)], status("running", 1200), is_locked=True),
    "clocks apart": Case(
        "running", [began(5000)], status("running", heartbeat_s=NOW_S - 4000), is_locked=True
    ),
    "suspended": Case("running", [began(5000, "SUSPENDED")], status("running", 10), is_locked=True),
    "suspended for long": Case(
        "running", [began(5000, "SUSPENDED")], status("running", 4000), is_locked=True
    ),
    "on two nodes": Case("running", [began(90, nodes="n[1-2]")], RUNS),
    "later start without a word": Case(
        "running", [began(5, nodes="n2")], status("timeout", 300, "stopped by SIGUSR2")
    ),
    "start that ends before its first word": Case("running", [began(9, "COMPLETING")]),
    # sacct of 22.05: the range still names the task that has begun
    "range that names a task that has begun": Case(
        "running",
        [
            began(100), row("4242_0", "RUNNING", JobIDRaw="4243", End="Unknown"),
            row("4242_[0-1%1]", "PENDING", JobIDRaw="4242", Start="Unknown", End="Unknown"),
        ],
        RUNS, start(end=None), is_locked=True, more={"rule": "runs"},
    ),
    # submitted again, the new job began within what clocks may be apart
    "stopped a moment ago in another job": Case(
        "running", [began(2)], status("cancelled", 12, "stopped by SIGTERM"), OTHER_START
    ),
    # a run that has just stopped may resume in the same job
    "its job judges a warning": Case(
        "running", [began(500)], status("timeout", 3, "stopped by SIGUSR2"), start(end=None)
    ),
    "its job judges a termination": Case(
        "running", [began(500)], status("cancelled", 3, "stopped by SIGTERM"), start(end=None)
    ),
    "its job has not judged a warning": Case(
        "timeout", [began(500)], status("timeout", 90, "stopped by SIGUSR2"), start(end=None)
    ),
    "its job has not judged a termination": Case(
        "failed", [began(500)], status("cancelled", 90, "stopped by SIGTERM"), start(end=None)
    ),
    "second start leaves its outcome": Case(
        "running", [began(900)], status("running", 1), is_locked=True,
        outcome={"attempt": 2, "exit_code": 2, "ended_s": NOW_S - 30},
    ),
    # said by the run
    "done by Ctrl-C": Case(
        "cancelled", [row("4242_0", "TIMEOUT")], status("cancelled", 2, "interrupted (Ctrl-C)")
    ),
    "failed with a traceback": Case(
        "failed", [row("4242_0", "FAILED", "1:0")],
        status("failed", 2, "ZeroDivisionError: division by zero"), outcome={},
    ),
    "GPU out of memory": Case(
        "oom", [row("4242_0", "FAILED", "1:0")], status("failed", 2, OUT_OF_GPU_MEMORY), outcome={},
        more={"rule": "said_oom"},
    ),
    "failed and its job is about to": Case(
        "failed", [began(500, "COMPLETING")], status("failed", 3, "ValueError: no")
    ),
    "stopped in time and not requeued": Case(
        "timeout", [row("4242_0", "FAILED", "1:0", Restarts="0")], status("timeout", 130, STOPPED),
        start(end="ended", reason=NOT_REQUEUED), more={"reason": NOT_REQUEUED},
    ),
    "stopped in time, another attempt not requeued": Case(
        "timeout", [row("4242_0", "FAILED", "1:0", Restarts="0")], status("timeout", 130, STOPPED),
        start(end="ended", reason=NOT_REQUEUED, attempt=0), more={"reason": STOPPED},
    ),
    # Slurm's row says FAILED then: the job ended before its grace was over
    "stopped for another job": Case(
        "preempted", [began(500, "FAILED")], status("cancelled", 30, "stopped by SIGTERM"),
        start(end="ended", state="preempted"),
    ),
    # SIGTERM means cancelled only if Slurm or the launcher sent it
    "kill PID, job failed": Case(
        "failed", [row("4242_0", "FAILED", "1:0")], TERMINATED, more={"rule": "terminated"}
    ),
    "kill PID, job completed": Case(
        "failed", [row("4242_0", "COMPLETED", "1:0")], TERMINATED, more={"rule": "terminated"}
    ),
    "scancel of the job": Case("cancelled", [row("4242_0", "CANCELLED by 0", "1:0")], TERMINATED),
    "scancel of the step": Case(
        "cancelled", [row("4242_0", "FAILED", "1:0"), row("4242_0.0", "CANCELLED by 0", "0:15")], TERMINATED
    ),
    "SIGTERM, Slurm is silent": Case("failed", [], TERMINATED, SENT_TERM, is_answering=False),
    "SIGTERM of the job, Slurm is silent": Case(
        "cancelled", [], TERMINATED, SENT_TERM | {"signal": "SIGTERM"}, is_answering=False
    ),
    "SIGTERM here that its launcher did not send": Case(
        "failed", [], TERMINATED, study={"launcher": "local", **array(job_id=HERE_ENDED, cancelled_s=None)}
    ),
    "SIGTERM here that its launcher sent": Case(
        "cancelled", [], TERMINATED,
        study={"launcher": "local", **array(job_id=HERE_ENDED, cancelled_s=NOW_S - 75)},
    ),
    # the kernel, a poll of RSS, kill -9
    "OOM kill in the step alone": Case(
        "oom", [row("4242_0", "FAILED", "1:0"), row("4242_0.0", "OUT_OF_MEMORY", "0:125")], SILENT,
        is_locked=True, more={"rule": "row_out_of_memory"},
    ),
    "killed without a word": Case(
        "failed", [row("4242_0", "FAILED", "0:9")], LONG_SILENT, is_locked=True, more={"rule": "killed"}
    ),
    "accounting did not hear of the end": Case(
        "failed", [row("4242_0", "RUNNING", End="Unknown")], LONG_SILENT, is_locked=True,
        more={"rule": "killed"},
    ),
    # they were heard of together, a minute ago: what they said then is as old as that
    "killed with its supervisor": Case(
        "cancelled", [row("4242_0", "CANCELLED by 0", "0:9")], status("running", 62), is_locked=True,
        sampled_s=60, more={"rule": "row_cancelled"},
    ),
    # a real Slurm 22.05: its daemon cancels in the name of root
    "step ended by a poll of RSS": Case(
        "failed",
        [
            row("4242_0", "FAILED", "9:0", ReqMem="330M"),
            row("4242_0.0", "CANCELLED by 0", "0:9", MaxRSS="357684K"),
        ],
        LONG_SILENT, is_locked=True, config=OF_A_POLL,
    ),
    "step cancelled below the limit of a poll": Case(
        "cancelled",
        [
            row("4242_0", "FAILED", "9:0", ReqMem="330M"),
            row("4242_0.0", "CANCELLED by 0", "0:9", MaxRSS="327684K"),
        ],
        LONG_SILENT, is_locked=True, config=OF_A_POLL,
    ),
    # it adds up all ranks; MaxRSS is of the largest
    "ranks ended by a poll of RSS": Case(
        "failed",
        [
            row("4242_0", "FAILED", "9:0", ReqMem="600M"),
            row("4242_0.0", "CANCELLED by 0", "0:9", MaxRSS="324704K"),
        ],
        LONG_SILENT, start(), is_locked=True, config=OF_A_POLL,
        stderr=f"slurmstepd-n1: error: {SUMMED_BY_A_POLL}\nsrun: error: n1: task 0: Killed\n",
    ),
    # srun ends the step then, and Slurm calls that CANCELLED, by no one
    **{
        f"process next to the run killed, {how}": Case(
            "failed",
            [
                row("4242", "FAILED", "9:0"), row("4242.batch", "FAILED", "9:0"),
                row("4242.0", "CANCELLED", "0:9"),
            ],
            SILENT, stderr=KILLED, study={"how": how}, more={"rule": "killed"},
        )
        for how in ("each", "workers")
    },
    # scancel 4242_0.0 left the run no word
    "step cancelled under its run": Case(
        "cancelled", [row("4242_0", "FAILED", "9:0"), row("4242_0.0", "CANCELLED by 0", "0:9")], SILENT,
        outcome={
            "exit_code": None, "signal": "SIGKILL",
            "environment": {"SLURM_JOB_ID": "4242", "SLURM_STEP_ID": "0"},
        },
    ),
    "step ended by srun under its run": Case(
        "failed", [row("4242_0", "FAILED", "9:0"), row("4242_0.0", "CANCELLED", "0:9")], SILENT,
        outcome={
            "exit_code": None, "signal": "SIGKILL",
            "environment": {"SLURM_JOB_ID": "4242", "SLURM_STEP_ID": "0"},
        },
    ),
    "killed for memory, by stderr alone": Case(
        "oom", [], SILENT, start(), stderr=OOM_KILL, more={"rule": "killed_oom"}
    ),
    "killed, by stderr of an earlier start for memory": Case(
        "failed", [], SILENT, start(restart=1, end="ended", state="failed", reason="killed by SIGKILL"),
        stderr=OOM_KILL,
    ),
    "killed when the time of another batch system was up": Case(
        "timeout", [], SILENT, start(),
        files={"log.txt": "=>> PBS: job killed: walltime 3630 exceeded limit 3600\n"},
        more={"rule": "killed_timeout"},
    ),
    "ran out of memory, by its own word": Case(
        "oom", [row("4242_0", "FAILED", "1:0")], status("oom", 2, "no memory left"), more={"rule": "said_oom"}
    ),
    "process ended before its first word": Case(
        "never_started", study=NEVER_ASKED, outcome={}, more={"rule": "exited"}
    ),
    "damaged file": Case("failed", study=NEVER_ASKED, files={"status.json": "{"}, more={"rule": "damaged"}),
    # a node that is lost
    "started again and failed before its first word": Case(
        "failed",
        [
            row("4242_0", "NODE_FAIL", ago_s=900, Restarts="0"),
            row("4242_0", "FAILED", "1:0", ago_s=100, Restarts="1"),
        ],
        status("timeout", 500, "stopped by SIGUSR2"), start(), more={"rule": "later_start_failed"},
    ),
    "rank gone while Slurm thinks its node well": Case(
        "failed", [began(60, nodes="n[1-2]"), row("4242_0", "RUNNING", "1:0")], RANK_GONE,
    ),
    **{
        # a real Slurm 22.05, the reboot of one of two nodes: srun ends the step, in the name of root
        f"node that came back: {missing}": Case(
            "node_failed",
            [row("4242_0", "FAILED", "9:0", **NODES), row("4242_0.0", "CANCELLED by 0", "0:9", **NODES)],
            SILENT, start(), stderr=f"srun: error: Aborting, {missing} on node 1\n{STEP_CANCELLED}{KILLED}",
        )
        for missing in ("io error and missing step", "step missing and io error")
    },
    **{
        # a real Slurm 22.05 wrote of two starts into one file: kill -9 of all of the second
        f"earlier start lost a node, {'this one too' if aborts else 'this one was killed'}": Case(
            state,
            [
                row("4242_0", "FAILED", "9:0", Restarts="1", **NODES),
                row("4242_0.0", "CANCELLED", "0:9", **NODES),
            ],
            SILENT, start(restart=1), stderr=NODE_LOST + ABORTS * aborts + KILLED,
        )
        for aborts, state in ((False, "failed"), (True, "node_failed"))
    },
    # Slurm forgets a task of an array that waits as soon as it is cancelled
    "cancelled in the queue": Case("cancelled", [], study=array(cancelled_tasks={"0": NOW_S - 5})),
    "forgotten, another task cancelled": Case("never_started", study=array(cancelled_tasks={"1": NOW_S - 5})),
    **{
        f"cancelled out of {name}": Case(
            "cancelled",
            [
                row(name, "PENDING", JobIDRaw="4242", Start="Unknown", End="Unknown"),
                waits("Priority", "4242_1"),
            ],
            more={"source": "squeue"},
        )
        for name in ("4242_[0-1%2]", "4242_[1%2]")
    },
    # slurmd died alone, and a copy of the run outlives its start
    "copy that outlives its start while the next looks at it": Case(
        "running", [LOST, row("4242_0", "RUNNING", ago_s=20, Restarts="1"), began(20)], RUNS, start(),
        is_locked=True,
    ),
    "copy that outlives its start while its job waits": Case(
        "running", [LOST, AGAIN, waits("BeginTime")], RUNS, start(), is_locked=True
    ),
    "copy that has ended while its job waits": Case(
        "queued", [LOST, AGAIN, waits("BeginTime")], TERMINATED, start(), is_locked=True
    ),
    "copy that has been silent while its job waits": Case(
        "queued", [LOST, AGAIN, waits("BeginTime")], SILENT, start(), is_locked=True
    ),
    **{
        f"copy that Slurm ended when its node came back, restarts {count or 'unknown'}": Case(
            "node_failed",
            [
                row("4242_0", "NODE_FAIL", ago_s=900, Restarts=count),
                row("4242_0", "COMPLETED", ago_s=700, Restarts=count and "1"),
            ],
            status("cancelled", 30, "stopped by SIGTERM"), start(), more={"rule": "lost_node"},
        )
        for count in ("0", "")
    },
    "copy that got Ctrl-C after its node was lost": Case(
        "cancelled", [LOST, row("4242_0", "COMPLETED", ago_s=700, Restarts="1")],
        status("cancelled", 30, "interrupted (Ctrl-C)"), start(),
    ),
    # a start at a time that was asked for, and one after a requeue
    "begins later, as asked": Case("queued", [waits("BeginTime", start=str(int(NOW_S + 3600)))]),
    "begins later after a lost node": Case("queued", [LOST, waits("BeginTime")], None, start()),
    "side by side": Case("running", [began(8, job="4242")], study=PACK),
    # never started
    "import error before the run": Case(
        "never_started", [row("4242_0", "FAILED", "1:0")],
        stderr="Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'\n"
        "srun: error: n1\n",
    ),
    "given up before the first word": Case(
        "never_started", [row("4242_0", "FAILED", "1:0", Restarts="3")], None, start(**GIVEN_UP),
        stderr="srun: error: n1: task 0: Exited with exit code 1\n",
    ),
    "another job given up before the first word": Case(
        "never_started", [row("4242_0", "FAILED", "1:0", Restarts="3")], None,
        start(**GIVEN_UP, job_id="4100_0"), stderr="srun: error: n1: task 0: Exited with exit code 1\n",
    ),
    # 22.05.8: srun's last line says no more than `Killed`
    "poll of RSS before the first word": Case(
        "never_started", [row("4242_0", "FAILED", "9:0")], stderr=KILLED_BY_A_POLL
    ),
    "command of its script does not exist": Case(
        "never_started", [row("4242_0", "FAILED", "1:0")],
        stderr="/var/spool/slurmd/job04242/slurm_script: line 18: module: command not found\n",
    ),
    "refused by sbatch": Case(
        "never_started",
        study=array(job_id=None, error="sbatch: error: invalid partition specified: gpux"),
    ),
    "refused by sbatch after a failure": Case(
        "failed", [], FAILED,
        study=array(job_id=None, error="sbatch: error: invalid partition specified: gpux"),
    ),
    "submitter died": Case("never_started", study=NEVER_ASKED),
    "submitter died, its job is found": Case(
        "queued", [waits("Priority", "77", raw="77")], study=NEVER_ASKED, more={"job": "77"}
    ),
    "being submitted": Case("queued", study={"created_s": NOW_S - 3, **NEVER_ASKED}),
    "known as never sent": Case("never_started", study=array(job_id=None, error=NEVER_SENT)),
    "step of a packed run never came up": Case(
        "never_started",
        [began(400, job="4242"), row("4242", "RUNNING", ago_s=400, Restarts="0", End="Unknown")], None,
        packed(end="ended", reason="its step ended"), study=PACK, more={"source": "starts.json"},
    ),
    "step of a packed run never came up, job cancelled": Case(
        "never_started", [row("4242", "CANCELLED by 0", Restarts="0")], None,
        packed(end="ended", reason="its step ended"), study=PACK, more={"source": "starts.json"},
    ),
    **{
        f"stopped as {said}, submitted again, cancelled while it waited, {where}": Case(
            "cancelled", [], status(said, 4000, reason),
            study={"launcher": where, **array(cancelled_s=NOW_S - 5, job_id="7")},
        )
        for where in ("slurm", "local")
        for said, reason in ENDED_BEFORE.items()
    },
    **{
        f"stopped as {said}, submitted again, cancelled when it had begun": Case(
            "failed" if said == "cancelled" else said, [row("7", "FAILED", "1:0")],
            status(said, 4000, reason), study=array(cancelled_s=NOW_S - 5, job_id="7"),
        )
        for said, reason in ENDED_BEFORE.items()
    },
    **{
        f"submitted again here after {said}": Case(
            "queued", [], status(said, 4000), study={"launcher": "local", **array(job_id=HERE)},
            more={"rule": "waits_here"},
        )
        for said in (*ENDED_BEFORE, "oom")
    },
    **{
        f"ended as {said} in its newest submission here": Case(
            said, [], status(said, 100), study={"launcher": "local", **array(job_id=HERE)}
        )
        for said in (*ENDED_BEFORE, "oom")
    },
    # a line of slurm.setup fails on another node; what attempt 1 said when it was requeued is of the past
    **{
        f"{said}, and a later start failed before the run{', with a line' * bool(line)}": Case(
            "failed",
            [
                row("4242_0", "CANCELLED", Restarts="0"),
                row("4242_0", "FAILED", "3:0", ago_s=100, Restarts="1"),
            ],
            status(said, 500, None if said == "running" else "stopped by SIGTERM"),
            start(end="ended", state=said), stderr=f"step 9\n{REQUEUED_BY_SLURM}{line}",
        )
        for said in ("cancelled", "running", "timeout")
        for line in ("no scratch on this node\n", "")
    },
    **{
        f"failed in a job of {how} that is {word} again": Case(
            "failed",
            [
                began(400, word, job="4242"),
                row("4242", word, ago_s=400, Restarts="1", End="Unknown"),
            ],
            status("running", 4000), packed(**LOST_SUPERVISOR), study={"how": how},
        )
        for how, word in (("pack", "RUNNING"), ("pack", "PENDING"), ("workers", "PENDING"))
    },
    "asked to stop in a shared job that waits again": Case(
        "queued",
        [waits("None", job="4242"), row("4242", "PENDING", ago_s=400, Restarts="1", End="Unknown")],
        status("running", 4000), packed(**LOST_SUPERVISOR, signal="SIGTERM"), study=PACK,
    ),
    **{
        f"{state} in a job of {how} that was cancelled": Case(
            state, [row("4242", "CANCELLED by 0", Restarts="0")], status("running", 70), end,
            study={"how": how},
        )
        for how in ("pack", "workers")
        for state, end in (
            ("failed", packed(end="ended", reason="killed by SIGKILL")), ("cancelled", None)
        )
    },
    "failed by itself in a job that went on": Case(
        "failed", [row("4242", "TIMEOUT", ago_s=5000)], status("failed", 4000, "ValueError: no"), study=PACK
    ),
    "ran in a shared job until its limit": Case(
        "timeout", [row("4242", "TIMEOUT", ago_s=5000)], status("running", 70), study=PACK
    ),
    **{
        f"its turn in its job came {ago_s} s ago, end {end}": Case(
            state, [began(5000, job="4242")], None, packed(started_s=NOW_S - ago_s, end=end),
            study={"how": "workers"},
        )
        for ago_s, end, state in (
            (10, None, "running"), (1000, None, "stalled"), (9000, None, "queued"), (10, "requeued", "queued")
        )
    },
    # put back, the job has fewer runs, and the number is that of another run's step
    "step of the start that it was in": Case(
        "cancelled",
        [
            row("4242", "REQUEUED", ago_s=5000, End=str(int(NOW_S - 3000)), Restarts="0"),
            row("4242.1", "CANCELLED by 0", "0:9", ago_s=5000, End=str(int(NOW_S - 3000)), Restarts="0"),
            began(400, job="4242"), row("4242", "RUNNING", ago_s=400, Restarts="1", End="Unknown"),
            row("4242.1", "OUT_OF_MEMORY", "0:125", ago_s=400, Restarts="1"),
        ],
        status("running", 4000), packed(end="ended", reason="its step ended"), study=PACK,
        outcome={"exit_code": None, "signal": "SIGKILL", "environment": {"SLURM_STEP_ID": "1"}},
    ),
    # a second copy ended the job well, and left the first alone; then that one's node died
    "left by a dead node, job completed": Case(
        "failed", [began(500, "COMPLETED", nodes="n2")], status("running", 42), sampled_s=40,
        files={"log.txt": "2027-01-15 08:00:00 [mem] checkpoint step 1,200\n"},
    ),
    "submission that cannot be read": Case(
        "queued", files={"../.submissions/20270115-1/submission.json": "{"}
    ),
    "job that was renamed": Case(
        "queued", [waits("Resources", job="4242", name="mine", submit=str(int(NOW_S - 502)))],
        study=array(submitted_s=NOW_S - 500), more={"source": "squeue"},
    ),
    **{
        f"damaged {' and '.join(names)}, job {word}": Case(
            state, [began(30)] if word == "RUNNING" else [row("4242_0", word)],
            files=dict.fromkeys(names, "\x00?" * 40), more={"rule": rule},
        )
        for names in (("status.json",), ("status.json", "jobs.json"))
        for word, state, rule in (("RUNNING", "running", "job_begins"), ("COMPLETED", "failed", "damaged"))
    },
    # a real Slurm 22.05: nothing is written anywhere
    "node that does not see the folder": Case(
        "never_started", [row("4242_0", "FAILED", "0:53"), row("4242_0.batch", "CANCELLED", "0:53")],
        more={"rule": "job_over"},
    ),
    "later node that does not see the folder": Case(
        "failed", [row("4242_0", "FAILED", "0:53", Restarts="1")], status("timeout", 4000),
        start(end="requeued"), stderr="of the start before\n", more={"rule": "later_start_failed"},
    ),
    "numbers of another cluster": Case(
        "failed",
        [row("4242_0", "COMPLETED", JobName="another"), waits("None", state="RUNNING", name="another")],
        FAILED,
    ),
}  # fmt: skip
for _word in ("COMPLETED", "FAILED", "CANCELLED by 0", "TIMEOUT", "PREEMPTED", "NODE_FAIL"):
    CASES[f"OOM kill that the supervisor saw, row {_word}"] = Case(
        "oom", [row("4242_0", _word)], RUNS, is_oom_kill=True, more={"rule": "killed_for_memory"}
    )
for _word in ("COMPLETING", "FAILED"):  # the run said a moment ago that it runs: its supervisor was killed
    CASES[f"end that its job alone saw, {_word}"] = Case(
        "failed", [began(500, _word)], status("running", 3),
        start(end="ended", state="failed", reason="its supervisor was killed by SIGKILL (on n1)"),
        more={"source": "starts.json"},
    )  # fmt: skip
for _word, _state in {
    "TIMEOUT": "timeout", "DEADLINE": "timeout", "PREEMPTED": "preempted", "CANCELLED by 0": "cancelled",
    "NODE_FAIL": "node_failed",
}.items():  # fmt: skip
    for _own in ("running", "cancelled", "timeout", "failed"):
        _reason = None if _own == "running" else "stopped by SIGTERM"
        CASES[f"row {_word} goes before {_own}"] = Case(
            _state, [row("4242_0", _word)], status(_own, 70, _reason), more={"rule": f"row_{_state}"}
        )


def study_of(case: Case, slurm: FakeSlurm, folder: Path) -> MadeStudy:
    names = ["a", "b"] if case.study in ({}, PACK) else ["a"]
    study = MadeStudy(folder / "runs" / "sweep", names, **case.study)
    for whose, arguments, more in case.rows:
        (slurm.wait if whose == "squeue" else slurm.row)(*arguments, **more)
    if not case.is_answering:
        slurm.queue = slurm.accounting = None
    slurm.config = case.config
    if case.status is not None:
        study.status("a", **case.status)
    if case.is_locked:
        study.lock("a")
    if case.start is not None:
        (study.folder / "a" / "starts.json").write_text(json.dumps({"starts": [case.start]}))
    if case.stderr:
        study.wrote("a", case.stderr)
    if case.outcome is not None:
        study.outcome("a", **case.outcome)
    if case.is_oom_kill:
        study.killed_for_memory("a")
    for name, text in case.files.items():
        path = study.folder / "a" / name
        path.mkdir() if text is None else path.write_text(text)
    if case.sampled_s is not None:
        path = study.folder / "a" / "memory.ring"
        with RingWriter(path, {"pid": 100}) as ring:
            ring.add(Sample(NOW_S - case.sampled_s))
        os.utime(path, (NOW_S - case.sampled_s, NOW_S - case.sampled_s))
    return study


def entry_of(name: str, folder: Path) -> RunState:
    case, slurm = CASES[name], FakeSlurm()
    study = study_of(case, slurm, folder)
    return study_states(study.folder, ask=slurm.ask, now_s=NOW_S)[0]


@pytest.mark.parametrize("name", CASES)
def test_state(name: str, tmp_path: Path, golden: Golden) -> None:
    case, found = CASES[name], entry_of(name, tmp_path)
    assert {key: getattr(found, key) for key in ("state", *case.more)} == {"state": case.state, **case.more}
    golden.text(str(found.reason))


def test_each_row_of_the_table_has_a_case(tmp_path: Path) -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    assert {row.state for row in TABLE} == set(STATES)
    found = {entry_of(name, tmp_path / str(place)).rule for place, name in enumerate(CASES)}
    assert [row.name for row in TABLE if row.name not in found] == []


@pytest.mark.parametrize(("cause", "rule"), [("scancel", "killed"), ("signal", "killed_explained")])
def test_a_later_scancel_of_its_job_does_not_explain_a_death_that_the_job_noted(
    cause: str, rule: str
) -> None:
    note = {"job_id": "4242", "restart": 0, "attempt": 1, "end": "ended", "reason": "its step was killed"}
    array = Array(0, "sweep", [["a"], ["b"]], how="shared", job_id="4242")
    known = RunEvidence(
        Path("s/a"), {"state": "running", "attempt": 1}, silent_s=900.0, notes=(note,), array=array,
        place=Place("1", 0, 0),
    )  # fmt: skip
    explained = Explanation("killed_from_outside", cause, "It was cancelled.", "certain")
    starts = fold(events_of(known, "4242", None, ()), "4242")
    history = RunHistory(known, NOW_S, starts, in_queue=True, explain=lambda: explained)
    assert decide(history).rule == rule
