"""How soon a command answers: --help, a typo in an override, the check of a sweep of 100 runs.

Each command is a process of its own, timed from outside, all of them in turn in every round, so that
a drift of the machine meets all alike. Told beside `import hydra` and `import torch`, and beside
Hydra's own ways: a bare Hydra program, and composing the same 100 runs as Hydra's sweeper does.

    python benchmarks/startup.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary

ENTRY = str(ROOT / "experiments.py")
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
from conf.hydra_parts import prepare_hydra, search_path
prepare_hydra()
hydra = Hydra.create_main_hydra2("experiments", search_path(None))
keys = [argument.split("=")[0] for argument in sys.argv[2:]]
values = [range(5) if "range" in argument else argument.split("=")[1].split(",") for argument in sys.argv[2:]]
count = 0
for run in product(*values):
    overrides = [f"{key}={value}" for key, value in zip(keys, run)]
    hydra.config_loader.load_configuration("config", overrides, run_mode=RunMode.RUN)
    count += 1
assert count == 100
"""


def seconds_of(command: list[str], folder: Path, code: int = 0) -> float:
    """Wall time of one process, which must exit with `code`."""
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode != code:
        raise RuntimeError(f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bare.py").write_text(BARE_HYDRA)
        (folder / "sweep.py").write_text(HYDRA_SWEEP)
        python = sys.executable
        commands: dict[str, tuple[list[str], int]] = {
            "python": ([python, "-c", "pass"], 0),
            "import hydra": ([python, "-c", "import hydra"], 0),
            "import torch": ([python, "-c", "import torch"], 0),
            "--help": ([python, ENTRY, "--help"], 0),
            "--help of a bare Hydra program": ([python, "bare.py", "--help"], 0),
            "error in an override": ([python, ENTRY, "model=257d", "training.lrr=1"], 2),
            "error in an override of a bare Hydra program": ([python, "bare.py", "lrr=1"], 1),
            "error in a sweep of 100 runs": ([python, ENTRY, "-m", *SWEEP, "training.micro_batch=5"], 2),
            "Hydra composing these 100 runs": ([python, "sweep.py", str(ROOT), *SWEEP], 0),
        }
        for command, code in commands.values():  # warms the page cache and writes the .pyc files
            seconds_of(command, folder, code)
        times: dict[str, list[float]] = {what: [] for what in commands}
        for number in range(rounds):
            for what, (command, code) in commands.items():
                if "composing" not in what or number < 3:  # ten times as long as all the others
                    times[what].append(seconds_of(command, folder, code))
    medians = {what: statistics.median(taken) for what, taken in times.items()}
    save(
        "startup",
        {
            "unit": "seconds of wall time, whole process",
            "commands": {what: summary(taken) for what, taken in times.items()},
            "goals_s": GOALS_S,
            "goals_met": {what: medians[what] < goal for what, goal in GOALS_S.items()},
            "ratio_to_import_hydra": {
                what: round(medians[what] / medians["import hydra"], 2) for what in GOALS_S
            },
            "ratio_to_import_torch": {
                what: round(medians[what] / medians["import torch"], 3) for what in GOALS_S
            },
        },
    )


if __name__ == "__main__":
    main()
