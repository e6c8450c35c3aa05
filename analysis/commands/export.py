"""`python -m analysis export STUDY --to wandb|tensorboard|csv`: series of runs, for other programs."""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.commands.shared import new_parser, say_json, study_of
from analysis.export.run_facts import RunFacts, ending_of, facts_of_run
from analysis.export.series import Point, Series
from analysis.export.writers import TARGETS, check_installed
from analysis.reading.study import Run, Study
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE
from experiment_utils.quantities import counted

EXAMPLES = """\
examples:
  python -m analysis export lr_sweep --to csv                        series.csv in the study's folder
  python -m analysis export lr_sweep --to tensorboard                an event file in each run folder
  tensorboard --logdir runs/lr_sweep
  python -m analysis export lr_sweep --to wandb --project sweeps     runs of W&B, offline, one for each
  WANDB_MODE=online python -m analysis export lr_sweep --to wandb    sent at once
  python -m analysis export lr_sweep/RUN --to tensorboard --follow   as a run goes on, until it ends
  python -m analysis export curves/ --to csv --pattern '{model}_lr_{log10_lr}.csv' -o long.csv

Exporting again replaces or continues the earlier export: no step is there twice. logging=csv, tensorboard or
wandb export the same during training. More: docs/analysis-report.md."""
_POLL_S = 5.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = new_parser(subparsers, "export", "series of runs, for W&B, TensorBoard, or as a csv", EXAMPLES)
    parser.add_argument("--to", required=True, choices=TARGETS, help="csv: long, a row for each number")
    parser.add_argument(
        "-o", "--output", metavar="PLACE",
        help="csv: the file (default: series.csv in the study's folder); else a folder, with one for each "
        "run in it (default: the run folders themselves)",
    )  # fmt: skip
    parser.add_argument(
        "--every", type=int, default=1, metavar="N",
        help="every N-th step, and those with an evaluation (default: all)",
    )  # fmt: skip
    parser.add_argument("--project", metavar="NAME", help="of W&B (default: WANDB_PROJECT, else highwater)")
    parser.add_argument("--follow", action="store_true", help="runs that go on, until they end")
    parser.add_argument("--json", action="store_true", help="what was written, as one JSON object")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)  # process of the run that started this
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class _Written:
    run: str
    place: str
    points: int


def run(options: argparse.Namespace) -> int:
    """Write it, and say where.

    Raises:
        UserError: there is nothing to export, a package is missing, or a place cannot be written.
    """
    if options.every < 1:
        raise UserError(f"--every {options.every}: expected 1 or more")
    check_installed(options.to)
    if options.follow:
        return _follow(options)
    study = study_of(options, with_curves=True)
    if options.x:
        study.column(options.x)
    named = _named(study)
    if not named:
        raise UserError("; ".join(f"{path}: {why}" for path, why in study.skipped))
    if options.output is None and not study.is_ours:
        raise UserError("-o is needed: CSVs of other programs have no folder of their own to write into")
    left_out = [(label, why) for one, label in named if (why := _why_not(one, options)) is not None]
    exported = [(one, label) for one, label in named if _why_not(one, options) is None]
    try:
        written = (_to_csv if options.to == "csv" else _to_folders)(study, exported, options)
    except OSError as error:
        place = options.output or Path(error.filename or ".").parent  # the file itself has a passing name
        raise UserError(f"{place}: cannot be written: {error.strerror}; -o names another place") from error
    _say(options, study, written, left_out)
    return DONE


def _to_csv(study: Study, runs: Sequence[tuple[Run, str]], options: argparse.Namespace) -> list[_Written]:
    """One file of all: a program reads it in one call, and runs differ by their columns, not by file."""
    from analysis.export.tidy import TidyRows, write_header

    output = Path(options.output or study.runs[0].folder.parent / "series.csv").expanduser()
    known = [(_facts(study, one, label), one) for one, label in runs]
    columns = list(dict.fromkeys(name for facts, _ in known for name in facts.columns))
    written = []
    with atomic_files.atomic_file(output, "w") as file:
        write_header(file, columns)
        for facts, one in known:
            points = TidyRows(file, facts, columns).add(_points(one, facts, options))
            written.append(_Written(one.name, str(output), points))
    return written


def _to_folders(study: Study, runs: Sequence[tuple[Run, str]], options: argparse.Namespace) -> list[_Written]:
    written = []
    for one, label in runs:
        facts = _facts(study, one, label)
        points, place = _points(one, facts, options), _place(one, label, options)
        ending = (one.state, ending_of(one.folder)[1] if one.is_ours else {})
        if options.to == "tensorboard":
            from analysis.export.tensorboard import NAME, write_events

            count = write_events(place / NAME, facts, points, *ending)
            written.append(_Written(one.name, str(place / NAME), count))
        else:
            written.append(_to_wandb(one, facts, place, points, ending, options.project))
    return written


