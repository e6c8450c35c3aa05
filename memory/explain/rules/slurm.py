"""Ends that Slurm reports: in its log lines, in its rows of the job and of each step."""

from __future__ import annotations

from experiment_utils.quantities import format_bytes
from memory.explain.evidence.slurm_rows import FROM_OUTSIDE
from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, UNKNOWN, TableRow, at_most, if_so
from memory.explain.signals import Signals

_ASKING = {1: "SIGHUP", 2: "SIGINT", 10: "SIGUSR1", 12: "SIGUSR2", 15: "SIGTERM"}
_NOT_OVER = (
    "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESIZING", "CONFIGURING",
    "RUNNING", "COMPLETING", "STAGE_OUT", "SUSPENDED", "STOPPED", "SIGNALING",
)  # fmt: skip
"""States in which a job is not over (squeue(1), JOB STATE CODES)."""
_NO_WORD = ("unknown", "log only", "no evidence", "lost")


def _out_of_memory(s: Signals) -> str:
    if s.slurm.out_of_memory:
        return CERTAIN
    said = s.says("slurm_oom")
    if not said or s.kills == "none" or (s.end == "error" and s.exit_code and not s.slurm.source):
        return NO
    return at_most(CERTAIN if said.is_sure else LIKELY, LIKELY if "Exceeded" in said.line else CERTAIN)


def _says_out_of_memory(s: Signals) -> str:
    ids = ", ".join(row.id for row in s.slurm.out_of_memory[:4]) or "a step of this job"
    after = ". The job counts as COMPLETED: its script continued after it" * (s.slurm.state == "COMPLETED")
    return f"Slurm saw an OOM kill in {ids}{after}"


def _polled(s: Signals) -> str:
    if s.says("slurm_poll"):
        return NO if s.kills == "counted" or s.end == "ok" else CERTAIN
    rss, asked = s.slurm.rss_bytes, s.slurm.asked_bytes
    if not s.slurm.polls_rss or not asked or s.kills == "counted" or s.end in ("ok", "running"):
        return NO
    has_limit = s.limit_at == "cgroup" and s.limit_bytes <= 1.05 * asked
    is_short = has_limit and s.parts.u >= 0.85 * asked
    died = s.was_killed or s.slurm.killed or s.signal or s.slurm.step_was_polled
    return if_so(rss > 0.95 * asked and not is_short and died)


_ENDS = {
    "slurm_timeout": (("TIMEOUT", "DEADLINE"), "timeout", "none", "Its time limit was reached"),
    "slurm_preempted": (
        ("PREEMPTED",), "killed_from_outside", "preemption", "A job of higher priority took its place",
    ),
    "slurm_node_failed": (
        ("NODE_FAIL", "BOOT_FAIL"), "killed_from_outside", "node_failure", "Its node failed",
    ),
    "slurm_requeued": ((), "killed_from_outside", "requeue", "It was put back into the queue"),
    "slurm_cancelled": (("CANCELLED", "REVOKED"), "killed_from_outside", "scancel", "It was cancelled"),
}  # fmt: skip


def _ended(s: Signals, kind: str) -> str:
    if s.end in ("ok", "running") or s.kills == "counted" or _polled(s):
        return NO
    said, row = next((name for name in _ENDS if s.says(name)), ""), s.slurm.ended_by
    own_end = s.end == "error" and not s.asked_by and not s.says_cancelled
    if said and not (own_end and row is None and "STEP " not in s.says(said).line):
        return if_so(said == kind, CERTAIN if s.says(kind).is_sure or s.slurm.cancelled_by_user else LIKELY)
    return if_so(row is not None and row.state in _ENDS[kind][0], CERTAIN)


def _says_ended(s: Signals, kind: str) -> str:
    unsure = kind == "slurm_cancelled" and not s.says(kind).is_sure and not s.slurm.cancelled_by_user
    return _ENDS[kind][3] + ", or preempted and ended within its grace time" * unsure


def _asked_by_row(s: Signals) -> str:
    """Signal by which a row ended, if it asks a program to stop: 0:15, or 143 by a shell."""
    row = s.slurm.ended_by
    if row is None or row.state in FROM_OUTSIDE or s.end not in _NO_WORD[:3]:
        return ""
    return _ASKING.get(row.exit_signal or 0) or _ASKING.get((row.exit_code or 0) - 128) or ""


def _killed(s: Signals, *, at_request: bool) -> str:
    known = bool(s.slurm.killed) and s.end in _NO_WORD and not s.slurm.out_of_memory and not _polled(s)
    is_at = 0 < 0.9 * s.slurm.asked_bytes <= s.slurm.max_rss_bytes
    return if_so(known and is_at == at_request, UNKNOWN)


