"""What is done when a submission has ended: `then=analysis`, and `notify=`, with what died and why.

On a cluster it is a job of its own that depends on all arrays (`afterany`: also where some failed, which is
when one most wants to know). Of the local launcher's process in the background it is the last thing.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.quantities import counted, format_limit, parse_duration
from slurm.cluster.options import MEMORY_OTHERWISE
from slurm.queue.queue_limits import Queue
from slurm.queue.send import NoRoom, Refused, send
from slurm.queue.slurm_client import NoAnswer, ask
from slurm.records.follow_up_failures import note_failures
from slurm.records.submissions import (
    SLURM,
    Array,
    Submission,
    read_submission,
    runs_of,
    submissions,
    sweep_of,
    typed_study,
)
from slurm.records.submitter_liveness import NO_ROOM
from slurm.submit.in_flight import listed_as, task_states
from slurm.submit.outcomes import outcomes_of

log = logging.getLogger("slurm")

REPORT = "report.txt"
LIMITS = {"nodes": 1, "ntasks": 1, "cpus-per-task": 1, "mem": "1G"}
TIME_S = 1800.0
_SHARED = ("partition", "account", "qos", "constraint", "clusters", "reservation")
"""Options of the runs without which a site may not take a job at all."""
_MOST_TOLD = 20
_TRIES, _TIMEOUT_S = 3, 20.0


def follow_up_name(submission: Submission) -> str:
    """Of its job."""
    return f"{submission.study.name}-{submission.id}-then"


def send_follow_up(submission: Submission, lock: int, *, is_late: bool = False) -> Submission:
    """Submit what is to come after the arrays that were submitted; returns the submission with its job id.

    It goes to the queue of the first of them, or where that has no room to another's of the study. A refusal
    is told in the log: the runs are submitted all the same. is_late: the arrays are not of just now.
    """
    if not submission.wants_follow_up:
        return submission
    *earlier, newest = sweep_of(submission)
    arrays: list[Array] = []
    try:
        if is_late:
            arrays = _still_queued([*earlier, newest])
        else:  # these are queued, and to come too early is better than never
            with suppress(NoAnswer):
                arrays = _still_queued(earlier)
            arrays = [*arrays, *newest.arrays]
        jobs = [array.job_id for array in arrays if array.job_id is not None]
        job = _send_to_one_of(submission, jobs, lock)
    except NoAnswer as error:
        log.warning("nobody knows yet whether what is to come after the runs was submitted: %s", error)
        return submission
    except Refused as error:
        told = f"what is to come after the runs was not submitted: {_why(error, submission)}"
        log.warning("%s", told)
        submission = dataclasses.replace(submission, follow_up_error=str(error))
        note_failures(submission, [told])
    else:
        submission = dataclasses.replace(submission, follow_up=job)
    submission.write()
    return submission


def _send_to_one_of(submission: Submission, jobs: Sequence[str], lock: int) -> str:
    """Returns the job id. Raises what `send` raises; where none has room, what was said of the first."""
    before = [one for one in submissions(submission.study) if one.launcher == SLURM]
    arrays = [*submission.arrays, *(array for one in reversed(before) for array in one.arrays)]
    beside = {Queue.of(array.options): array.options for array in reversed(arrays)}
    full: NoRoom | None = None
    path = submission.folder / "then.sh"
    for queue in dict.fromkeys(Queue.of(array.options) for array in arrays):
        options = _options(submission, beside[queue], jobs)
        path.write_text(_script(submission, options), encoding="utf-8")
        try:
            return send(submission, path, options, lock)
        except NoRoom as error:
            full = full or error
            if error.is_for_all:
                break
        except Refused:
            if full is None:
                raise
    assert full is not None
    raise full


def _options(submission: Submission, beside: Mapping[str, Any], jobs: Sequence[str]) -> dict[str, Any]:
    """beside: options of an array of the submission's."""
    options: dict[str, Any] = {**LIMITS, "time": _time(beside.get("partition"))}
    if jobs:
        options["dependency"] = f"afterany:{':'.join(jobs)}"
    options |= {key: beside[key] for key in _SHARED if key in beside}
    if not {"mem", *MEMORY_OTHERWISE} & set(beside):  # slurm.mem=null: the site gives it
        del options["mem"]
    if is_mail(submission.notify):
        options |= {"mail-user": submission.notify, "mail-type": "END,FAIL"}
    return options


def _why(error: Refused, submission: Submission) -> str:
    """And what does the same: the command that is typed again submits runs alone."""
    why = NO_ROOM if isinstance(error, NoRoom) else str(error)
    by_hand = f"python -m analysis {typed_study(submission.study)}"
    return f"{why}. When they have ended: {by_hand}" if submission.then == "analysis" else why


def _still_queued(earlier: Sequence[Submission]) -> list[Array]:
    """Of these, what waits or runs: sbatch may refuse a dependency on a job that Slurm has forgotten.

    Raises:
        NoAnswer: squeue says nothing.
    """
    sent = [(one, array) for one in earlier for array in one.arrays if array.is_sent]
    if not sent:
        return []
    listed = task_states(sent)
    return [
        array
        for _, array in sent
        if any(listed_as(array, task) in listed for task in range(len(array.tasks)))
    ]


