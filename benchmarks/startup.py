"""Measure how soon a command answers: --help, a typo in an override, the check of a sweep of 100 runs.

Each command is a process of its own, in turns, next to `import hydra`, `import torch` and Hydra's own ways: a
bare Hydra program, and composing the same 100 runs as Hydra's sweeper does.

    python benchmarks/startup.py
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import ROOT, benchmark, in_turns, summaries
from benchmarks.processes import seconds_of

ENTRY = [sys.executable, ROOT / "experiments.py"]
SWEEP = ["model=32d,64d,128d,256d", "seed=range(5)", "optimizer.lr=1e-3,2e-3,3e-3,5e-3,1e-2"]
GOALS_S = {"--help": 0.3, "error in an override": 1.0, "error in a sweep of 100 runs": 1.0}
BARE_HYDRA = """
import hydra
@hydra.main(version_base="1.3", config_path=None)
def main(config): pass
main()
"""
HYDRA_SWEEP = """
import sys
from itertools import product
sys.path.insert(0, sys.argv[1])
from hydra._internal.hydra import Hydra
from hydra.types import RunMode
from conf.composing.hydra_setup import prepare_hydra, search_path
prepare_hydra()
hydra = Hydra.create_main_hydra2("experiments", search_path(None))
keys = [argument.split("=")[0] for argument in sys.argv[2:]]
values = [range(5) if "range" in argument else argument.split("=")[1].split(",") for argument in sys.argv[2:]]
runs = list(product(*values))
for run in runs:
    overrides = [f"{key}={value}" for key, value in zip(keys, run)]
    hydra.config_loader.load_configuration("config", overrides, run_mode=RunMode.RUN)
assert len(runs) == 100
"""


@benchmark(rounds=(15, 1), slow_rounds=(3, 0))
def measured(chosen: Any) -> Any:
    python = sys.executable
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "bare.py").write_text(BARE_HYDRA)
        (Path(name) / "sweep.py").write_text(HYDRA_SWEEP)
        commands = {
            "python": ([python, "-c", "pass"], 0),
            "import hydra": ([python, "-c", "import hydra"], 0),
            "import torch": ([python, "-c", "import torch"], 0),
            "--help": ([*ENTRY, "--help"], 0),
            "--help of a bare Hydra program": ([python, "bare.py", "--help"], 0),
            "error in an override": ([*ENTRY, "model=257d", "training.lrr=1"], 2),
            "error in an override of a bare Hydra program": ([python, "bare.py", "lrr=1"], 1),
            "error in a sweep of 100 runs": ([*ENTRY, "-m", *SWEEP, "training.micro_batch=5"], 2),
        }
        cases = {
            what: partial(seconds_of, command, code=code, cwd=Path(name))
            for what, (command, code) in commands.items()
        }
        composing = partial(seconds_of, [python, "sweep.py", ROOT, *SWEEP], cwd=Path(name))
        # The first round warms the page cache and writes the .pyc files.
        seconds = in_turns(cases, chosen.rounds, warm_up=1)
        if chosen.slow_rounds:  # ten times as long as all the others
            seconds |= in_turns({"Hydra composing these 100 runs": composing}, chosen.slow_rounds)
    return {"commands": summaries(seconds), "goals_s": GOALS_S}
