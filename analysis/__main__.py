"""`python -m analysis STUDY`: the table of a study's runs, as a sweep that was waited for ends with it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from conf import UserError
from conf.exit_status import DONE, exit_status
from memory.usage import UsageError, is_folder

EXAMPLES = """\
examples:
  python -m analysis runs/lr_sweep
  python -m analysis runs/lr_sweep --json"""


def parser() -> argparse.ArgumentParser:
    """What a user may type."""
    result = argparse.ArgumentParser(
        prog="python -m analysis",
        description="The table of a study's runs: how each ended, its losses, the best one.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("study", metavar="STUDY", help="folder of a study")
    result.add_argument("--json", action="store_true", help="the runs as JSON")
    return result


def main(arguments: list[str] | None = None) -> int:
    """Print it; returns the exit status."""
    return exit_status(lambda: _main(arguments))


def _main(arguments: list[str] | None) -> int:
    options = parser().parse_args(arguments)
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


if __name__ == "__main__":
    sys.exit(main())
