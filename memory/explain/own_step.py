"""Which of a job's rows tell of this run: a job has several steps, a script several commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from experiment_utils.json_values import mappings, seconds, text
from memory.explain.facts import Facts
from memory.explain.script import script_text
from memory.sacct import Job, Row
from memory.slurm_times import moment
from memory.slurm_words import step_of_path

_BY_ITSELF = {"COMPLETED", "FAILED", "OUT_OF_MEMORY"}
_STEPS = {"4294967291": "batch", "4294967290": "interactive", "4294967292": "extern"}
"""Numbers of steps that have names (slurm/slurm.h, SLURM_BATCH_SCRIPT ...)."""
_ENDED_STEP = re.compile(r"\bSTEP \d+(?:_\d+)?\.(\w+) ON ")
_STARTS_PROGRAMS = re.compile(r"srun|mpirun|mpiexec|subprocess|Popen|os\.(?:system|exec|spawn|posix_spawn)")
_APART_S = 1.0
"""Slurm tells whole seconds, of another clock."""


def own_step(facts: Facts) -> str:
    """In which this run was: by its environment, by its cgroup, since a script's may lack the number, or by
    what was asked for; empty where nothing says.
    """
    told = text(facts.environment.get("SLURM_STEP_ID"))
    path = text(facts.outcome.get("cgroup_path")) or text(facts.ring_facts.get("cgroup_path"))
    return _STEPS.get(told, told) or step_of_path(path) or _asked_for(facts)


def own_row(facts: Facts) -> Row | None:
    """Of the step in which this run was, where both are known."""
    job, own = facts.slurm.job if facts.slurm else None, own_step(facts)
    return next((row for row in job.steps if own and row.step == own), None) if job else None


def has_less_than_its_job(facts: Facts) -> bool:
    """Whether its step was given a limit of its own (srun --mem): by its cgroup, or its row."""
    job, own = facts.slurm.job if facts.slurm else None, own_row(facts)
    asked, of_job = (row.requested_bytes if row else None for row in (own, job.row if job else None))
    by_row = bool(asked and of_job and asked < of_job)  # 0: all of it
    return by_row or (step_of_path(facts.limit_at) or "").isdigit()


def rows_that_ended_it(facts: Facts, job: Job) -> Iterator[Row]:
    """The job's, then those of its steps. Of a run that was one of its steps only as far as that one did not
    end by itself: what ended the job later, or another step, is not its end.
    """
    own = own_row(facts)
    if own is None or not own_step(facts).isdigit():  # of a script the steps are its own
        yield from job.rows
        return
    if not {own.state, job.row.state} & _BY_ITSELF or _was_ended_by_srun(own, job):
        yield job.row
    yield own


def _was_ended_by_srun(step: Row, job: Job) -> bool:
    """Whether a task of it had died (--kill-on-bad-exit): Slurm names who cancels a step, and of this one
    there is no name, though its job went on.
    """
    return step.state == "CANCELLED" and step.cancelled_by is None and job.row.state in _BY_ITSELF


def rows_out_of_memory(facts: Facts, job: Job) -> list[Row]:
    """Those that count a kill which may be one of this run's. The job's only repeats what a step's says."""
    of_steps = [row for row in job.steps if row.was_out_of_memory]
    found = [row for row in of_steps if not is_another_step(facts, row.step or "", row)]
    of_job = job.row.was_out_of_memory and bool(found or not of_steps)
    return [job.row, *found] if of_job else found


def started_what_was_killed(facts: Facts) -> bool:
    """Whether this run is a script, and what was killed a step that it started: by srun, which is its child,
    while the step's processes are Slurm's.
    """
    job = facts.slurm.job if facts.slurm else None
    if job is None or own_step(facts).isdigit():
        return False
    return any((row.step or "").isdigit() for row in rows_out_of_memory(facts, job))


def is_another_step(facts: Facts, step: str, row: Row | None) -> bool:
    """Whether a kill for memory in `step`, of which accounting has that row, is none of this run's."""
    own = own_step(facts)
    if facts.kills:
        return False
    if not own:  # of a shell of salloc, outside of its job, what ended by itself; or nothing says
        return step.isdigit() and facts.exit_code is not None and bool(_is_apart(facts, row))
    if step == own:
        return facts.kills == 0 and _was_of_another_command(facts, own)
    if own.isdigit():
        return facts.has_ended_well or facts.kills == 0 or own == _asked_for(facts)
    apart = _is_apart(facts, row)  # what a script starts itself, it starts while it runs
    return facts.has_ended_well if apart is None else apart


def tells_of_another_step(facts: Facts, line: str) -> bool:
    """Of Slurm's line on the end of a step (`*** STEP 12.8 ON n1 CANCELLED ...`): this run was another."""
    named, own = _ENDED_STEP.search(line), own_step(facts)
    return named is not None and own.isdigit() and named[1] != own


def _was_of_another_command(facts: Facts, own: str) -> bool:
    """Of a kill in its own step that was not counted while it ran: by one before it or after it, or, where it
    is one of several tasks and ended well, by another. Without outcome.json the kill may have taken the
    supervisor too, so that nobody was left to count; not where a script's job did not end for memory.
    """
    job = facts.slurm.job if facts.slurm else None
    if not own.isdigit():  # a script, or a shell that somebody typed into
        was_ended = job is not None and job.is_over and job.row.state not in _BY_ITSELF
        return bool(facts.outcome) or was_ended
    is_alone = text(facts.environment.get("SLURM_NTASKS")) == "1"
    return bool(facts.outcome) and (is_alone or facts.has_ended_well)


def ended_before(facts: Facts, job: Job | None) -> bool:
    """It ended by itself and nobody had asked it to: what ended its job later did not end it. Of an exit code
    that may be the answer to being stopped only where it came clearly before.
    """
    if mappings(facts.outcome.get("signals_passed_on")) or facts.signal:
        return False
    if facts.has_ended_well:
        return True
    ended_s, job_s = seconds(facts.outcome.get("ended_s")), moment(job.row.end) if job else None
    if facts.exit_code is None or ended_s is None or job_s is None:
        return False
    return ended_s + _APART_S < job_s


def _asked_for(facts: Facts) -> str:
    """`--job 42.3`"""
    return facts.slurm.step if facts.slurm else ""


def _is_apart(facts: Facts, row: Row | None) -> bool | None:
    """Whether that step was not within this run's time; None: not known. One that a script started may go on
    after it only where the script was killed.
    """
    began_s, step_began_s = facts.newest.began_s, moment(row.start) if row else None
    ended_s = seconds(facts.outcome.get("ended_s")) or (facts.samples[-1].time_s if facts.samples else None)
    if began_s is None or step_began_s is None or ended_s is None:
        return None
    step_ended_s = moment(row.end) if row and facts.exit_code is not None else None
    goes_on = step_ended_s is not None and step_ended_s > ended_s + _APART_S
    is_on_edge = step_began_s < began_s or max(step_began_s, step_ended_s or 0) + _APART_S > ended_s
    is_outside = goes_on or not began_s - _APART_S <= step_began_s <= ended_s
    return is_outside or (is_on_edge and _had_no_srun(facts))


def _had_no_srun(facts: Facts) -> bool:
    """Whether none was seen, and its script, which can be read, starts no program: one may end between two
    looks.
    """
    looks, script = facts.samples, script_text(facts)
    seen = any(one.name == "srun" for look in looks for one in look.tree)
    return script is not None and bool(looks) and not seen and not _STARTS_PROGRAMS.search(script[1])
