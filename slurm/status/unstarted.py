"""The last rules: of a run of which nothing is heard that can be read. Will it be started, and by whom?"""

from __future__ import annotations

from experiment_utils.run_folder import RunFolder
from slurm.records.submissions import OF_THE_ORIGINAL, SLURM, typed_study
from slurm.records.submitter_liveness import NEVER_SENT, NO_ROOM, sent_last_s
from slurm.status.case import Case
from slurm.status.phrases import no_output
from slurm.status.signs import is_over_in_its_job
from slurm.status.verdict import Verdict, error_of, host_of_launcher, one_line

_JUST_MADE_S = 300.0
"""What makes the folder of a run that it will not wait with starts it at once."""
_SETTLED_S = 10.0
"""So long after an sbatch was called its job may still come to light (`find_jobs.SETTLE_S`)."""
_ABANDONED_S = 600.0
"""A submitter of another machine, of which nothing is seen, has ended by then."""

_NOT_HANDED = "it was never handed to Slurm: the command that was to do so has ended"


def never_ran(case: Case) -> Verdict | None:
    known = case.known
    if known.array is not None and known.array.error == NEVER_SENT:
        return Verdict("never_started", _again(case, _NOT_HANDED), "submission.json")
    if known.array is not None and known.array.error == NO_ROOM:
        return Verdict("never_started", _again(case, NO_ROOM), "submission.json")
    if known.array is not None and (known.array.error or "").startswith(OF_THE_ORIGINAL):
        return Verdict("never_started", _again(case, str(known.array.error)), "submission.json")
    if known.array is not None and known.array.error:
        return Verdict(
            "never_started", f"sbatch refused it: {one_line(known.array.error, 3)}", "submission.json"
        )
    if known.given_up is not None and known.own_job == known.job and case.has_ended:
        return Verdict("never_started", known.given_up, "starts.json")
    if known.state is None and not known.outcome and is_over_in_its_job(case):  # not its job
        return Verdict("never_started", known.start.get("reason") or "it did not say why", "starts.json")
    if known.job is not None and case.has_ended:
        how = f"its job {known.job} ended as {case.word}" if case.word else f"its job {known.job} is gone"
        words = no_output(case) or error_of(case)
        return Verdict(
            "never_started",
            f"{how} before the run said a word" + (f": {words}" if words else ""),
            case.source,
        )
    if case.launcher_lives is False:
        words = error_of(case)
        told = "the process that was to start it has ended"
        return Verdict(
            "never_started", f"{told}: {words}" if words else _again(case, told), "submission.json"
        )
    if _was_given_up_on(case):
        to_slurm = known.submission is not None and known.submission.launcher == SLURM
        told = _NOT_HANDED if to_slurm else "nothing has started it: the command that was to do so has ended"
        return Verdict(
            "never_started", _again(case, told), "submission.json" if known.submission else "config.yaml"
        )
    if known.outcome:  # its process was started, and left without a word of the run
        code = known.outcome.get("exit_code")
        silent = f"its process ended with exit code {code}, without a word"
        return Verdict("never_started", one_line(error_of(case) or "") or silent, "outcome.json")
    return None


def unreadable(case: Case) -> Verdict | None:
    """The run has said something, once, and its files are damaged."""
    known = case.known
    if known.state is not None or not known.damaged or (known.job is not None and not case.has_ended):
        return None
    names = " and ".join(known.damaged)
    step = RunFolder(known.folder).checkpoint_step
    told = f"what became of it cannot be told: {names} cannot be read"
    kept = f"; its checkpoint of step {step:,} is there" if step else ""
    return Verdict("failed", _again(case, f"{told}{kept}"), known.damaged[0])


def unheard(case: Case) -> Verdict:
    known = case.known
    if known.job is not None:
        return Verdict("queued", f"submitted as job {known.job}; {_notes(case)}", "jobs.json")
    if known.lost is not None:
        told = f"submission {known.lost} cannot be read: its job may wait or run (squeue --me)"
        return Verdict("queued", told, "jobs.json")
    if known.array is not None and known.array.job_id:
        return Verdict("queued", f"it waits for its turn on {host_of_launcher(case)}", "jobs.json")
    if known.submission is not None:
        words = "it is being submitted"
        if case.submitter_lives is False and not case.in_queue:
            words = f"what submitted it has ended; whether it is in the queue Slurm must say. {_notes(case)}"
        return Verdict("queued", words, "jobs.json")
    return Verdict("queued", "it has not been started yet", "config.yaml")


def _notes(case: Case) -> str:
    return case.notes[0].split(":")[0] if case.notes else "Slurm does not answer"


def _again(case: Case, told: str) -> str:
    """What starts it."""
    study = typed_study(case.known.folder.parent)
    return f"{told}. It is started by: python -m slurm resubmit {study}"


def _was_given_up_on(case: Case) -> bool:
    """Nobody is there any more to start or submit it, and Slurm has no job of its name."""
    known, now_s = case.known, case.now_s
    if (
        known.state is not None
        or known.lost is not None
        or known.holder is not None
        or known.outcome
        or known.damaged
    ):
        return False
    if known.submission is None or known.array is None:
        return known.made_s is not None and now_s - known.made_s > _JUST_MADE_S
    if known.array.is_sent is not None or (known.submission.launcher == SLURM and not case.in_queue):
        return False
    since_s = now_s - max(known.submission.created_s, sent_last_s(known.submission))
    return (
        since_s > (_SETTLED_S if case.submitter_lives is False else _ABANDONED_S) and not case.submitter_lives
    )