def _says_not_over(s: Signals) -> str:
    row = s.facts.slurm.job.row if s.facts.slurm and s.facts.slurm.job else None
    if row is None:
        return "It is not over"
    limit = f" of {row.timelimit_s:.0f}" if row.timelimit_s else ""
    so_far = f", for {row.elapsed_s:.0f}{limit} s so far" if row.elapsed_s else ""
    why, where = f" ({row.reason})" if row.reason else "", f" on {row.nodes}" if row.nodes else ""
    return f"Job {row.job} is {row.state}{why}{so_far}{where}"


def _failed(s: Signals) -> str:
    row = s.slurm.ended_by
    return if_so(row is not None and row.state == "FAILED" and s.end in _NO_WORD and not _asked_by_row(s))


ROWS = (
    TableRow(
        "slurm_out_of_memory",
        "a row of the job or of a step says OUT_OF_MEMORY; without a counter, a line of slurmstepd or srun",
        _out_of_memory, _says_out_of_memory,
        "oom_cgroup", None, "slurm_oom_rows slurm_oom before_end", "more_for_job", "seen",
    ),
    TableRow(
        "rss_polled",
        "slurmd's line of its poll (OverMemoryKill); or that setting, RSS above the request, and U below it",
        _polled,
        lambda s: "Slurm's poll killed it (OverMemoryKill): RSS, in which mapped files count once for each "
        "process, was above what it had requested"
        + ", while U was far from the limit" * (0 < s.peak_share < 0.9 and s.limit_at == "cgroup"),
        "killed_from_outside", "rss_polling", "slurm_poll poll peak counters ended", "below_the_poll", "seen",
    ),
    *(
        TableRow(
            kind, f"Slurm's line, or its row of the job or step: {' or '.join(states) or 'requeued'}",
            lambda s, kind=kind: _ended(s, kind),  # type: ignore[misc]
            lambda s, kind=kind: _says_ended(s, kind),  # type: ignore[misc]
            verdict, cause, f"{kind} slurm_row ended counters", kind,
        )
        for kind, (states, verdict, cause, _) in _ENDS.items()
    ),
    TableRow(
        "slurm_asked_to_stop",
        "a row ended by a signal that asks a program to stop (0:15, 143), and the run left no word",
        lambda s: if_so(
            _asked_by_row(s), CERTAIN if s.slurm.ended_by and s.slurm.ended_by.exit_signal else LIKELY
        ),
        lambda s: f"It was asked to stop by {_asked_by_row(s)}",
        "terminated", "none", "ended slurm_row",
    ),
    TableRow(
        "slurm_killed_at_request",
        "a row says FAILED by SIGKILL, with MaxRSS at 90% of the request, and the run left no word",
        lambda s: _killed(s, at_request=True),
        lambda s: "A process of it was killed by SIGKILL with about as much memory in use as requested "
        f"(MaxRSS {format_bytes(s.slurm.max_rss_bytes)}): perhaps by the kernel for it",
        "oom_cgroup", None, "slurm_killed", "ask_kernel raise_mem",
    ),
    TableRow(
        "slurm_killed", "a row says FAILED by SIGKILL, and the run left no word",
        lambda s: _killed(s, at_request=False),
        "A process of it was killed by SIGKILL. The kernel, for memory, or a person or a service: nothing "
        "says which",
        "unknown", None, "slurm_killed", "ask_kernel",
    ),
    TableRow(
        "slurm_completed", "the row of the run's step, else of the job, says COMPLETED",
        lambda s: if_so(s.slurm.own_state == "COMPLETED" and not s.slurm.out_of_memory),
        "Slurm counts it as COMPLETED", "healthy", "none", "slurm_row",
    ),
    TableRow(
        "not_over", "the job waits or runs, and the run left no files",
        lambda s: if_so(s.slurm.state in _NOT_OVER and not s.has_run), _says_not_over,
        "healthy", "none", "slurm_row",
    ),
    TableRow(
        "slurm_failed", "the row of the run's step, else of the job, says FAILED",
        _failed, "Slurm counts it as failed", "failed", "none", "ended slurm_row",
    ),
    TableRow(
        "slurm_notes", "accounting has a MaxRSS, earlier starts of the job, or other tasks of its array",
        lambda s: if_so(s.slurm.other_tasks or s.slurm.has_max_rss or s.slurm.starts_before, CERTAIN),
        "Accounting says more of the job",
        shows="other_tasks max_rss earlier_starts", advice="more_memory_if_restarted",
    ),
)  # fmt: skip
