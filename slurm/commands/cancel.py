"""`python -m slurm cancel STUDY [RUN ...]`: end runs that are queued or running."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiment_utils.exit_status import DONE, FAILED, INTERRUPTED, agreed
from experiment_utils.quantities import counted
from experiment_utils.run_folder import RunFolder
from slurm.arguments import find_job, find_token_jobs, set_of, study_and_names
from slurm.records.submissions import LOCAL, named_places, run_folders, typed_study
from slurm.states import ENDED, FROM_SLURM

if TYPE_CHECKING:
    from slurm.submit.cancel_jobs import Target

_RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING")

EXAMPLES = """\
examples:
  python -m slurm cancel lr_sweep                # asks first in a terminal
  python -m slurm cancel lr_sweep --yes
  python -m slurm cancel lr_sweep 1a2b3c4d       # one run of it
  python -m slurm cancel 4242_3                  # the run of a job
  python -m slurm cancel lr_sweep --dry-run --json

Runs that have begun write a checkpoint and stop; `python -m slurm resubmit STUDY` resumes them."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "cancel",
        help="end what is queued or running",
        description="End the runs of a study that are queued or running, as jobs or in the background.",
        epilog=EXAMPLES,
    )
    parser.add_argument("study", metavar="STUDY", help="a path, a name below runs_dir, or a token set")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="runs of the study (all)")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="list what would be ended")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List what is under way, ask in a terminal, end it.

    Raises:
        UserError: the study or a run does not exist, or a run cannot be ended alone.
    """
    from slurm.submit.cancel_jobs import CancelResult, cancel, found_under_way
    from slurm.submit.resubmit_runs import named

    tokens = find_token_jobs(options.study)
    study, runs = study_and_names(options.study) if tokens is None else (tokens, [])
    study = study.resolve()
    there = [folder.name for folder in run_folders(study)] or sorted(named_places(study))
    for given in options.runs:
        job = find_job(given)
        is_here = job is not None and job[0].resolve() == study
        runs = [*runs, *(job[1] if job is not None and is_here else [named(given, there)])]
    name, typed = study.name, typed_study(study)
    if tokens is not None:
        name, typed = str(set_of(tokens)), shlex.quote(options.study)
    under_way = found_under_way(study, runs)
    live, others = ([], []) if tokens is not None else _out_of_reach(study, runs, under_way)
    results = [CancelResult(one, error=one.out_of_reach) for one in under_way]
    found = [one.target for one in results if one.error is None]
    if found and not options.dry_run:
        if sys.stdin.isatty() and not options.yes:
            many = counted(len(runs or {run for one in found for run in one.runs}), "run")
            print(f"{name}: {many} in {', '.join(_words(one, runs) for one in found)}")
            if not agreed("End them? [y/N] "):
                print("nothing was ended")
                return INTERRUPTED
        results = cancel(study, runs)
        found = [one.target for one in results if one.error is None]
    kept = [result for result in results if result.error is not None]
    if options.json:
        groups = {"cancelled": [] if options.dry_run else found, "found": under_way}
        groups["out_of_reach"] = [one.target for one in kept]
        plain = {key: [_to_json(one, runs) for one in targets] for key, targets in groups.items()}
        print(json.dumps({**plain, "lost": live}, indent=2))
        return FAILED if kept or live else DONE
    for one in found:
        print(f"{name}: {'would end' if options.dry_run else 'ends'} {_words(one, runs)}")
    if found and not options.dry_run:
        what = "Runs that have begun write a checkpoint first" if tokens is None else "What was done is kept"
        print(f"{what}. To resume: resubmit")
    for result in kept:
        print(f"{name}: {_words(result.target, runs)}: {result.error}")
    others = [*live, *others]
    print(*others, sep="\n", end="\n" if others else "")
    if not under_way and not others:
        print(f"{', '.join(runs) or name}: nothing is queued or running")
    print(f"States: python -m slurm status {typed}")
    return FAILED if kept or live else DONE


def _out_of_reach(study: Path, runs: Sequence[str], found: Sequence[Target]) -> tuple[list[str], list[str]]:
    """Lines on live processes that are not ended here, and on runs that have ended or cannot be read.

    Such a process is of a script of the user's own, or in front of somebody; or Slurm does not run its job,
    since it has lost the node: then scancel ends none, also if the job waits again.
    """
    from slurm.status import study_states

    held = {run for one in found for run in one.runs if not runs or run in runs}
    wanted = [run for run in run_folders(study) if not runs or run.name in runs]
    holders = {run.name: RunFolder(run).holder for run in wanted}
    alive = {name: one for name, one in holders.items() if one is not None and not one.is_gone()}
    running = _running_jobs() if any(one.job_id for one in alive.values()) else None
    lost = {
        name
        for name, one in alive.items()
        if one.job_id and running is not None and one.job_id not in running
    }
    looked = [run for run in wanted if run.name not in held or run.name in lost]
    live, others = list[str](), list[str]()
    for entry in study_states(study, folders=looked) if looked else ():
        holder = alive.get(entry.name)
        if entry.state == "unreadable":
            others.append(f"{entry.name}: {entry.reason}: its owner can end it")
        elif holder is not None and entry.state in ("running", "stalled"):
            how = f", in job {entry.job}. To end it: scancel {entry.job}"
            if entry.name in lost or entry.job is None or FROM_SLURM.get(entry.slurm_word) != "running":
                whose = f", of job {holder.job_id} (not running by Slurm)" if holder.job_id else ""
                how = f"{whose}. To end it, there: kill {holder.pid}"
            live.append(f"{entry.name} is process {holder.pid} on {holder.host}{how}")
        elif entry.name in runs:
            others.append(f"{entry.name}: {'it has ended: ' if entry.state in ENDED else ''}{entry.state}")
    return live, others


def _running_jobs() -> set[str] | None:
    """Slurm's own numbers of the jobs that run; None: it does not answer."""
    from slurm.queue.slurm_client import NoAnswer, ask

    try:
        rows = [line.split() for line in ask(["squeue", "--noheader", "--format=%A %T"]).splitlines()]
    except NoAnswer:
        return None
    return {job for job, word in rows if word in _RUNNING}


def _to_json(target: Target, runs: Sequence[str]) -> dict[str, object]:
    return {
        "job": target.array.job_id,
        "launcher": target.submission.launcher,
        "tasks": _tasks(target, runs),
        "runs": [run for run in target.runs if not runs or run in runs],
    }


def _tasks(target: Target, runs: Sequence[str]) -> list[str]:
    """Job ids of these runs; none if all of the array is meant."""
    array = target.array
    meant = [task for task in sorted(target.tasks) if set(array.tasks[task]) & set(runs)]
    if array.takes_any or len(meant) == len(target.tasks):
        return []
    return [array.job_of(task) or "" for task in meant]


def _words(target: Target, runs: Sequence[str]) -> str:
    if target.submission.launcher == LOCAL:
        return f"process {target.array.job_id}"
    return f"job {', '.join(_tasks(target, runs)) or target.array.job_id or target.array.name}"
