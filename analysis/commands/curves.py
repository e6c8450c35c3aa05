"""`python -m analysis curves STUDY`: losses of many runs in one picture."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from analysis.commands.pictures import picture_file, save_picture
from analysis.commands.shared import new_parser, notes_below, say_json, study_of
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE
from experiment_utils.quantities import counted

EXAMPLES = """\
examples:
  python -m analysis curves lr_sweep --where model=64d --color optimizer.lr
  python -m analysis curves lr_sweep --x flops --log-x --y val_loss -o curves.svg
  python -m analysis curves lr_sweep --x time --smooth 1          raw
  python -m analysis curves curves/ --x tokens --pattern '{model}_lr_{log10_lr}.csv' --color lr

Runs that differ in their seed alone are a band, from the lowest to the highest, with their mean. --x: tokens
(the default), flops, time, step, or any column."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = new_parser(subparsers, "curves", "losses of many runs in one picture, seeds as bands", EXAMPLES)
    parser.add_argument("--color", metavar="COLUMN", help="what colours tell (default: what varies)")
    parser.add_argument(
        "--smooth",
        type=int,
        metavar="N",
        help="points of the running mean (default: 2%% of the steps; of evaluations 1)",
    )
    parser.add_argument("--log-x", action="store_true", help="x by powers of ten")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=".png, .svg or .pdf (default: STUDY-curves.png here)"
    )
    parser.add_argument("--json", action="store_true", help="what was drawn, as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Draw it.

    Raises:
        UserError: no run has such a curve, or the file cannot be written.
    """
    from analysis.columns import y_column
    from analysis.curve_plot import bundles_of, curve_panels
    from analysis.panels import panels_figure

    study = study_of(options, with_curves=True)
    x = study.column(options.x) if options.x else "tokens"
    y = study.column(options.y) if options.y else "train_loss" if study.is_ours else y_column(study, None)
    by = study.column(options.color) if options.color else None
    if options.smooth is not None and options.smooth < 1:
        raise UserError(f"--smooth {options.smooth}: expected 1, which is raw, or more")
    output = picture_file(options.output or f"{_plain(options.study[0])}-curves.png")
    bundles, left_out = bundles_of(study.once(), x, y, by, options.smooth, study.named_facts)
    if not bundles:
        raise UserError(f"{study.path}: no run has two points of {y} over {x}: {'; '.join(left_out[:3])}")
    panels, caption = curve_panels(bundles, x, y, by, facts=study.named_facts, log_x=options.log_x)
    save_picture(output, lambda: panels_figure(panels, f"{study.path}: {y} over {x}", caption))
    count = sum(len(bundle.lines) for bundle in bundles)
    if options.json:
        drawn = [
            {"label": bundle.label, "runs": [line.run.name for line in bundle.lines]} for bundle in bundles
        ]
        say_json(
            {"version": 1, "picture": str(output), "x": x, "y": y, "curves": drawn, "left_out": left_out}
        )
        return DONE
    print(f"{output}: {y} over {x} of {counted(count, 'run')}, {counted(len(bundles), 'curve')}")
    print("".join(f"{line}\n" for line in notes_below(study.notes(), left_out)), end="")
    return DONE


def _plain(given: str) -> str:
    """A name for a file out of a study's."""
    return re.sub(r"[^\w.-]+", "_", Path(given).name or "runs")
