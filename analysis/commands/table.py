"""`python -m analysis table STUDY`: a row a run, to be read or handed on."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence

from analysis.columns import export_columns, shown_columns, varying_columns, y_column
from analysis.commands.shared import (
    as_typed,
    new_parser,
    notes_and_failures,
    say_json,
    split,
    study_of,
    write,
    xy_columns,
)
from analysis.reading.study import Run, Study
from analysis.run_table import as_csv, as_json, as_markdown, as_parquet, failures, lines, ordered, summary
from analysis.setups import SEEDS
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE

EXAMPLES = """\
examples:
  python -m analysis table lr_sweep
  python -m analysis table lr_sweep --where model=64d --where 'lr<0.01' --sort val_loss
  python -m analysis table lr_sweep --columns run,state,val_loss,optimizer.lr,training.seq_len
  python -m analysis table lr_sweep --csv -o runs.csv
  python -m analysis table runs/a runs/b --json | jq '.runs[] | select(.state != "done")'
  python -m analysis table curves/ --pattern '{model}_lr_{log10_lr}.csv'    last rows of foreign CSVs

Columns are those of --json, and any key of the configuration. Losses are in nats a token; val_loss is that of
the last evaluation. Each is explained in docs/analysis.md."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = new_parser(subparsers, "table", "a row a run: how it ended, losses, speed, memory", EXAMPLES)
    parser.add_argument("--columns", metavar="A,B", help="columns, or keys of the configuration")
    parser.add_argument("--sort", metavar="COLUMN", help="the smallest first")
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--csv", action="store_true", help="comma-separated values, numbers in full")
    form.add_argument("--md", action="store_true", help="Markdown")
    form.add_argument("--parquet", action="store_true", help="needs pyarrow; with -o")
    parser.add_argument("-o", "--output", metavar="FILE", help="write it there")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print or write it."""
    study = study_of(options)
    is_export = options.json or options.csv or options.parquet
    columns = [study.column(name) for name in split(options.columns)]
    columns = columns or xy_columns(study, options)
    columns = columns or (export_columns if is_export else shown_columns)(study)
    by = study.column(options.sort) if options.sort else None
    runs = ordered(study.runs, by, is_falling=options.reverse)
    if (is_export and not options.json) or options.md:  # these forms have no place for it
        print("".join(f"note: {note}\n" for note in study.notes()), end="", file=sys.stderr)
    if options.json:
        say_json(as_json(study, runs, columns), options.output)
    elif options.csv:
        write(as_csv(runs, columns), options.output, is_for_programs=True)
    elif options.md:
        write(as_markdown(runs, columns), options.output, is_for_programs=True)
    elif options.parquet:
        write(as_parquet(runs, columns), options.output)
    else:
        lines_shown = [
            summary(study),
            "",
            *lines(runs, columns, is_cut=options.output is None),
            "",
            *notes_and_failures(study, failures(runs)),
        ]
        damaged = [f"note: {one.name}: {line}" for one in runs for line in one.damage]
        damaged += [] if study.is_ours else _not_finite(study, runs, options.y)
        lines_shown += [
            *damaged[:10],
            *([f"note: and {len(damaged) - 10} more of the kind"] * (len(damaged) > 10)),
        ]
        write("\n".join([*lines_shown, _next(study, options)]) + "\n", options.output)
    return DONE


def _not_finite(study: Study, runs: Sequence[Run], asked: str | None) -> list[str]:
    """A line for each CSV of another program that ended with a loss that is no number."""
    try:
        y = y_column(study, asked)
    except UserError:  # the column of the loss is not needed here
        return []
    found = [(run.name, loss) for run in runs if (loss := run.number(y)) is not None]
    return [f"note: {name}: its {y} is {loss}" for name, loss in found if not math.isfinite(loss)]


def _next(study: Study, options: argparse.Namespace) -> str:
    given = as_typed(options)
    if not study.is_ours:
        x, y = (shlex.quote(name or "COLUMN") for name in (options.x, options.y))
        return f"next: python -m analysis fit {given} --x {x} --y {y}   (a scaling law of these)"
    if any(not run.counts for run in study.runs):
        studies = " ".join(map(shlex.quote, options.study))
        return f"next: python -m slurm status {studies}   (what became of those that are not done)"
    rates = {run.value("lr") for run in study.runs}
    if len(rates) > 2:
        return f"next: python -m analysis best-lr {given}   (which learning rate is best)"
    apart = next((name for name in varying_columns(study.runs) if name not in SEEDS), None)
    if apart is None:
        return f"next: python -m analysis report {given}   (all of it on one page)"
    return f"next: python -m analysis compare {given} --by {apart}   (which are better than chance)"
