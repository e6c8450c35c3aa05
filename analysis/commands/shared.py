"""Options that all commands share, and the study that they mean."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.columns import plain
from analysis.reading.filters import only
from analysis.reading.study import Study, read_study
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.quantities import parse_count
from experiment_utils.typed_here import print_verbatim


def new_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, what: str, epilog: str
) -> argparse.ArgumentParser:
    """With STUDY, --where and --pattern."""
    parser = subparsers.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=epilog,
    )
    parser.add_argument(
        "study", nargs="+", metavar="STUDY",
        help="folder of a study or of several, name below runs_dir, or folder of foreign CSVs",
    )  # fmt: skip
    parser.add_argument(
        "--where", action="append", default=[], metavar="COLUMN=VALUE",
        help="only these runs: model=64d, lr<0.01, state!=done, optimizer.name=adamw,muon; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--pattern", metavar="TEXT",
        help="foreign CSVs: how file names tell facts, such as '{model}_lr_{log10_lr}.csv'",
    )  # fmt: skip
    parser.add_argument("--rows", action="store_true", help="foreign CSVs: each row is a run")
    parser.add_argument("--x", metavar="COLUMN", help="the column of x")
    parser.add_argument("--y", metavar="COLUMN", help="the loss (default: val_loss)")
    return parser


def study_of(options: argparse.Namespace, *, with_curves: bool = False) -> Study:
    """Read the study that STUDY, --pattern and --where select.

    Raises:
        UserError: none of the runs can be read, and why; or none has a curve, if `with_curves`.
    """
    study = read_study(options.study, pattern=options.pattern, rows=options.rows)
    if not study.runs:
        raise UserError(f"{study.path}: no run there can be read: {study.notes()[0]}")
    if with_curves and all(run.is_row for run in study.runs):
        raise UserError(
            f"{study.path}: a table with a row for each run has no curves: export each run's history as CSV"
        )
    return only(study, options.where)


def as_typed(options: argparse.Namespace) -> str:
    """STUDY with the options that say which of its runs, for a command that is about the same runs."""
    lines = [*options.study, *(word for one in options.where for word in ("--where", one))]
    lines += ["--pattern", options.pattern] if options.pattern is not None else []
    lines += ["--rows"] if options.rows else []
    return " ".join(map(shlex.quote, lines))


def say_json(value: Any, output: str | None = None) -> None:
    """On standard output, or into the file. What is not finite has no place in JSON: it is null."""
    text = json.dumps(_with_finite(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    write(text + "\n", output)


def _with_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_finite(one) for one in value]
    return plain(value)


def xy_columns(study: Study, options: argparse.Namespace) -> list[str]:
    """Columns of --x and --y with the facts of file names; empty if neither was typed."""
    asked = [study.column(name) for name in (options.x, options.y) if name]
    facts = [] if study.is_ours else [name for name in study.runs[0].values if name in study.named_facts]
    return ["run", *facts, *asked] if asked else []


def write(text: str | bytes, output: str | None, *, is_for_programs: bool = False) -> None:
    """To the file, whole or not at all, or to standard output.

    is_for_programs: a terminal gets it as it is too, in lines of any length.
    """
    data = text.encode(errors="backslashreplace") if isinstance(text, str) else text
    if output is None:
        sys.stdout.flush()
        if isinstance(text, str):
            print_verbatim(text) if is_for_programs else sys.stdout.write(text)
        else:
            sys.stdout.buffer.write(data)
        return
    try:
        with atomic_files.atomic_file(Path(output).expanduser()) as file:
            file.write(data)
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror}") from error
    print(output, file=sys.stderr)


def tokens_asked(text: str) -> float | None:
    """`common` is None."""
    if text == "common":
        return None
    try:
        return float(parse_count(text))
    except (ValueError, OverflowError) as error:
        raise UserError(f"--at-tokens: {error}, or common") from error


def split(text: str | None) -> list[str]:
    """`a,b` as names."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def notes_below(notes: Sequence[str], left_out: Sequence[str], most: int = 20) -> list[str]:
    """Lines below an answer: notes and the runs that it leaves out."""
    lines = [f"note: {note}" for note in notes]
    if left_out:
        lines += [f"left out: {len(left_out)}", *(f"  {line}" for line in left_out[:most])]
        lines += [f"  and {len(left_out) - most} more"] if len(left_out) > most else []
    return lines


def notes_and_failures(study: Study, failures: Sequence[str], most: int = 20) -> list[str]:
    """Lines below an answer: what it leaves out, and why."""
    lines = [f"note: {note}" for note in study.notes()]
    if failures:
        lines += [f"not done: {len(failures)}", *(f"  {line}" for line in failures[:most])]
        lines += [f"  and {len(failures) - most} more"] if len(failures) > most else []
    return lines
