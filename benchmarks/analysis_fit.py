"""How long `python -m analysis fit` takes with 1,000 draws of its bootstrap, of each law and method.

Made-up CSVs whose truth is known: 11 sizes for the power law, 24 runs of 6 sizes for Chinchilla's, with noise
of 0.3%. Each round is a process of its own, timed from outside. Beside the seconds: whether the 95% intervals
hold the truth, so that none is fast by being wrong.

    python benchmarks/analysis_fit.py [--rounds 5] [--draws 1000] [--no-save]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.environment import save, summary

GOAL_S = 10.0
_NOISE = 0.003
POWER = {"E": 2.6, "A": 290.0, "alpha": 0.134}
CHINCHILLA = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
"""Of Hoffmann et al. 2022."""


def write_power(folder: Path) -> None:
    """Sizes over two and a half decades of FLOPs."""
    luck = random.Random(0)
    for place in range(11):
        flops = 7e14 * 300 ** (place / 10)
        loss = POWER["E"] + POWER["A"] * flops ** -POWER["alpha"]
        _write(folder / f"{place}.csv", {"flops": flops, "loss": loss * math.exp(luck.gauss(0, _NOISE))})


def write_chinchilla(folder: Path) -> None:
    """Each size at 5, 20, 80 and 320 tokens a parameter."""
    luck = random.Random(0)
    for place in range(24):
        n = 1e6 * 300 ** (place // 4 / 5)
        d = n * 5 * 4 ** (place % 4)
        loss = CHINCHILLA["E"] + CHINCHILLA["A"] * n ** -CHINCHILLA["alpha"]
        loss += CHINCHILLA["B"] * d ** -CHINCHILLA["beta"]
        row = {"n": n, "d": d, "loss": loss * math.exp(luck.gauss(0, _NOISE))}
        _write(folder / f"{place}.csv", row)


def _write(path: Path, row: dict[str, float]) -> None:
    path.write_text(f"{','.join(row)}\n{','.join(f'{value:.12g}' for value in row.values())}\n")


def fitted(arguments: list[str]) -> tuple[float, dict[str, Any]]:
    """(seconds of the whole process, what it found)."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "fit", *arguments, "--json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return time.perf_counter() - begun, json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        power, chinchilla = Path(place) / "power", Path(place) / "chinchilla"
        for folder, write in ((power, write_power), (chinchilla, write_chinchilla)):
            folder.mkdir()
            write(folder)
        both = [str(chinchilla), "--law", "chinchilla", "--size", "n", "--tokens", "d"]
        cases = {
            "power, least squares": ([str(power), "--x", "flops"], POWER),
            "power, Huber": ([str(power), "--x", "flops", "--method", "huber"], POWER),
            "Chinchilla, Huber": (both, CHINCHILLA),
            "Chinchilla, least squares": ([*both, "--method", "least-squares"], CHINCHILLA),
        }
        seconds: dict[str, list[float]] = {name: [] for name in cases}
        holds: dict[str, dict[str, bool]] = {}
        for _ in range(options.rounds):
            for name, (arguments, truth) in cases.items():
                took_s, found = fitted([*arguments, "--draws", str(options.draws)])
                seconds[name].append(took_s)
                holds[name] = {
                    key: found[key]["low"] <= value <= found[key]["high"] for key, value in truth.items()
                }
    result: dict[str, Any] = {
        "draws": options.draws, "noise": _NOISE, "goal_s": GOAL_S,
        "seconds": {name: summary(values) for name, values in seconds.items()},
        "intervals_hold_the_truth": holds,
    }  # fmt: skip
    if options.no_save:
        print(json.dumps(result, indent=2))
    else:
        save("analysis_fit", result)


if __name__ == "__main__":
    main()
