"""`python -m slurm script OVERRIDES`: a plain sbatch script for a site, to be kept and edited."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).resolve().parent.parent / "submit_job.sh"
_EXAMPLES = """\
examples:
  python -m slurm script > my_job.sh                            # what slurm=default asks for
  python -m slurm script slurm=supercloud model=256d > my_job.sh
  python -m slurm script slurm.partition=gpu slurm.gpus_per_node=1 slurm.time=2:00:00 > my_job.sh
  sbatch my_job.sh model=256d optimizer.lr=1e-3                 # its arguments say what runs

Memory and time that are `auto` are those of the run that the overrides describe.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "script",
        help="a plain sbatch script for a site, to be kept",
        description="Print a plain sbatch script with a site's options in it. Redirect it to a file.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="as for experiments.py")
    parser.add_argument("--json", action="store_true", help="options, setup lines and the text as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it.

    Raises:
        UserError: what is wrong with the overrides.
    """
    from slurm.cluster.resources import ask
    from slurm.launch.compose_one import compose
    from slurm.plans.sweep_plans import plan_all

    config = compose(options.overrides)
    (plan,) = plan_all([config], tokenize=False)
    asked = ask(config, plan)
    text = script(asked.options, asked.setup, options.overrides)
    if options.json:
        print(json.dumps({"options": asked.options, "setup": list(asked.setup), "script": text}, indent=2))
    else:
        print(text, end="")
        print("# Keep it: > my_job.sh. Then: sbatch my_job.sh OVERRIDES", file=sys.stderr)
    return 0


def script(options: dict[str, Any], setup: Sequence[str], overrides: Sequence[str]) -> str:
    """submit_job.sh with these options of sbatch, this checkout and this interpreter in it."""
    head, _, body = TEMPLATE.read_text(encoding="utf-8").partition("set -euo pipefail\n")
    written = [line for line in head.splitlines() if line.startswith("#SBATCH ")]
    kept = {word[2:].partition("=")[0]: word for line in written for word in [line.removeprefix("#SBATCH ")]}
    given = {name.replace("_", "-"): value for name, value in options.items() if value not in (None, False)}
    fixed = {name: kept[name] for name in ("job-name", "output", "open-mode")}
    lines = [*fixed.values(), *(_option(name, value) for name, value in sorted(given.items()))]
    command = shlex.join(["python", "-m", "slurm", "script", *overrides])
    root = TEMPLATE.parent.parent
    return "\n".join(
        [
            "#!/bin/bash",
            f"# One run as a plain job; made by `{command}`. sbatch THIS_FILE OVERRIDES",
            "# It goes back into the queue ahead of its limit: keep --signal, --requeue, --open-mode.",
            *(f"#SBATCH {line}" for line in lines),
            *setup,  # as in a sweep's job: what sites have their users source fails under `set -eu`
            "set -euo pipefail",
            f"export HIGHWATER_CODE=${{HIGHWATER_CODE:-{shlex.quote(str(root))}}}",
            f"export PYTHON=${{PYTHON:-{shlex.quote(sys.executable)}}}",
            body,
        ]
    )


def _option(name: str, value: Any) -> str:
    return f"--{name}" if value is True else f"--{name}={shlex.quote(str(value))}"
