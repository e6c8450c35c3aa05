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
    """One line of PRECEDENCE."""

    rule: str
    """Name of the function in slurm/status/judge.py."""
    states: tuple[str, ...]
    """States that it can return."""


PRECEDENCE: tuple[Step, ...] = (
    Step("cannot_read", ("unreadable",)),
    Step("said_done", ("done",)),
    Step("depends", ("blocked",)),
    Step("waits", ("queued",)),
    Step("lives", ("running", "stalled")),
    Step("starts", ("running", "stalled", "queued")),
    Step("killed_for_memory", ("oom",)),
    Step("row_out_of_memory", ("oom",)),
    Step("gpu_out_of_memory", ("oom",)),
    Step("interrupted", ("cancelled",)),
    Step("ended_by_slurm", ("timeout", "preempted", "cancelled", "node_failed")),
    Step("ended_before_it", ("failed",)),
    Step("said_itself", ("failed", "timeout", "cancelled", "oom", "preempted")),
    Step("was_killed", ("failed", "oom", "timeout", "cancelled", "node_failed")),
    Step("unreadable", ("failed",)),
    Step("never_ran", ("never_started",)),
    Step("unheard", ("queued",)),
)
"""How the state of a run is found: the first line that applies; docs/slurm.md says when each does.
Evidence of an earlier start of a job, or of an earlier submission, counts only if nothing newer is known."""
