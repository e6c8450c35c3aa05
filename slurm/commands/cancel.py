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
    lost = [] if tokens is not None else _lost(study, runs)
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
        print(json.dumps({**plain, "lost": lost}, indent=2))
        return FAILED if kept or lost else DONE
    for one in found:
        print(f"{name}: {'would end' if options.dry_run else 'ends'} {_words(one, runs)}")
    if found and not options.dry_run:
        what = "Runs that have begun write a checkpoint first" if tokens is None else "What was done is kept"
        print(f"{what}. To resume: resubmit")
    for result in kept:
        print(f"{name}: {_words(result.target, runs)}: {result.error}")
    others = _others(study, runs, under_way) if tokens is None else []
    others = [*lost, *(line for line in others if line not in lost)]
    print(*others, sep="\n", end="\n" if others else "")
    if not under_way and not others:
        print(f"{', '.join(runs) or name}: nothing is queued or running")
    print(f"States: python -m slurm status {typed}")
    return FAILED if kept or lost else DONE


def _lost(study: Path, runs: Sequence[str]) -> list[str]:
    """Lines on processes whose job Slurm does not run: on a node that it lost, so that scancel ends none."""
    from slurm.queue.slurm_client import NoAnswer, ask
    from slurm.status import study_states

    holders = ((run.name, RunFolder(run).holder) for run in run_folders(study))
    held = {
        name: one
        for name, one in holders
        if (not runs or name in runs) and one is not None and one.job_id and not one.is_gone()
    }
    if not held:
        return []
    try:
        answer = ask(["squeue", "--noheader", "--format=%A %T"])
    except NoAnswer:
        return []
    states = dict(line.split() for line in answer.splitlines())
    lost = {name: one for name, one in held.items() if states.get(one.job_id or "") not in _RUNNING}
    entries = study_states(study, folders=[study / name for name in lost]) if lost else ()
    return [
        f"{entry.name} is process {one.pid} on {one.host}, of job {one.job_id} (not running by Slurm). "
        f"To end it, there: kill {one.pid}"
        for entry in entries
        if (one := lost[entry.name]) and entry.state in ("running", "stalled")
    ]


def _others(study: Path, runs: Sequence[str], found: Sequence[Target]) -> list[str]:
    """Lines on runs that no job or process of these holds: they have ended, or a lost process still runs."""
    from slurm.status import study_states

    held = {run for one in found for run in one.runs if not runs or run in runs}
    wanted = [run for run in run_folders(study) if run.name not in held and (not runs or run.name in runs)]
    lines = []
    for entry in study_states(study, folders=wanted) if wanted else ():
        holder = RunFolder(entry.folder).holder
        if entry.state == "unreadable":
            lines.append(f"{entry.name}: {entry.reason}: its owner can end it")
        elif entry.state in ("running", "stalled") and holder is not None and not holder.is_gone():
            process = f"{entry.name} is process {holder.pid} on {holder.host}"
            if entry.job is not None and FROM_SLURM.get(entry.slurm_word) == "running":  # of a user's script
                lines.append(f"{process}, in job {entry.job}. To end it: scancel {entry.job}")
            else:
                whose = f", of job {holder.job_id} (not running by Slurm)" if holder.job_id else ""
                lines.append(f"{process}{whose}. To end it, there: kill {holder.pid}")
        elif entry.name in runs:
            lines.append(f"{entry.name}: {'it has ended: ' if entry.state in ENDED else ''}{entry.state}")
    return lines


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
