"""The end of a submission: `then=analysis` and `notify=`, with the runs that died and the reasons.

On a cluster this is a job that depends on all arrays (`afterany`: it also starts if runs failed). The process
that works through runs on this machine does it last.
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
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.modules import IMPORT_ROOT, module_name
from experiment_utils.quantities import counted, format_limit, parse_duration
from slurm.cluster.options import MEMORY_OTHERWISE
from slurm.cluster.sbatch_errors import directives
from slurm.launch.outcome import outcomes_of
from slurm.queue.send import Refused, send, sending
from slurm.queue.slurm_client import NoAnswer, ask
from slurm.queue.two_phase import study_lock
from slurm.records.submissions import (
    LOCAL,
    Submission,
    read_submission,
    runs_of,
    submissions,
    sweep_of,
    typed_study,
)
from slurm.submit.in_flight import listed_as, task_states

log = logging.getLogger("slurm")

REPORT = "report.txt"
LIMITS = {"nodes": 1, "ntasks": 1, "cpus-per-task": 1, "mem": "1G"}
TIME_S = 1800.0
_SHARED = ("partition", "account", "qos", "constraint", "clusters", "reservation")
"""Options of the runs that a site can require of each job."""
_MOST_LISTED = 20
_TRIES, _TIMEOUT_S = 3, 20.0


def follow_up_name(submission: Submission) -> str:
    """Name of the end job."""
    return f"{submission.study.name}-{submission.id}-then"


def send_follow_up(submission: Submission, lock: int) -> Submission:
    """Submit the end job, to the queue of the first array; returns the submission with its id.

    The runs are submitted also if the end job is refused: that is logged, and shown by `status`.
    """
    if not submission.wants_follow_up:
        return submission
    options = _options(submission)
    path = submission.folder / "then.sh"
    path.write_text(_script(submission, options), encoding="utf-8")
    try:
        submission = dataclasses.replace(submission, follow_up=send(submission, path, options, lock))
    except NoAnswer as error:
        log.warning("the job at the end of the runs can be in the queue or not: %s", error)
        return submission
    except Refused as error:
        why = f"the job at the end of the runs was not submitted: {error}"
        if submission.then == "analysis":
            why += f". Once they have ended: python -m analysis {typed_study(submission.study)}"
        log.warning("%s", why)
        submission = dataclasses.replace(submission, follow_up_error=why)
    submission.write()
    return submission


def send_search_end(study: Path, command: str, then: str | None, notify: str | None) -> None:
    """Do or submit what comes at the end of a search, once, for all submissions of its command.

    Raises:
        UserError: a file of the study cannot be written.
    """
    with study_lock(study):
        made = [one for one in submissions(study) if one.command == command]
        made = [one for one in made if any(array.is_sent for array in one.arrays)]
        if not made or made[-1].then is not None or made[-1].notify is not None:
            return
        earlier = [one.id for one in made[:-1]]
        submission = dataclasses.replace(made[-1], then=then, notify=notify, earlier=earlier)
        submission.write()
        if submission.launcher == LOCAL:
            follow_up(submission)
            return
        with sending(submission) as lock:
            submission = send_follow_up(submission, lock)
    if submission.follow_up is not None:
        log.info("%s: at its end: job %s", study.name, submission.follow_up)


def _options(submission: Submission) -> dict[str, Any]:
    """Options of sbatch for the end job, without dashes."""
    of_runs = next(array.options for array in submission.arrays if array.is_sent)
    limits_s = [TIME_S]
    if "time" in of_runs and of_runs["time"] != "UNLIMITED":  # a time that the partition allows
        limits_s.append(parse_duration(str(of_runs["time"])) or TIME_S)
    options: dict[str, Any] = {**LIMITS, "time": format_limit(min(limits_s))}
    jobs = _unfinished(submission)
    if jobs:
        options["dependency"] = f"afterany:{':'.join(jobs)}"
    options |= {key: of_runs[key] for key in _SHARED if key in of_runs}
    if not {"mem", *MEMORY_OTHERWISE} & set(of_runs):  # slurm.mem=null: the site decides
        del options["mem"]
    if is_mail(submission.notify):
        options |= {"mail-user": submission.notify, "mail-type": "END,FAIL"}
    return options


def _unfinished(submission: Submission) -> list[str]:
    """Ids of the arrays that are still in the queue, or that can be: sbatch can refuse a dependency on an id
    that Slurm has forgotten.
    """
    sent = [(one, array) for one in sweep_of(submission) for array in one.arrays if array.is_sent]
    try:
        listed = task_states(sent)
    except NoAnswer:
        return [array.job_id or "" for array in submission.arrays if array.is_sent]
    return [
        array.job_id or ""
        for _, array in sent
        if any(listed_as(array, task) in listed for task in range(len(array.tasks)))
    ]


def is_mail(notify: str | None) -> bool:
    """Whether it is a mail address, to which Slurm itself writes."""
    return notify is not None and "://" not in notify


def _script(submission: Submission, options: dict[str, Any]) -> str:
    output = submission.folder.absolute() / "then.txt"
    files = {"job-name": follow_up_name(submission), "output": output, "open-mode": "append"}
    code = submission.snapshot or str(IMPORT_ROOT)
    command = [sys.executable, "-P", "-u", "-m", module_name("slurm.submit.follow_up")]
    return "\n".join(
        [
            f"#!/bin/bash\n{directives(files | options)}cd {shlex.quote(submission.cwd)} || exit 1",
            f'export PYTHONPATH={shlex.quote(code)}"${{PYTHONPATH:+:$PYTHONPATH}}"',
            shlex.join([*command, str(submission.study.absolute()), submission.id]),
            "",
        ]
    )


def follow_up(submission: Submission) -> int:
    """Do what comes at the end; returns an exit status: 1 if a part of it failed."""
    failures: list[str | None] = []
    found = summary(submission)
    if submission.then == "analysis":
        failures.append(_analyse(submission))
    if submission.notify is not None:
        log.info("%s", found["text"])
        failures.append(_rename_job(found) if is_mail(submission.notify) else _post(submission.notify, found))
    why = "; ".join(failure for failure in failures if failure is not None)
    if why:
        log.error("%s", why)
    try:
        written = read_submission(submission.study, submission.id)
        dataclasses.replace(written, follow_up_error=why or None).write()
    except OSError as error:
        log.error("%s: %s", error.filename or submission.folder, error.strerror or error)
    return 1 if why else 0


def summary(submission: Submission) -> dict[str, Any]:
    """Counts of the runs' states, with a text of a few lines and the reason of each run that died."""
    runs = dict.fromkeys(run for one in sweep_of(submission) for run in runs_of(one))
    outcomes = outcomes_of(submission.study, list(runs))
    counts = Counter(outcome.state for outcome in outcomes)
    died = [outcome for outcome in outcomes if outcome.state not in ("done", "queued", "running", "stalled")]
    rest = ", ".join(f"{count} {state}" for state, count in counts.most_common() if state != "done")
    title = f"{submission.study.name}: {counts['done']} of {counted(len(outcomes), 'run')} done"
    title += f"; {rest}" if rest else ""
    lines = [f"{one.folder.name}: {one.state}: {one.reason or 'no reason is given'}" for one in died]
    if len(lines) > _MOST_LISTED:
        lines = [*lines[:_MOST_LISTED], f"and {len(lines) - _MOST_LISTED} more"]
    study = shlex.quote(str(submission.study))
    after = [f"Submit what is not done: python -m slurm resubmit {study}"] if died else []
    return {
        "text": "\n".join([title, *lines, *after]),
        "title": title,
        "study": str(submission.study),
        "submission": submission.id,
        "counts": dict(counts),
        "died": [{"run": one.folder.name, "state": one.state, "reason": one.reason} for one in died],
    }


