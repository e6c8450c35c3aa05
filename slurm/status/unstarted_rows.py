"""The last rows of the table of states: for a run of which nothing is heard."""

from __future__ import annotations

from experiment_utils.run_folder import RunFolder
from slurm.records.submissions import OF_THE_ORIGINAL, SLURM
from slurm.records.submitter_liveness import NEVER_SENT, NO_ROOM, sent_last_s
from slurm.status.ended_rows import no_output
from slurm.status.live_rows import waiting_here
from slurm.status.run_history import RunHistory
from slurm.status.state_row import StateRow, and_resubmit, one_line

_SUBMITTED_S = 10.0
"""Time after an sbatch within which its job can still appear in the queue (`find_jobs.SETTLE_S`)."""
_ABANDONED_S = 600.0
"""A submitter on another machine, of which nothing is seen, has ended after this time."""
_STARTED_S = 300.0
"""The command that makes the folder of a run without a submission starts the run within this time."""
_NOT_HANDED = "it was never handed to Slurm: the command that was to do so has ended"


def _is_damaged(h: RunHistory) -> bool:
    known = h.evidence
    return known.state is None and bool(known.damaged) and (known.job is None or h.is_job_over)


def _damaged(h: RunHistory) -> str:
    step = RunFolder(h.evidence.folder).checkpoint_step
    kept = f"; its checkpoint of step {step:,} is there" if step else ""
    files = " and ".join(h.evidence.damaged)
    return and_resubmit(h, f"its state is not known: {files} cannot be read{kept}")


def _error(h: RunHistory) -> str:
    return (h.evidence.array.error if h.evidence.array is not None else None) or ""


def _not_sent(h: RunHistory) -> str:
    error = _error(h)
    if error == NEVER_SENT:
        return and_resubmit(h, _NOT_HANDED)
    if error == NO_ROOM or error.startswith(OF_THE_ORIGINAL):
        return and_resubmit(h, error)
    return f"sbatch refused it: {one_line(error, 3)}"


def _has_given_up(h: RunHistory) -> bool:
    known = h.evidence
    return known.given_up is not None and known.own_job == known.job and h.is_job_over


def _has_left_job(h: RunHistory) -> bool:
    return h.evidence.state is None and not h.evidence.outcome and h.has_left_job


def _left_job(h: RunHistory) -> str:
    return one_line(str(h.evidence.note.get("reason") or "it did not say why"))


def _job_over(h: RunHistory) -> str:
    how = f"ended as {h.job_word}" if h.job_word else "is gone"
    words = no_output(h) or h.last_error
    return f"its job {h.evidence.job} {how} before the run wrote anything" + (f": {words}" if words else "")


def _launcher_gone(h: RunHistory) -> str:
    words = "the process that was to start it has ended"
    return f"{words}: {h.last_error}" if h.last_error else and_resubmit(h, words)


def _is_abandoned(h: RunHistory) -> bool:
    """No process is left that would start or submit it, and Slurm has no job of its name."""
    known = h.evidence
    if known.state is not None or known.lost or known.holder is not None or known.damaged:
        return False
    if known.submission is None or known.array is None:
        return known.made_s is not None and h.now_s - known.made_s > _STARTED_S
    if known.array.is_sent is not None or (known.submission.launcher == SLURM and not h.in_queue):
        return False
    since_s = h.now_s - max(known.submission.created_s, sent_last_s(known.submission))
    limit_s = _SUBMITTED_S if h.submitter_lives is False else _ABANDONED_S
    return since_s > limit_s and not h.submitter_lives


def _abandoned(h: RunHistory) -> str:
    submission = h.evidence.submission
    is_slurm = submission is not None and submission.launcher == SLURM
    is_alone = "nothing has started it: the command that was to do so has ended"
    return and_resubmit(h, _NOT_HANDED if is_slurm else is_alone)


def _exited(h: RunHistory) -> str:
    silent = f"its process ended with exit code {h.evidence.outcome.get('exit_code')}, without writing why"
    return one_line(h.last_error or "") or silent


def _unheard(h: RunHistory) -> str:
    known = h.evidence
    note = h.notes[0].split(":")[0] if h.notes else "Slurm does not answer"
    if known.job is not None:
        return f"submitted as job {known.job}; {note}"
    if known.lost is not None:
        return f"submission {known.lost} cannot be read: its job may wait or run (squeue --me)"
    if known.array is not None and known.array.job_id:
        return waiting_here(h)
    if known.submission is None:
        return "it has not been started yet"
    if h.submitter_lives is False and not h.in_queue:
        return f"what submitted it has ended; whether it is in the queue Slurm must say. {note}"
    return "it is being submitted"


def _record(h: RunHistory) -> str:
    known = h.evidence
    return "config.yaml" if known.submission is None and not known.job and not known.lost else "jobs.json"


UNSTARTED_ROWS = (
    StateRow("damaged", "failed", _is_damaged, _damaged, lambda h: h.evidence.damaged[0],
             "files of the run are damaged, and no job of it is known to wait or run"),
    StateRow("not_sent", "never_started", lambda h: bool(_error(h)), _not_sent, "submission.json",
             "sbatch refused it or was never called, or the queue had no room for it"),
    StateRow("gave_up", "never_started", _has_given_up, lambda h: h.evidence.given_up, "starts.json",
             "its job ended after starts that brought no step forward"),
    StateRow("left_job", "never_started", _has_left_job, _left_job, "starts.json",
             "it ended in a job that it shares, before it wrote anything"),
    StateRow("job_over", "never_started", lambda h: h.is_job_over, _job_over, lambda h: h.source,
             "its job ended before it wrote anything"),
    StateRow("launcher_gone", "never_started", lambda h: h.launcher_lives is False,
             _launcher_gone, "submission.json",
             "the process of this machine that was to start it has ended"),
    StateRow("exited", "never_started", lambda h: bool(h.evidence.outcome), _exited, "outcome.json",
             "its process was started, and ended before it wrote anything"),
    StateRow("abandoned", "never_started", _is_abandoned,
             _abandoned, lambda h: "submission.json" if h.evidence.submission else "config.yaml",
             "the command that was to submit or start it has ended"),
    StateRow("unheard", "queued", lambda h: True, _unheard, _record,
             "none of these: it has not been started, or Slurm does not answer"),
)  # fmt: skip
