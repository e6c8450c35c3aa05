"""The states of a run, and what the words of Slurm and of memory mean as states."""

from __future__ import annotations

STATES = (
    "queued", "running", "stalled", "done", "failed", "oom", "timeout", "preempted", "cancelled",
    "node_failed", "never_started", "blocked", "unreadable",
)  # fmt: skip

ENDED = ("done", "failed", "oom", "timeout", "preempted", "cancelled", "node_failed", "never_started")
"""The run does not continue by itself. One whose job was requeued after a timeout is `queued` or `running`;
an `unreadable` one can be in any state.
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
"""Slurm's job states: slurm.h; JOB STATE CODES in sacct(1) and squeue(1), 20.11 to 25.11."""

FROM_VERDICT = {
    "oom_cgroup": "oom", "oom_host": "oom", "oom_gpu": "oom",
    "memory_error": "failed", "shm_full": "failed", "terminated": "failed", "killed_from_outside": "failed",
    "unknown": "failed", "failed": "failed", "timeout": "timeout", "healthy": "done",
}  # fmt: skip
"""Verdicts of `memory explain`. A row of Slurm that says preempted, timeout, cancelled or node_failed goes
before `failed`; an OOM kill goes before every row. Ctrl-C is `cancelled`; so is SIGTERM from `slurm cancel`,
or from a launcher that was asked to stop.
"""
