"""The states of a run, one list for every room, and how each source's words become one of them."""

from __future__ import annotations

from dataclasses import dataclass

STATES = (
    "queued", "running", "stalled", "done", "failed", "oom", "timeout", "preempted", "cancelled",
    "node_failed", "never_started", "blocked", "unreadable",
)  # fmt: skip

ENDED = ("done", "failed", "oom", "timeout", "preempted", "cancelled", "node_failed", "never_started")
"""Nothing will go on by itself. A timeout or preemption whose job was requeued is `queued` or `running`; an
`unreadable` run may be of any state.
"""

FROM_SLURM = {
    "PENDING": "queued", "REQUEUED": "queued", "REQUEUE_HOLD": "queued", "REQUEUE_FED": "queued",
    "SPECIAL_EXIT": "queued", "RESV_DEL_HOLD": "queued", "CONFIGURING": "queued",
    "RUNNING": "running", "COMPLETING": "running", "SUSPENDED": "running", "STOPPED": "running",
    "SIGNALING": "running", "STAGE_OUT": "running", "RESIZING": "running", "EXPEDITING": "queued",
    "COMPLETED": "done", "FAILED": "failed", "OUT_OF_MEMORY": "oom", "TIMEOUT": "timeout",
    "DEADLINE": "timeout", "PREEMPTED": "preempted", "CANCELLED": "cancelled", "REVOKED": "cancelled",
    "NODE_FAIL": "node_failed", "BOOT_FAIL": "node_failed", "LAUNCH_FAILED": "never_started",
    "RECONFIG_FAIL": "node_failed",
}  # fmt: skip
"""Slurm's job states: slurm.h and the section JOB STATE CODES of sacct(1) and squeue(1), 20.11 to 25.11."""

FROM_VERDICT = {
    "oom_cgroup": "oom", "oom_host": "oom", "oom_gpu": "oom",
    "memory_error": "failed", "shm_full": "failed", "terminated": "failed", "killed_from_outside": "failed",
    "unknown": "failed", "failed": "failed", "timeout": "timeout", "healthy": "done",
}  # fmt: skip
"""Memory's word for how a run ended. Where Slurm's row says preempted, timeout, cancelled or node_failed,
that goes before `failed`; an OOM kill goes before all of them. Ctrl-C is `cancelled`, and so is a SIGTERM
that `slurm cancel`, or the launcher when it was asked to stop itself, has passed on.
"""


@dataclass(frozen=True)
class Step:
    """One line of PRECEDENCE. rule: name of the function in slurm/truth/judge.py. states: what it may say.
    evidence: where it looks. applies: when.
    """

    rule: str
    states: tuple[str, ...]
    evidence: str
    applies: str


PRECEDENCE: tuple[Step, ...] = (
    Step(
        "cannot_read",
        ("unreadable",),
        "-",
        "the run's folder, or a file that its state is known from, cannot be read (a permission, an error of "
        "the file system): how the run is, is not known, and no command acts on it",
    ),
    Step("said_done", ("done",), "status.json", "the run says that it is done"),
    Step(
        "depends",
        ("blocked",),
        "squeue",
        "the job waits with DependencyNeverSatisfied, and no process of the run lives",
    ),
    Step(
        "waits",
        ("queued",),
        "squeue, else sacct",
        "the job waits, also again after a requeue, and no process of the run lives; or the queue had no "
        "room for it (MaxSubmitJobs, MaxJobCount), and the command that is to submit it waits",
    ),
    Step(
        "lives",
        ("running", "stalled"),
        "status.json, run.lock, memory.ring",
        "the run says that it runs, and neither its process nor its job is known to have ended; `stalled` "
        "without a heartbeat for 5 minutes",
    ),
    Step(
        "starts",
        ("running", "stalled", "queued"),
        "squeue, else sacct",
        "the job runs, and the run has said nothing in this start of it, or stopped a moment ago because it "
        "was asked to; `queued` where it shares its job and has not had its turn, and while the job is put "
        "back into the queue",
    ),
    Step(
        "killed_for_memory",
        ("oom",),
        "outcome.json",
        "the supervisor saw the kernel kill it, or a process of it, for memory: no row of Slurm hides that",
    ),
    Step(
        "row_out_of_memory",
        ("oom",),
        "sacct: rows of the job and its steps, squeue",
        "a row says OUT_OF_MEMORY, or ended by signal 125",
    ),
    Step("gpu_out_of_memory", ("oom",), "memory explain", "the GPU's memory did not suffice"),
    Step(
        "interrupted",
        ("cancelled",),
        "status.json",
        "Ctrl-C reached the run",
    ),
    Step(
        "ended_by_slurm",
        ("timeout", "preempted", "cancelled", "node_failed"),
        "squeue, sacct, scontrol",
        "the row of the job says TIMEOUT, DEADLINE, PREEMPTED, CANCELLED, NODE_FAIL, ...; not of a run that "
        "had failed by itself while its job went on. `node_failed` also where the start that the run was in "
        "lost its node, and a later one left the run alone; `cancelled` also where a task of an array that "
        "waits, or is not there, by sacct is not listed by squeue",
    ),
    Step(
        "ended_before_it",
        ("failed",),
        "sacct, the job's stderr",
        "the job was started again, and ended as FAILED before the run said a word",
    ),
    Step(
        "said_itself",
        ("failed", "timeout", "cancelled", "oom", "preempted"),
        "status.json, starts.json, memory explain",
        "the run said why it ended: the last line of its traceback; `preempted` where it stopped in time and "
        "its job is not to be started again; SIGTERM is `failed`; `cancelled` where `slurm cancel` or its "
        "own launcher has sent it, or Slurm's row of its step says by whom that was cancelled",
    ),
    Step(
        "was_killed",
        ("failed", "oom", "timeout", "cancelled", "node_failed"),
        "outcome.json, memory explain, starts.json, sacct",
        "its process ended without a word: memory's verdict, by FROM_VERDICT; `node_failed` where srun wrote "
        "into the job's stderr that a node went away under its step; `cancelled` where Slurm's row "
        "of its step alone says CANCELLED, and by whom",
    ),
    Step(
        "unreadable",
        ("failed",),
        "-",
        "files of the run are damaged, and no job of it is known to be queued or running",
    ),
    Step(
        "never_ran",
        ("never_started",),
        "submission.json, the job's stderr, starts.json, squeue, sacct",
        "sbatch refused it, or its job or launcher ended without a word of the run, or what was to submit or "
        "start it ended before it had, or the queue had no room for it",
    ),
    Step(
        "unheard", ("queued",), "-", "nothing of the above: it has not been started, or Slurm does not answer"
    ),
)
"""How the state of a run is found: the first line that applies. Evidence of an earlier start of a job, or of
an earlier submission, counts only where nothing newer is known."""
