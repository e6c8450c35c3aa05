"""`python -m analysis STUDY`: the page that a sweep that was waited for ends with."""

from __future__ import annotations

import argparse

from analysis.commands.shared import say_json
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE
from training.attempt.made_by import Versions, codes_of

EXAMPLES = """\
examples:
  python -m analysis runs/lr_sweep
  python -m analysis page runs/lr_sweep --json"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "page",
        help="how each run of a study ended, the best one, what to do next; draws pictures of each",
        description="The page of a study: how each run ended, its losses, the best one.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "study", metavar="STUDY", help="folder of a study or of several, or name below runs_dir"
    )
    parser.add_argument("--json", action="store_true", help="the runs as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it.

    Raises:
        UserError: there is no such study, or no run in it.
    """
    from analysis.reading.study import run_folders_of
    from analysis.summary import render_sweep
    from analysis.sweep import sweep_row
    from experiment_utils.run_folder import RunFolder
    from slurm.status.study_status import run_states

    folders = run_folders_of(options.study)
    if not folders:
        raise UserError(f"{options.study}: expected the folder of a study, with runs in it")
    known = {entry.folder.resolve(): (entry.state, entry.reason) for entry in run_states(folders)}
    if not options.json:
        print(render_sweep(folders, known=known))
        return DONE
    rows = [sweep_row(RunFolder(folder), known) for folder in folders]
    versions = Versions((row.run.name, codes_of(row.run.run)) for row in rows)
    shown = [
        {
            "run": row.run.name,
            "state": row.outcome.state,
            "reason": row.outcome.reason,
            "final_val_loss": row.final_val_loss,
            "best_val_loss": row.best_val_loss,
            "tokens": row.tokens,
            "seconds": row.seconds,
            "code": versions.name_of(codes_of(row.run.run)),
        }
        for row in rows
    ]
    say_json(shown)
    return DONE