def _time(partition: str | None) -> str:
    """Half an hour, or the partition's limit where that is less: a job that asks for more waits for ever."""
    try:
        told = ask(["sinfo", "--noheader", "--all", "--format=%P|%l"])
    except NoAnswer:
        return format_limit(TIME_S)
    limits = [TIME_S]
    for name, _, limit in (line.strip().partition("|") for line in told.splitlines()):
        is_wanted = name.endswith("*") if partition is None else name.rstrip("*") in partition.split(",")
        with suppress(ValueError):
            limits += filter(None, [parse_duration(limit)] if is_wanted else [])
    return format_limit(min(limits))


def is_mail(notify: str | None) -> bool:
    """Whether it is an address, which Slurm itself writes to."""
    return notify is not None and "://" not in notify


def _script(submission: Submission, options: dict[str, Any]) -> str:
    output = submission.folder / "then.txt"
    lines = [f"#SBATCH --{key}={shlex.quote(str(value))}" for key, value in options.items()]
    command = [sys.executable, "-P", "-u", "-m", "slurm.submit.follow_up"]
    code = submission.snapshot or str(Path(__file__).resolve().parent.parent.parent)
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={shlex.quote(follow_up_name(submission))}",
            f"#SBATCH --output={shlex.quote(str(output.absolute()))}",
            "#SBATCH --open-mode=append",
            *lines,
            f"cd {shlex.quote(submission.cwd)} || exit 1",
            f'export PYTHONPATH={shlex.quote(code)}"${{PYTHONPATH:+:$PYTHONPATH}}"',
            shlex.join([*command, str(submission.study.absolute()), submission.id]),
            "",
        ]
    )


def follow_up(submission: Submission) -> int:
    """Do it; returns an exit status: 1 where some of it did not work."""
    failed: list[str | None] = []
    told = summary(submission)
    if submission.then == "analysis":
        failed.append(_analyse(submission))
    if submission.notify is not None:
        log.info("%s", told["text"])
        failed.append(_rename_job(told) if is_mail(submission.notify) else _post(submission.notify, told))
    failures = [why for why in failed if why is not None]
    for why in failures:
        log.error("%s", why)
    try:
        note_failures(submission, failures)
    except OSError as error:  # what was to come has come, or has said why not
        log.error("%s: %s", error.filename or submission.folder, error.strerror or error)
    return 1 if failures else 0


def summary(submission: Submission) -> dict[str, Any]:
    """What became of the submission's runs. text: a message of a few lines; died: each with why."""
    runs = dict.fromkeys(run for one in sweep_of(submission) for run in runs_of(one))
    outcomes = outcomes_of(submission.study, list(runs))
    counts = Counter(outcome.state for outcome in outcomes)
    died = [outcome for outcome in outcomes if outcome.state not in ("done", "queued", "running", "stalled")]
    rest = ", ".join(f"{count} {state}" for state, count in counts.most_common() if state != "done")
    title = f"{submission.study.name}: {counts['done']} of {counted(len(outcomes), 'run')} done"
    title += f"; {rest}" if rest else ""
    lines = [f"{one.folder.name}: {one.state}: {one.reason or 'no reason is given'}" for one in died]
    if len(lines) > _MOST_TOLD:
        lines = [*lines[:_MOST_TOLD], f"and {len(lines) - _MOST_TOLD} more"]
    study = shlex.quote(str(submission.study))
    after = [f"Again what is not done: python -m slurm resubmit {study}"] if died else []
    return {
        "text": "\n".join([title, *lines, *after]),
        "title": title,
        "study": str(submission.study),
        "submission": submission.id,
        "counts": dict(counts),
        "died": [{"run": one.folder.name, "state": one.state, "reason": one.reason} for one in died],
    }


def _analyse(submission: Submission) -> str | None:
    """`python -m analysis STUDY` into report.txt of the study; returns what did not work."""
    command = [sys.executable, "-P", "-m", "analysis", str(submission.study)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return f"then=analysis: {shlex.join(command)}: {done.stderr.strip()}"
    atomic_files.write_text(submission.study / REPORT, done.stdout)
    log.info("%s", submission.study / REPORT)
    return None


def _rename_job(told: dict[str, Any]) -> str | None:
    """Slurm's mail says the job's name, exit status and nothing else: so that is where the outcome goes.
    Returns what did not work.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return f"notify: mail is sent by Slurm alone: {told['title']}"
    try:
        ask(["scontrol", "update", f"JobId={job}", f"JobName={told['title']}"])
    except NoAnswer as error:
        return f"notify: {error}"
    return None


def _post(url: str, told: dict[str, Any]) -> str | None:
    """As JSON, with `text`, which is what Slack, Mattermost and Teams show. Returns what did not work."""
    import urllib.request

    body = json.dumps(told, ensure_ascii=False).encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    for left in reversed(range(_TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
                return None
        except OSError as error:
            if not left:
                return f"notify: the webhook was not told: {error}. Nodes without internet cannot reach one"
    return None


def main(study: str, submission_id: str) -> int:
    """What the job does."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    return follow_up(read_submission(Path(study), submission_id))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
