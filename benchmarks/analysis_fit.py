"""Measure how long `python -m analysis fit` takes with 1,000 draws of its bootstrap, by law and method.

Made-up CSVs whose truth is known: 11 sizes for the power law, 24 runs of 6 sizes for Chinchilla's, with
noise of 0.3%. Saved with the seconds: whether the 95% intervals hold the truth, so that none is fast by
being wrong.

    python benchmarks/analysis_fit.py
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import benchmark, in_turns, summary
from benchmarks.processes import Ran, run

GOAL_S, NOISE = 10.0, 0.003
POWER = {"E": 2.6, "A": 290.0, "alpha": 0.134}
CHINCHILLA = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
"""Hoffmann et al. 2022."""


def power(place: int) -> dict[str, float]:
    """One of 11 sizes over two and a half decades of FLOPs."""
    flops = 7e14 * 300 ** (place / 10)
    return {"flops": flops, "loss": POWER["E"] + POWER["A"] * flops ** -POWER["alpha"]}


def chinchilla(place: int) -> dict[str, float]:
    """One of 6 sizes at 5, 20, 80 or 320 tokens a parameter."""
    n = 1e6 * 300 ** (place // 4 / 5)
    d = n * 5 * 4 ** (place % 4)
    loss = CHINCHILLA["E"] + CHINCHILLA["A"] * n ** -CHINCHILLA["alpha"]
    return {"n": n, "d": d, "loss": loss + CHINCHILLA["B"] * d ** -CHINCHILLA["beta"]}


def write(folder: Path, rows: list[dict[str, float]]) -> Path:
    """A CSV for each row, with noise."""
    luck = random.Random(0)
    folder.mkdir()
    for place, row in enumerate(rows):
        row["loss"] *= math.exp(luck.gauss(0, NOISE))
        cells = ",".join(f"{value:.12g}" for value in row.values())
        (folder / f"{place}.csv").write_text(f"{','.join(row)}\n{cells}\n")
    return folder


@benchmark(rounds=(5, 1), draws=(1000, 20))
def measured(chosen: Any) -> Any:
    with tempfile.TemporaryDirectory() as place:
        one = [write(Path(place) / "power", [power(number) for number in range(11)]), "--x", "flops"]
        both = [write(Path(place) / "chinchilla", [chinchilla(number) for number in range(24)])]
        both += ["--law", "chinchilla", "--size", "n", "--tokens", "d"]
        cases: dict[str, tuple[list[Any], dict[str, float]]] = {
            "power, least squares": (one, POWER),
            "power, Huber": ([*one, "--method", "huber"], POWER),
            "Chinchilla, Huber": (both, CHINCHILLA),
            "Chinchilla, least squares": ([*both, "--method", "least-squares"], CHINCHILLA),
        }
        base = [sys.executable, "-m", "analysis", "fit"]
        fits = {
            name: partial(run, [*base, *arguments, "--draws", chosen.draws, "--json"], errors=False)
            for name, (arguments, _) in cases.items()
        }
        found: dict[str, list[Ran]] = in_turns(fits, chosen.rounds)
    holds = {}
    for name, (_, truth) in cases.items():
        fit = json.loads(found[name][-1].output)
        holds[name] = {key: fit[key]["low"] <= value <= fit[key]["high"] for key, value in truth.items()}
    return {
        "draws": chosen.draws, "noise": NOISE, "goal_s": GOAL_S, "intervals_hold_the_truth": holds,
        "seconds": {name: summary([one.wall_s for one in taken]) for name, taken in found.items()},
    }  # fmt: skip
