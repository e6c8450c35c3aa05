"""The table of states: the first row whose condition holds gives the state of a run and the reason.

live_rows and ended_rows come first; the last rows, for a run of which nothing is heard, are here.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiment_utils.json_values import text
from experiment_utils.run_folder import RunFolder
from experiment_utils.safe_read import changed_s
from slurm.records.submissions import OF_THE_ORIGINAL, SLURM
from slurm.records.submitter_liveness import NEVER_SENT, NO_ROOM, sent_last_s
from slurm.status.ended_rows import ENDED_ROWS, no_output
from slurm.status.live_rows import LIVE_ROWS, waiting_here
from slurm.status.run_history import RunHistory
from slurm.status.state_row import StateRow, and_resubmit, one_line

_SUBMITTED_S = 10.0
"""Time after an sbatch within which its job can still appear in the queue (`find_jobs.SETTLE_S`)."""
_ABANDONED_S = 600.0
"""A submitter on another machine, of which nothing is seen, has ended after this time."""
_STARTED_S = 300.0
"""The command that makes the folder of a run without a submission starts the run within this time."""
_NOT_HANDED = "it was never handed to Slurm: the command that was to do so has ended"


def _damaged(run: RunHistory) -> str:
    step = RunFolder(run.evidence.folder).checkpoint_step
    kept = f"; its checkpoint of step {step:,} is there" if step else ""
    files = " and ".join(run.evidence.damaged)
    return and_resubmit(run, f"its state is not known: {files} cannot be read{kept}")


def _error(run: RunHistory) -> str:
    return (run.evidence.array.error if run.evidence.array is not None else None) or ""


def _not_sent(run: RunHistory) -> str:
    error = _error(run)
    if error == NEVER_SENT:
        return and_resubmit(run, _NOT_HANDED)
    if error == NO_ROOM or error.startswith(OF_THE_ORIGINAL):
        return and_resubmit(run, f"it was not submitted: {error}")
    return f"sbatch refused it: {one_line(error, 3)}"


def _has_left_job(run: RunHistory) -> bool:
    return run.evidence.state is None and not run.evidence.outcome and run.has_left_job


def _job_over(run: RunHistory) -> str:
    known = run.evidence
    if known.given_up is not None and known.own_job == known.job:
        return known.given_up
    how = f"ended as {run.job_word}" if run.job_word else "is gone"
    said = no_output(run) or run.last_error
    return f"its job {known.job} {how} before the run wrote anything" + (f": {said}" if said else "")


def _exited(run: RunHistory) -> str:
    silent = f"its process ended with exit code {run.evidence.outcome.get('exit_code')}, without writing why"
    return one_line(run.last_error or "") or silent


def _is_abandoned(run: RunHistory) -> bool:
    """No process is left that would start or submit it, and Slurm has no job of its name."""
    known, submission = run.evidence, run.evidence.submission
    if run.launcher_lives is False:
        return True
    if known.state is not None or known.lost or known.holder is not None or known.damaged:
        return False
    if submission is None or known.array is None:
        return run.now_s - _STARTED_S > changed_s(f"{known.folder}/config.yaml") > 0
    if known.array.is_sent is not None or (submission.launcher == SLURM and not run.in_queue):
        return False
    limit_s = _SUBMITTED_S if run.submitter_lives is False else _ABANDONED_S
    since_s = run.now_s - max(submission.created_s, sent_last_s(submission))
    return since_s > limit_s and not run.submitter_lives


def _abandoned(run: RunHistory) -> str:
    if run.launcher_lives is False:
        ended = "the process that was to start it has ended"
        return f"{ended}: {run.last_error}" if run.last_error else and_resubmit(run, ended)
    submission = run.evidence.submission
    is_slurm = submission is not None and submission.launcher == SLURM
    is_alone = "nothing has started it: the command that was to do so has ended"
    return and_resubmit(run, _NOT_HANDED if is_slurm else is_alone)


def _unheard(run: RunHistory) -> str:
    known = run.evidence
    note = run.notes[0].split(":")[0] if run.notes else "Slurm does not answer"
    if known.job is not None:
        return f"submitted as job {known.job}; {note}"
    if known.lost is not None:
        return f"submission {known.lost} cannot be read: its job may wait or run (squeue --me)"
    if known.array is not None and known.array.job_id:
        return waiting_here(run)
    if known.submission is None:
        return "it has not been started yet"
    if run.submitter_lives is False and not run.in_queue:
        return f"what submitted it has ended; whether it is in the queue Slurm must say. {note}"
    return "it is being submitted"


def _record(run: RunHistory) -> str:
    known = run.evidence
    return "config.yaml" if known.submission is None and not known.job and not known.lost else "jobs.json"


_UNSTARTED_ROWS = (
    StateRow("damaged", "failed",
             lambda run: bool(run.evidence.damaged) and (run.evidence.job is None or run.is_job_over),
             _damaged, lambda run: run.evidence.damaged[0],
             "files of the run are damaged, and no job of it is known to wait or run"),
    StateRow("not_sent", "never_started", lambda run: bool(_error(run)), _not_sent, "submission.json",
             "sbatch refused it, or it was not submitted"),
    StateRow("left_job", "never_started", _has_left_job,
             lambda run: one_line(text(run.evidence.note.get("reason"))) or "it did not say why",
             "starts.json",
             "it ended in a job that it shares, before it wrote anything"),
    StateRow("job_over", "never_started", lambda run: run.is_job_over, _job_over, "sacct",
             "its job ended before it wrote anything"),
    StateRow("exited", "never_started", lambda run: bool(run.evidence.outcome), _exited, "outcome.json",
             "its process was started, and ended before it wrote anything"),
    StateRow("abandoned", "never_started", _is_abandoned,
             _abandoned, lambda run: "submission.json" if run.evidence.submission else "config.yaml",
             "the process or command that was to start or submit it has ended"),
    StateRow("unheard", "queued", lambda run: True, _unheard, _record,
             "none of these: it has not been started, or Slurm does not answer"),
)  # fmt: skip

TABLE = (*LIVE_ROWS, *ENDED_ROWS, *_UNSTARTED_ROWS)
_GIVEN_UP = ("failed", "timeout", "preempted", "cancelled", "node_failed")
"""States of a run that its job does not start again, if its last starts brought no step forward."""


@dataclass(frozen=True)
class Decision:
    """The state of a run."""

    state: str
    reason: str | None
    """One line; None only for a run that is done."""
    source: str = ""
    """The record that the state is known from."""
    rule: str = ""
    """Name of the row."""


def decide(history: RunHistory) -> Decision:
    """The state of a run, by the first row that holds. Never raises."""
    row = next(row for row in TABLE if row.holds(history))
    given_up = history.evidence.given_up if row.state in _GIVEN_UP else None
    source = row.source if isinstance(row.source, str) else row.source(history)
    return Decision(row.state, given_up or row.reason(history), source, row.name)


def as_markdown() -> str:
    """The table as docs/slurm.md shows it."""
    rows = (f"| {place} | `{row.state}` | {row.name} | {row.when} |" for place, row in enumerate(TABLE, 1))
    return "\n".join(["| | state | rule | when |", "|---|---|---|---|", *rows]) + "\n"
