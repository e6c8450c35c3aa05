"""Rows of Slurm's accounting that are of this run: a job has several steps, a script several commands."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from experiment_utils.json_values import mappings, seconds, text
from memory.accounting.sacct import Job, Row, moment
from memory.accounting.slurm_environment import requested_memory, step_of_path
from memory.explain.evidence.log_patterns import last_match, patterns
from memory.explain.evidence.run_facts import RunFacts

FROM_OUTSIDE = ("TIMEOUT", "DEADLINE", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "CANCELLED", "REVOKED")
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING")
_BY_ITSELF = {"COMPLETED", "FAILED", "OUT_OF_MEMORY"}
_NAMED_STEPS = {"4294967291": "batch", "4294967290": "interactive", "4294967292": "extern"}
"""Numbers of steps that have names (slurm/slurm.h, SLURM_BATCH_SCRIPT ...)."""
_JOB = re.compile(r"(?:StepId=|JobId=|\b(?:STEP|JOB|step|Step|Job|job) )(\d{1,12}(?:_\d{1,9})?)(?:\.(\w+))?")
_CLOCK_S = 1.0
"""Slurm writes whole seconds, by another clock."""


@dataclass(frozen=True)
class SlurmRows:
    """Accounting of the run; empty if it was not asked or does not answer."""

    source: str = ""
    state: str = ""
    """State of the job: PENDING, RUNNING, COMPLETED ..."""
    own_state: str = ""
    """State of the run's own step, else of the job."""
    out_of_memory: tuple[Row, ...] = ()
    ended_by: Row | None = None
    """The row of an end from outside, or of a failure."""
    killed: tuple[Row, ...] = ()
    """FAILED by SIGKILL: 0:9, or 137 as a shell passes it on."""
    asked_bytes: int = 0
    """--mem of the step or the job."""
    job_asked_bytes: int = 0
    max_rss_bytes: int = 0
    """MaxRSS of the run's rows."""
    rss_bytes: int = 0
    """Highest RSS, by samples or by accounting where that found more than was asked for."""
    polls_rss: bool = False
    """JobAcctGatherParams=OverMemoryKill."""
    cancelled_by_user: bool = False
    """Accounting names the user who cancelled the job."""
    other_tasks: int = 0
    """Other tasks or components, if an array or a job of several was asked for."""
    has_max_rss: bool = False
    starts_before: int = 0
    started_killed_step: bool = False
    """The run is a script, and a step that it started was killed for memory."""
    step_was_polled: bool = False
    """A step had more RSS than its srun asked for, and was killed."""


def slurm_rows(facts: RunFacts) -> SlurmRows:
    """Select the rows that are of this run."""
    slurm = facts.slurm
    job = slurm.job if slurm is not None else None
    named = {name: text(value) for name, value in facts.environment.items()}
    if slurm is None or job is None:
        rss = max((value for _, value in facts.series("tree_rss_bytes")), default=0)
        return SlurmRows(asked_bytes=requested_memory(named)[0] or 0, rss_bytes=rss)
    own, rows = own_row(facts), _rows_of_run(facts, job)
    oom = [row for row in rows if row.step is not None and row.was_out_of_memory]
    if job.row.was_out_of_memory and (oom or not any(row.was_out_of_memory for row in job.steps)):
        oom.insert(0, job.row)
    if facts.kills == 0:  # a kill in its own step was of another command
        oom = [row for row in oom if not own_step(facts).isdigit() and (row.step or "").isdigit()]
    asked_of_job = next((row.requested_bytes for row in job.rows if row.requested_bytes), 0) or 0
    of_steps = [row.requested_bytes for row in oom if row.step and row.requested_bytes]
    polled = _polled_step(rows) or own
    of_step = min(of_steps, default=0) or (polled.requested_bytes if polled else None)
    asked = of_step or asked_of_job or requested_memory(named)[0] or 0
    sampled = [rss for _, rss in facts.series("tree_rss_bytes")]
    of_rows = [row.max_rss_bytes or 0 for row in ([polled] if polled else job.rows)]
    return SlurmRows(
        source=slurm.source,
        state=job.row.state,
        own_state=own.state if own is not None else job.row.state,
        out_of_memory=tuple(oom),
        ended_by=None if ended_before(facts, job) else _ended_by(facts, job, rows),
        killed=tuple(row for row in job.rows if row.state == "FAILED" and _was_killed(row)),
        asked_bytes=asked,
        job_asked_bytes=asked_of_job,
        rss_bytes=max(sampled + [rss for rss in of_rows if rss > asked], default=0),
        max_rss_bytes=max(of_rows, default=0),
        polls_rss="OverMemoryKill" in slurm.gather_params.split(","),
        started_killed_step=not own_step(facts).isdigit() and any((row.step or "").isdigit() for row in oom),
        cancelled_by_user=job.row.cancelled_by is not None,
        other_tasks=len(slurm.last_starts) - 1 if job.row.job != slurm.job_id else 0,
        has_max_rss=any(row.max_rss_bytes for row in job.rows),
        starts_before=len(slurm.earlier),
        step_was_polled=_polled_step(rows) is not None,
    )