def _to_wandb(
    one: Run, facts: RunFacts, place: Path, points: Iterator[Point], ending: Any, project: str | None
) -> _Written:
    from analysis.export.wandb import WandbRun
    from data_loading.remote.address import redacted

    try:
        writer = WandbRun(facts, place, project)
        count = writer.add(point for point in points if point.step > writer.after)
        destination = writer.destination
        writer.end(*ending)
    except (UserError, OSError, KeyboardInterrupt):
        raise
    except Exception as error:  # it has many kinds of its own
        raise UserError(f"W&B refuses {one.name}: {redacted(str(error))}") from error
    return _Written(one.name, destination, count)


def _facts(study: Study, one: Run, label: str) -> RunFacts:
    if one.is_ours:
        return facts_of_run(one.folder, label)
    from analysis.export.foreign_series import facts_of_csv

    return facts_of_csv(one, label, study.named_facts)


def _points(one: Run, facts: RunFacts, options: argparse.Namespace) -> Iterator[Point]:
    if one.is_ours:
        return Series(one.folder, facts.attempts, every=options.every).new(is_over=True)
    from analysis.export.foreign_series import points_of_foreign

    return points_of_foreign(one, options.x)


def _place(one: Run, label: str, options: argparse.Namespace) -> Path:
    """W&B names its own folders, so that those of all runs lie in one."""
    if options.output is None:
        return one.folder
    folder = Path(options.output).expanduser()
    return folder if options.to == "wandb" else folder / label


def _named(study: Study) -> list[tuple[Run, str]]:
    """Each identity once, with a name that no other has."""
    runs = study.once()
    times = Counter(one.name for one in runs)
    return [
        (one, one.name if times[one.name] == 1 else f"{one.folder.resolve().parent.name}/{one.name}")
        for one in runs
    ]


def _why_not(one: Run, options: argparse.Namespace) -> str | None:
    if one.state == "unreadable":
        return str(one.reason)
    if not one.curve_file.exists():
        return "it has no rows yet"
    if options.x and not one.is_ours and options.x not in one.values:
        return f"it has no column {options.x}"
    is_its_own = options.output is None and one.value("logging.to") == options.to != "csv"
    if is_its_own and one.state == "running":
        return f"it goes on, and writes there itself (logging={options.to})"
    return None


def _follow(options: argparse.Namespace) -> int:
    from analysis.export.follow import NoParent, Parent, follow
    from analysis.export.writers import open_live
    from data_loading.remote.address import redacted

    if options.parent is not None:  # started by a run, which names its own folders
        folders: list[tuple[Path, str | None]] = [(Path(given), None) for given in options.study]
        place = None
    else:
        study = study_of(options)
        if not study.is_ours:
            raise UserError("--follow: CSVs of other programs do not tell when they end")
        folders = [(one.folder, label) for one, label in _named(study)]
        place = None if options.output is None else Path(options.output).expanduser()

    def opened(facts: RunFacts) -> Any:
        at = facts.folder if place is None else place / facts.label if options.to != "wandb" else place
        return open_live(options.to, facts, at, options.project)

    try:
        parent = NoParent() if options.parent is None else Parent(options.parent)
        found = follow(folders, opened, parent=parent, every=options.every, poll_s=_POLL_S)
    except (UserError, KeyboardInterrupt):
        raise
    except Exception as error:  # of the disk, the network, or a package: the run that started this continues
        raise UserError(redacted(f"{type(error).__name__}: {error}")) from error
    if options.parent is None:
        for folder, (where, points) in found.items():
            print(f"{folder}: {counted(points, 'point')}" + ("" if where is None else f" in {where}"))
    return DONE


def _say(
    options: argparse.Namespace,
    study: Study,
    written: Sequence[_Written],
    left_out: Sequence[tuple[str, str]],
) -> None:
    places = sorted({one.place for one in written})
    if options.json:
        say_json(
            {
                "version": 1, "to": options.to, "written": [vars(one) for one in written],
                "left_out": [{"run": name, "why": why} for name, why in left_out],
                "notes": study.notes(),
            }
        )  # fmt: skip
        return
    points = sum(one.points for one in written)
    where = places[0] if len(places) == 1 else os.path.commonpath(places) if places else "nowhere"
    print(f"{counted(len(written), 'run')}, {counted(points, 'point')}: {where}")
    for line in (*study.notes(), *(f"left out: {name}: {why}" for name, why in left_out)):
        print(f"note: {line}")
    if not written:
        return
    if options.to == "tensorboard":
        folder = where if len(places) > 1 else str(Path(where).parent)
        print(f"next: tensorboard --logdir {shlex.quote(folder)}")
    elif options.to == "wandb" and not places[0].startswith("http"):
        between = "" if options.output or len(places) == 1 else "/*/wandb"
        given = shlex.quote(where) + (f"{between}/offline-run-*" if len(places) > 1 else "")
        print(f"next: wandb sync {given}   (WANDB_MODE=online exports there at once)")
