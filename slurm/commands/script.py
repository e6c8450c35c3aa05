"""`python -m slurm script OVERRIDES`: a plain sbatch script for a site, to keep and edit."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiment_utils.modules import IMPORT_ROOT, module_name
from experiment_utils.typed_here import print_verbatim

TEMPLATE = Path(__file__).resolve().parent.parent / "submit_job.sh"
_EXAMPLES = """\
examples:
  python -m slurm script > my_job.sh                            # options of slurm=default
  python -m slurm script slurm=supercloud model=256d > my_job.sh
  python -m slurm script slurm.partition=gpu slurm.gpus_per_node=1 slurm.time=2:00:00 > my_job.sh
  sbatch my_job.sh model=256d optimizer.lr=1e-3                 # its arguments are those of the run

For `auto`, memory and time are estimated for the run that the overrides describe.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "script",
        help="a plain sbatch script for a site, to be kept",
        description="Print a plain sbatch script with a site's options in it. Redirect it to a file.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="as for experiments.py")
    parser.add_argument("--json", action="store_true", help="options, setup lines and the text as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script.

    Raises:
        UserError: an override is not valid.
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
        print_verbatim(text)
        print("# Keep it: > my_job.sh. Then: sbatch my_job.sh OVERRIDES", file=sys.stderr)
    return 0


def script(options: dict[str, Any], setup: Sequence[str], overrides: Sequence[str]) -> str:
    """submit_job.sh with these options of sbatch, this checkout and this interpreter in it."""
    head, _, body = TEMPLATE.read_text(encoding="utf-8").partition("set -euo pipefail\n")
    kept = ("#SBATCH --job-name=", "#SBATCH --output=", "#SBATCH --open-mode=")
    command = shlex.join(["python", "-m", "slurm", "script", *overrides])
    return "\n".join(
        [
            "#!/bin/bash",
            f"# One run as a plain job; made by `{command}`. sbatch THIS_FILE OVERRIDES",
            "# It is requeued before its time limit: keep --signal, --requeue, --open-mode.",
            *(line for line in head.splitlines() if line.startswith(kept)),
            *(
                f"#SBATCH --{name.replace('_', '-')}"
                + ("" if value is True else f"={shlex.quote(str(value))}")
                for name, value in sorted(options.items())
                if value not in (None, False)
            ),
            *setup,  # as in a sweep's job: what sites have their users source fails under `set -eu`
            "set -euo pipefail",
            f"export HIGHWATER_CODE=${{HIGHWATER_CODE:-{shlex.quote(str(IMPORT_ROOT))}}}",
            f"export PYTHON=${{PYTHON:-{shlex.quote(sys.executable)}}}",
            body.replace("slurm.in_job.plain", module_name("slurm.in_job.plain")),
        ]
    )