def own_step(facts: RunFacts) -> str:
    """Step of the run, by its environment, its cgroup or what was asked for; empty if unknown."""
    number = text(facts.environment.get("SLURM_STEP_ID"))
    path = text(facts.outcome.get("cgroup_path")) or text(facts.ring_facts.get("cgroup_path"))
    asked = facts.slurm.step if facts.slurm else ""
    return _NAMED_STEPS.get(number, number) or step_of_path(path) or asked


def own_row(facts: RunFacts) -> Row | None:
    """Row of the run's step, if both are known."""
    job, own = facts.slurm.job if facts.slurm else None, own_step(facts)
    return next((row for row in job.steps if own and row.step == own), None) if job else None


def has_less_than_its_job(facts: RunFacts) -> bool:
    """Whether the run's step has a limit of its own (srun --mem)."""
    job, own = facts.slurm.job if facts.slurm else None, own_row(facts)
    asked, of_job = (row.requested_bytes if row else None for row in (own, job.row if job else None))
    by_row = bool(asked and of_job and asked < of_job)
    return by_row or (step_of_path(facts.limit_at) or "").isdigit()


def ended_before(facts: RunFacts, job: Job | None) -> bool:
    """Whether the run ended by itself, before whatever ended its job."""
    if mappings(facts.outcome.get("signals_passed_on")) or facts.signal:
        return False
    if facts.has_ended_well:
        return True
    ended_s, job_s = seconds(facts.outcome.get("ended_s")), moment(job.row.end) if job else None
    return None not in (facts.exit_code, ended_s, job_s) and (ended_s or 0) + _CLOCK_S < (job_s or 0)


def line_is_of_run(facts: RunFacts, line: str) -> bool:
    """Whether a line of Slurm names this job, and no other step than the run's."""
    jobs, named, own = _jobs(facts), _JOB.search(line), own_step(facts)
    if named is None or not jobs:
        return True
    is_step = named[2] is None or not own.isdigit() or named[2] == own or facts.kills != 0
    return named[1] in jobs and is_step


def _jobs(facts: RunFacts) -> set[str]:
    """Numbers under which Slurm may name the run's job."""
    known = facts.environment
    array, task = text(known.get("SLURM_ARRAY_JOB_ID")), text(known.get("SLURM_ARRAY_TASK_ID"))
    found = {text(known.get("SLURM_JOB_ID")), f"{array}_{task}" if array and task else "", array}
    if facts.slurm is not None:
        found |= {facts.slurm.job_id.partition(".")[0]}
        found |= {name for job in facts.slurm.jobs for name in (job.row.job, job.row.raw)}
        found |= {job.partition("+")[0] for job in found}
    return found - {""}


def _rows_of_run(facts: RunFacts, job: Job) -> list[Row]:
    """A step's own row, and the job's if that was ended from outside; of a script those of its steps."""
    own = own_row(facts)
    if own is None or not own_step(facts).isdigit():
        return [job.row, *(row for row in job.steps if row is own or _was_within(facts, row))]
    by_srun = own.state == "CANCELLED" and own.cancelled_by is None and job.row.state in _BY_ITSELF
    is_ended_with_job = by_srun or not {own.state, job.row.state} & _BY_ITSELF
    return [job.row, own] if is_ended_with_job else [own]


def _was_within(facts: RunFacts, row: Row) -> bool:
    """Whether a step began while the run lived; true if a time is unknown."""
    began_s, step_s = facts.newest.began_s, moment(row.start)
    ended_s = seconds(facts.outcome.get("ended_s")) or (facts.samples[-1].time_s if facts.samples else None)
    if began_s is None or step_s is None or ended_s is None or not (row.step or "").isdigit():
        return True
    return began_s - _CLOCK_S <= step_s < ended_s


def _ended_by(facts: RunFacts, job: Job, rows: list[Row]) -> Row | None:
    row = next((row for row in rows if row.state in FROM_OUTSIDE or row.state == "FAILED"), None)
    is_own = row is own_row(facts)
    if row is None or (not is_own and row is not job.row and job.row.state == "COMPLETED"):
        return None
    if row.state != "FAILED":
        return row
    of_others = facts.exit_code == 0 or any(_was_killed(other) for other in ([row] if is_own else job.rows))
    of_memory = not is_own and any(step.was_out_of_memory for step in job.steps)
    return None if of_others or of_memory else row


def _polled_step(rows: list[Row]) -> Row | None:
    """A step that had more than its srun asked for, and was killed."""
    for row in rows:
        asked = row.requested_bytes
        if (
            (row.step or "").isdigit()
            and asked
            and (row.max_rss_bytes or 0) > asked
            and row.exit_signal == signal.SIGKILL
        ):
            return row
    return None


def _was_killed(row: Row) -> bool:
    return row.exit_code == 128 + signal.SIGKILL or row.exit_signal == signal.SIGKILL


def polled_rss_bytes(log: str, limit_bytes: int) -> int:
    """RSS in the message of a poll: bytes from Slurm 17.11 on, KB before."""
    found = last_match(patterns("slurm_poll"), log)
    amount = int(found["used"][:18]) if found and found["used"] else 0
    return amount * 1024 if amount and limit_bytes and amount < limit_bytes / 512 else amount
