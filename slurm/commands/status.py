"""`python -m slurm status [STUDY]`: every run, its state and why, how far it is, how near its memory is."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
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
from slurm.records.submissions import run_folders
from slurm.states import STATES
from slurm.status.status_table import (
    next_of_all,
    next_of_study,
    next_of_tokens,
    study_json,
    study_lines,
    summary,
    table,
    versions_of,
)
from slurm.status.study_status import RunState, run_states

EXAMPLES = """\
examples:
  python -m slurm status                         all studies, the newest first, a line each
  python -m slurm status lr_sweep                every run of one
  python -m slurm status lr_sweep --state failed,oom
  python -m slurm status Datasets/huge           every task of a token set (pretokenize_dataset.py --slurm)
  python -m slurm status lr_sweep --watch        live, until nothing runs or waits any more
  python -m slurm status lr_sweep --json | jq '.runs[] | select(.state == "oom")'

memory: the high-water mark of U, what the kernel could not have taken back, and the limit it stays under.
The states and what each is known from: docs/slurm.md."""
EVERY_S = 10.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "status",
        help="every run of a study: state, progress, memory, reason",
        description="Every run of a study: its state and why, how far it is, how near its memory limit.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "study", nargs="?", metavar="STUDY", help="path, name below runs_dir, or token set; none: all"
    )
    parser.add_argument("--state", metavar="S,S", help=f"only runs in these states: {', '.join(STATES)}")
    parser.add_argument("--watch", action="store_true", help="live, until nothing runs or waits any more")
    parser.add_argument(
        "--interval", type=float, default=EVERY_S, metavar="S", help=f"of --watch, seconds ({EVERY_S:g})"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object; of --watch one a line")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Tell once, or until nothing is live.

    Raises:
        UserError: there is no such study, or no such state.
    """
    wanted = _wanted(options.state)
    if not 1 <= options.interval <= 86400:
        raise UserError(f"--interval {options.interval:g}: expected 1 to 86400 seconds")
    tokens = find_token_jobs(options.study) if options.study is not None else None
    if tokens is not None:
        look = _of_tokens(tokens, wanted)
    else:
        look = _of_study(options, wanted) if options.study is not None else _of_all(options)
    if not options.watch:
        view = look()
        print(json.dumps(view.plain, indent=2, ensure_ascii=False) if options.json else view.text())
        return 0
    return _watch(look, options)


class View:
    """What is seen at one moment. is_live: whether anything runs or waits."""

    def __init__(
        self, plain: dict[str, Any], lines: Callable[[int | None], list[str]], ends: list[str], is_live: bool
    ) -> None:
        self.plain, self._lines, self._ends, self.is_live = plain, lines, ends, is_live

    def text(self, columns: int | None = None) -> str:
        """columns: by default of the terminal, if there is one."""
        if columns is None and sys.stdout.isatty():
            columns = shutil.get_terminal_size((120, 24)).columns
        return "\n".join([*self._lines(columns), *self._ends])


def _of_study(options: argparse.Namespace, wanted: Sequence[str]) -> Callable[[], View]:
    study_and_runs(options.study)

    def look() -> View:
        study, folders = study_and_runs(options.study)
        if not folders:
            raise UserError(f"{study}: no runs there: expected folders with a config.yaml in it")
        found = run_states(folders)
        shown = [entry for entry in found if not wanted or entry.state in wanted]
        plain = study_json(study, found, shown)
        step = next_of_study(options.study, found)

        def lines(columns: int | None) -> list[str]:
            head = f"{study.name}: {summary(found)}"
            rows = (
                table(shown, columns, versions_of(found)) if shown else [f"no run is {' or '.join(wanted)}"]
            )
            return [head, *(f"note: {note}" for note in plain["notes"]), "", *rows, ""]

        ends = [f"next: {step.command}   ({step.why})"]
        return View(plain, lines, ends, any(entry.is_live for entry in found))

    return look


