"""`python -m slurm status [STUDY]`: each run's state and its reason, its progress, its memory."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiment_utils.errors import UserError
from slurm.arguments import (
    all_studies,
    all_token_jobs,
    closed_studies,
    find_token_jobs,
    root_of,
    set_of,
    study_and_runs,
)
from slurm.commands.status_table import (
    Next,
    efficiency_lines,
    next_of_all,
    next_of_study,
    next_of_tokens,
    study_json,
    study_lines,
    summary,
    table,
    versions_of,
)
from slurm.records.submissions import run_folders
from slurm.states import STATES
from slurm.status.study_status import RunState, run_states

EXAMPLES = """\
examples:
  python -m slurm status                         all studies, the newest first, a line each
  python -m slurm status lr_sweep                every run of one
  python -m slurm status lr_sweep --state failed,oom
  python -m slurm status Datasets/huge           every task of a token set (pretokenize_dataset.py --slurm)
  python -m slurm watch lr_sweep                 the same, live
  python -m slurm status lr_sweep --json | jq '.runs[] | select(.state == "oom")'

memory: the peak of memory that the kernel cannot take back, and the limit that applies to it.
In a terminal the table is fitted to its width; in a pipe it is whole. States: docs/slurm.md."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "status",
        help="every run of a study: state, progress, memory, reason",
        description="Every run of a study: its state and the reason, its progress, its memory.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "study", nargs="?", metavar="STUDY", help="path, name below runs_dir, or token set; none: all"
    )
    parser.add_argument("--state", metavar="S,S", help=f"only runs in these states: {', '.join(STATES)}")
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the states once.

    Raises:
        UserError: the study or a state does not exist.
    """
    wanted = _wanted(options.state)
    if options.watch:
        raise UserError(f"--watch is a command: python -m slurm watch {options.study or ''}".rstrip())
    if options.study is None and wanted:
        raise UserError("--state: expected a STUDY, whose runs are to be listed")
    plain, lines, step = _of_all() if options.study is None else _of_study(options.study, wanted)
    if options.json:
        print(json.dumps(plain, indent=2, ensure_ascii=False))
        return 0
    print(*lines, "", step.line(), sep="\n")
    return 0


def _of_study(given: str, wanted: Sequence[str]) -> tuple[dict[str, Any], list[str], Next]:
    """JSON values, lines and the next command of a study or of a token set."""
    jobs = find_token_jobs(given)
    if jobs is None:
        study, folders = study_and_runs(given)
        if not folders:
            raise UserError(f"{study}: no runs there: expected folders with a config.yaml in it")
        found, name, what = run_states(folders), study.name, "run"
        step, more = next_of_study(given, found), {}
    else:
        from slurm.tokens.task_status import token_run_states  # it loads the pretokenizer

        study, found, name, what = jobs, token_run_states(jobs), str(set_of(jobs)), "task"
        step, more = next_of_tokens(name, found), {"study": name, "kind": "token set"}
    shown = [entry for entry in found if not wanted or entry.state in wanted]
    plain = study_json(study, found, shown) | more
    head = [f"{name}: {summary(found, what)}", *(f"note: {note}" for note in plain["notes"])]
    none = f"no {what} is {' or '.join(wanted)}"
    rows = table(shown, versions=versions_of(found)) if shown else [none]
    return plain, [*head, "", *rows, *efficiency_lines(shown)], step


def _of_all() -> tuple[dict[str, Any], list[str], Next]:
    """JSON values, lines and the next command of all studies and token sets."""
    studies = all_studies()
    folders = [run_folders(study) for study in studies]
    states = iter(run_states([folder for runs in folders for folder in runs]))
    found = [(study, [next(states) for _ in runs]) for study, runs in zip(studies, folders, strict=True)]
    sets: list[tuple[Path, list[RunState]]] = []
    for jobs in all_token_jobs():
        from slurm.tokens.task_status import token_run_states

        sets.append((jobs, token_run_states(jobs)))
    plain = {
        "version": 1,
        "runs_dir": str(root_of()),
        "studies": [study_json(*one) for one in found],
        "token_sets": [{**study_json(*one), "study": str(set_of(one[0]))} for one in sets],
    }
    notes = dict.fromkeys(note for one in plain["studies"] for note in one["notes"])  # type: ignore[attr-defined]
    notes |= dict.fromkeys(f"{one.path} cannot be read: {one.why}" for one in closed_studies())
    lines = [*study_lines(found), *(f"note: {note}" for note in notes)]
    lines = lines or ([] if sets else [f"{root_of()} has no studies (runs_dir, HIGHWATER_RUNS_DIR)"])
    lines += [*[""] * bool(lines and sets), *(f"{set_of(jobs)}: {summary(of, 'task')}" for jobs, of in sets)]
    return plain, lines, next_of_all(found)


def _wanted(given: str | None) -> list[str]:
    names = [name.strip() for name in (given or "").split(",") if name.strip()]
    strange = [name for name in names if name not in STATES]
    if strange or (given is not None and not names):
        raise UserError(
            f"--state {given}: no state {', '.join(strange) or 'is named'}; choices are {', '.join(STATES)}"
        )
    return names