def _analyse(submission: Submission) -> str | None:
    """Write `python -m analysis STUDY` into the study's report.txt; returns why that failed."""
    command = [sys.executable, "-P", "-m", module_name("analysis"), str(submission.study)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return f"then=analysis: {shlex.join(command)}: {done.stderr.strip()}"
    atomic_files.write_text(submission.study / REPORT, done.stdout)
    log.info("%s", submission.study / REPORT)
    return None


def _rename_job(found: dict[str, Any]) -> str | None:
    """Name the job after the result, since Slurm's mail shows the job's name; returns why that failed."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return f"notify: mail is sent by Slurm alone: {found['title']}"
    try:
        ask(["scontrol", "update", f"JobId={job}", f"JobName={found['title']}"])
    except NoAnswer as error:
        return f"notify: {error}"
    return None


def _post(url: str, found: dict[str, Any]) -> str | None:
    """Post as JSON, with `text`, which Slack, Mattermost and Teams show; returns why that failed."""
    import urllib.request

    body = json.dumps(found, ensure_ascii=False).encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    for left in reversed(range(_TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
                return None
        except OSError as error:
            if not left:
                return f"notify: the webhook did not answer: {error}. Nodes without internet cannot reach one"
    return None


def main(study: str, submission_id: str) -> int:
    """Run as the end job."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    return follow_up(read_submission(Path(study), submission_id))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
