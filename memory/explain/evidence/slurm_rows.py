"""Rows of Slurm's accounting that are of this run: a job has several steps, a script several commands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from experiment_utils.json_values import mappings, seconds, text
from memory.accounting.sacct import Job, Row, moment
from memory.accounting.slurm_environment import requested_memory, step_of_path
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
    own: Row | None = None
    """The row of the run's own step, else of the job."""
    out_of_memory: tuple[Row, ...] = ()
    ended_by: Row | None = None
    """The row of an end from outside, or of a failure."""
    asked_bytes: int = 0
    """--mem of the step or the job."""
    job_asked_bytes: int = 0
    max_rss_bytes: int = 0
    """MaxRSS of the run's rows."""
    rss_bytes: int = 0
    """Highest RSS, by samples or by accounting where that found more than was asked for."""
    polls_rss: bool = False
    """JobAcctGatherParams=OverMemoryKill."""
    a_row_was_killed: bool = False
    """SIGKILL ended a row of the job, or 137 as a shell reports it."""
    started_killed_step: bool = False
    """The run is a script, and a step that it started was killed for memory."""


def slurm_rows(facts: RunFacts) -> SlurmRows:
    """Select the rows that are of this run."""
    job, slurm, is_step = facts.job, facts.slurm, _own_step(facts).isdigit()
    requested = requested_memory({name: text(value) for name, value in facts.environment.items()})[0] or 0
    if slurm is None or job is None:
        return SlurmRows(asked_bytes=requested)
    own = next((row for row in job.steps if row.step and row.step == _own_step(facts)), None)
    rows = _rows_of_run(facts, job, own)
    oom = [row for row in rows if row.step is not None and row.was_out_of_memory]
    if job.row.was_out_of_memory and (oom or not any(row.was_out_of_memory for row in job.steps)):
        oom.insert(0, job.row)
    if facts.kills == 0:  # a kill in its own step was of another command
        oom = [row for row in oom if not is_step and (row.step or "").isdigit()]
    of_job = next((row.requested_bytes for row in job.rows if row.requested_bytes), 0) or 0
    of_steps = [row.requested_bytes for row in oom if row.step and row.requested_bytes]
    asked = min(of_steps, default=0) or (own.requested_bytes if own else 0) or of_job or requested
    max_rss = [row.max_rss_bytes or 0 for row in ([own] if own else job.rows)]
    rss = [value for _, value in facts.series("tree_rss_bytes")] + [
        value for value in max_rss if value > asked
    ]
    return SlurmRows(
        source=slurm.source,
        state=job.row.state,
        own=own or job.row,
        out_of_memory=tuple(oom),
        ended_by=None if _ended_before(facts, job) else _ended_by(facts, job, rows, own),
        asked_bytes=asked,
        job_asked_bytes=of_job,
        max_rss_bytes=max(max_rss, default=0),
        rss_bytes=max(rss, default=0),
        a_row_was_killed=any(9 in (row.exit_signal, (row.exit_code or 0) - 128) for row in job.rows),
        polls_rss="OverMemoryKill" in slurm.gather_params.split(","),
        started_killed_step=not is_step and any((row.step or "").isdigit() for row in oom),
    )


def _own_step(facts: RunFacts) -> str:
    """Step of the run, by its environment, its cgroup or what was asked for; empty if unknown."""
    number = text(facts.environment.get("SLURM_STEP_ID"))
    by_path = step_of_path(text(facts.recorded("cgroup_path")))
    return _NAMED_STEPS.get(number, number) or by_path or (facts.slurm.step if facts.slurm else "")


def has_less_than_its_job(facts: RunFacts, rows: SlurmRows) -> bool:
    """Whether the run's step has a limit of its own (srun --mem)."""
    return 0 < rows.asked_bytes < rows.job_asked_bytes or (step_of_path(facts.limit_at) or "").isdigit()


def line_is_of_run(facts: RunFacts, line: str) -> bool:
    """Whether a line of Slurm names this job, and no other step than the run's."""
    known, named, own = facts.environment, _JOB.search(line), _own_step(facts)
    array, task, job = (
        text(known.get(f"SLURM_{name}")) for name in ("ARRAY_JOB_ID", "ARRAY_TASK_ID", "JOB_ID")
    )
    jobs = {array, f"{array}_{task}", job}
    if facts.slurm is not None:
        names = [
            facts.slurm.job_id,
            *(name for job in facts.slurm.jobs for name in (job.row.job, job.row.raw)),
        ]
        jobs |= {*names, *(name.partition("+")[0] for name in names)}
    if named is None or not jobs - {"", "_"}:
        return True
    is_step = named[2] is None or not own.isdigit() or named[2] == own or facts.kills != 0
    return named[1] in jobs and is_step


def _rows_of_run(facts: RunFacts, job: Job, own: Row | None) -> list[Row]:
    """A step's own row, and the job's if that was ended from outside; of a script those of its steps."""
    if own is None or not _own_step(facts).isdigit():
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


def _ended_before(facts: RunFacts, job: Job) -> bool:
    """Whether the run ended by itself, before whatever ended its job."""
    if mappings(facts.outcome.get("signals_passed_on")) or facts.signal:
        return False
    ended_s, job_s = seconds(facts.outcome.get("ended_s")), moment(job.row.end)
    known = facts.exit_code is not None and ended_s is not None and job_s is not None
    return facts.has_ended_well or (known and (ended_s or 0) + _CLOCK_S < (job_s or 0))


def _ended_by(facts: RunFacts, job: Job, rows: list[Row], own: Row | None) -> Row | None:
    row = next((row for row in rows if row.state in FROM_OUTSIDE or row.state == "FAILED"), None)
    if row is None or (row is not own and row is not job.row and job.row.state == "COMPLETED"):
        return None
    of_memory = row is not own and any(step.was_out_of_memory for step in job.steps)
    return None if row.state == "FAILED" and (facts.exit_code == 0 or of_memory) else row