def _of_tokens(jobs: Path, wanted: Sequence[str]) -> Callable[[], View]:
    """jobs: `.SET.slurm`."""
    from slurm.tokens.task_status import token_run_states

    def look() -> View:
        found = token_run_states(jobs)
        shown = [entry for entry in found if not wanted or entry.state in wanted]
        plain = {**study_json(jobs, found, shown), "study": str(set_of(jobs)), "kind": "token set"}
        step = next_of_tokens(str(set_of(jobs)), found)

        def lines(columns: int | None) -> list[str]:
            head = f"{set_of(jobs)}: {summary(found, 'task')}"
            rows = table(shown, columns) if shown else [f"no task is {' or '.join(wanted)}"]
            return [head, *(f"note: {note}" for note in plain["notes"]), "", *rows, ""]

        ends = [f"next: {step.command}   ({step.why})"]
        return View(plain, lines, ends, any(entry.is_live for entry in found))

    return look


def _of_all(options: argparse.Namespace) -> Callable[[], View]:
    if options.state is not None:
        raise UserError("--state: expected a STUDY with it, whose runs are to be told")

    def look() -> View:
        studies = all_studies()
        folders = {study: list(run_folders(study)) for study in studies}
        found = iter(run_states([folder for study in studies for folder in folders[study]]))
        told: list[tuple[Path, list[RunState]]] = [
            (study, [next(found) for _ in folders[study]]) for study in studies
        ]
        sets = _sets()
        plain = {
            "version": 1,
            "runs_dir": str(root_of()),
            "studies": [study_json(*one) for one in told],
            "token_sets": [{**study_json(*one), "study": str(set_of(one[0]))} for one in sets],
        }
        notes = dict.fromkeys(note for one in plain["studies"] for note in one["notes"])  # type: ignore[attr-defined]
        notes |= dict.fromkeys(f"{one.path} cannot be read: {one.why}" for one in closed_studies())
        step = next_of_all(told)

        def lines(columns: int | None) -> list[str]:
            of_sets = [f"{set_of(jobs)}: {summary(found, 'task')}" for jobs, found in sets]
            if of_sets:
                of_sets.append("")
            if not told and of_sets:
                return of_sets
            if not told:
                nothing = f"there is no study under {root_of()} yet (runs_dir, HIGHWATER_RUNS_DIR)"
                return [*([] if notes else [nothing]), *(f"note: {note}" for note in notes), ""]
            return [*study_lines(told), *(f"note: {note}" for note in notes), "", *of_sets]

        is_live = any(entry.is_live for _, runs in (*told, *sets) for entry in runs)
        return View(plain, lines, [f"next: {step.command}   ({step.why})"], is_live)

    return look


def _sets() -> list[tuple[Path, list[RunState]]]:
    """Of token sets that jobs make, where they were submitted and how their tasks are."""
    there = all_token_jobs()
    if not there:
        return []
    from slurm.tokens.task_status import token_run_states  # it loads the pretokenizer

    return [(jobs, token_run_states(jobs)) for jobs in there]


def _wanted(given: str | None) -> list[str]:
    if given is None:
        return []
    names = [name.strip() for name in given.split(",") if name.strip()]
    strange = [name for name in names if name not in STATES]
    if strange or not names:
        raise UserError(
            f"--state {given}: no state {', '.join(strange) or 'is named'}; choices are {', '.join(STATES)}"
        )
    return names


def _watch(look: Callable[[], View], options: argparse.Namespace) -> int:
    if not options.json and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        _moving(look, look(), options.interval)
    else:
        _lines(look, look(), options)
    return 0


def _lines(look: Callable[[], View], view: View, options: argparse.Namespace) -> None:
    """Each look that differs from the one before."""
    before = ""
    while True:
        text = json.dumps(view.plain, ensure_ascii=False) if options.json else view.text()
        if text != before:
            print(text if options.json else f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n", flush=True)
        before = text
        if not view.is_live:
            return
        time.sleep(options.interval)
        view = look()


def _moving(look: Callable[[], View], view: View, interval_s: float) -> None:
    from rich.live import Live
    from rich.text import Text

    def drawn(view: View) -> Text:
        return Text(view.text(), no_wrap=True, overflow="ellipsis")

    with Live(drawn(view), auto_refresh=False, screen=False, vertical_overflow="crop") as live:
        while view.is_live:
            time.sleep(interval_s)
            view = look()
            live.update(drawn(view), refresh=True)
