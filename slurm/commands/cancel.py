"""`python -m slurm cancel STUDY`: end the runs of a study that are queued or running."""

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

if TYPE_CHECKING:
    from slurm.submit.cancel_jobs import Target

EXAMPLES = """\
examples:
  python -m slurm cancel lr_sweep                # asks first, when typed in a terminal
  python -m slurm cancel lr_sweep --yes
  python -m slurm cancel lr_sweep 1a2b3c4d       # one run of it
  python -m slurm cancel lr_sweep --dry-run --json

Runs that have begun write a checkpoint and stop; `python -m slurm resubmit STUDY` goes on with them."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "cancel",
        help="end what is queued or running",
        description="End the runs of a study that are queued or running, as jobs or in the background.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", metavar="STUDY", help="a path, a name below runs_dir, or a token set")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="of the study (all)")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="say what would be ended, and end nothing")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Say what, ask in a terminal, end it. Raises UserError."""
    from slurm.submit.cancel_jobs import cancel, found_under_way
    from slurm.submit.resubmit_runs import named

    tokens = find_token_jobs(options.study)
    study, meant = study_and_names(options.study) if tokens is None else (tokens, [])
    study = study.resolve()
    name = study.name if tokens is None else str(set_of(tokens))
    there = [folder.name for folder in run_folders(study)] or sorted(named_places(study))
    runs = list(meant)
    for given in options.runs:
        of_job = find_job(given)
        is_here = of_job is not None and of_job[0].resolve() == study
        runs += of_job[1] if of_job is not None and is_here else [named(given, there)]
    under_way = found_under_way(study, runs)
    found = [one for one in under_way if one.out_of_reach is None]
    kept = [one for one in under_way if one.out_of_reach is not None]

    def jobs(targets: list[Target]) -> list[dict[str, object]]:
        return [
            {
                "job": one.array.job_id,
                "launcher": one.submission.launcher,
                "tasks": _tasks(one, runs),
                "runs": [run for run in one.runs if not runs or run in runs],
            }
            for one in targets
        ]

    if found and not options.dry_run:
        if sys.stdin.isatty() and not options.yes:
            listed = ", ".join(_words(one, runs) for one in found)
            many = counted(len(runs or {run for one in found for run in one.runs}), "run")
            print(f"{name}: {many} in {listed}")
            if not agreed("End them? [y/N] "):
                print("left as they are")
                return INTERRUPTED
        found = cancel(study, runs)
    if options.json:
        told = {"cancelled": [] if options.dry_run else jobs(found), "found": jobs(under_way)}
        print(json.dumps(told | {"out_of_reach": jobs(kept)}, indent=2))
        return FAILED if kept else DONE
    did = "would end" if options.dry_run else "ends"
    for one in found:
        print(f"{name}: {did} {_words(one, runs)}")
    if found and not options.dry_run:
        what = "Runs that have begun write a checkpoint first" if tokens is None else "What was done is kept"
        print(f"{what}; resubmit them when status says cancelled")
    for one in kept:
        print(f"{name}: {_words(one, runs)} {one.out_of_reach}")
    out_of_reach = _out_of_reach(study, runs, under_way) if tokens is None else []
    for line in out_of_reach:
        print(line)
    if not under_way and not out_of_reach:
        print(f"{', '.join(runs) or name}: nothing of it is queued, or runs")
    typed = shlex.quote(options.study) if tokens is not None else typed_study(study)
    print(f"How it goes: python -m slurm status {typed}")
    return FAILED if kept else DONE


def _out_of_reach(study: Path, runs: Sequence[str], found: Sequence[Target]) -> list[str]:
    """Runs whose process lives, though no job or process that could be ended holds them: the copy on a node
    that Slurm has lost, one that somebody watches. How each is ended.
    """
    from slurm.status import study_states

    held = {run for one in found for run in one.runs}
    wanted = [run for run in run_folders(study) if run.name not in held and (not runs or run.name in runs)]
    lines = []
    for entry in study_states(study, folders=wanted) if wanted else ():
        if entry.state == "unreadable":
            lines.append(f"{entry.name}: {entry.reason}. Whether it runs is not known; its owner can end it")
            continue
        holder = RunFolder(entry.folder).holder
        if entry.state not in ("running", "stalled") or holder is None or holder.is_gone():
            continue
        whose = (
            f", of job {holder.job_id}, which Slurm does not have as running any more"
            if holder.job_id
            else ""
        )
        lines.append(
            f"{entry.name} goes on as process {holder.pid} on {holder.host}{whose}. To end it, there: "
            f"kill {holder.pid}"
        )
    return lines


def _tasks(target: Target, runs: Sequence[str]) -> list[str]:
    """Of an array of which only some of the tasks are meant, these, as Slurm writes them."""
    array = target.array
    meant = [task for task in sorted(target.tasks) if set(array.tasks[task]) & set(runs)]
    if array.takes_any or len(meant) == len(target.tasks):
        return []
    return [array.job_of(task) or "" for task in meant]


def _words(target: Target, runs: Sequence[str]) -> str:
    if target.submission.launcher == LOCAL:
        return f"process {target.array.job_id}"
    if target.array.job_id is None:
        return "what waits for room in the queue"
    return f"job {', '.join(_tasks(target, runs)) or target.array.job_id}"
