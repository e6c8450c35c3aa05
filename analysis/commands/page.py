"""`python -m analysis STUDY`: the page that a sweep that was waited for ends with."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from conf import UserError
from conf.exit_status import DONE
from memory.usage import UsageError, is_folder

EXAMPLES = """\
examples:
  python -m analysis runs/lr_sweep
  python -m analysis page runs/lr_sweep --json"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "page",
        help="how each run of a study ended, the best one, what to do next; draws pictures of each",
        description="The page of a study: how each run ended, its losses, the best one.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", metavar="STUDY", help="folder of a study")
    parser.add_argument("--json", action="store_true", help="the runs as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it."""
    return _show(Path(options.study), as_json=options.json)


def _show(study: Path, *, as_json: bool) -> int:
    from analysis.run_folder import read_run_folder
    from analysis.summary import render_sweep
    from analysis.sweep import sweep_row
    from slurm.truth import study_truth

    try:
        folders = sorted(path.parent for path in study.glob("*/config.yaml")) if is_folder(study) else []
    except UsageError as error:
        raise UserError(str(error)) from error
    if not folders:
        raise UserError(f"{study}: expected the folder of a study, with runs in it")
    told = {
        truth.folder.resolve(): (truth.state, truth.reason) for truth in study_truth(study, folders=folders)
    }
    if not as_json:
        print(render_sweep(folders, told=told))
        return DONE
    rows = [sweep_row(read_run_folder(folder), told) for folder in folders]
    shown = [
        {
            "run": row.run.name,
            "state": row.outcome.state,
            "reason": row.outcome.reason,
            "final_val_loss": row.final_val_loss,
            "best_val_loss": row.best_val_loss,
            "tokens": row.tokens,
            "seconds": row.seconds,
        }
        for row in rows
    ]
    print(json.dumps(shown, indent=2, ensure_ascii=False))
    return DONE
