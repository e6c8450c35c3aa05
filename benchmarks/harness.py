"""Harness of all benchmarks: options, cases in turns, medians and ratios, goals, and saving.

A script declares its cases, has `in_turns` measure them, and calls `save`; `processes.py` runs the commands.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS, RESULTS = ROOT / "benchmarks", ROOT / "benchmarks" / "results"
MB = 1 << 20
K = TypeVar("K")
T = TypeVar("T")


def options(doc: str | None, argv: Sequence[str] | None = None, **flags: Any) -> argparse.Namespace:
    """Options of a benchmark from the command line.

    Args:
        doc: docstring of the script, shown by `--help`.
        flags: by name, a pair (default, default with `--quick`), or the type of a flag without a default. A
            list takes several values; `bool` is a switch.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes; nothing is saved")
    parser.add_argument("--no-save", action="store_true", help="print the result only")
    parser.add_argument("--provisional", action="store_true", help="mark the result: the machine was busy")
    for name, declared in flags.items():
        flag, usual = f"--{name.replace('_', '-')}", declared[0] if isinstance(declared, tuple) else None
        if declared is bool:
            parser.add_argument(flag, action="store_true")
        elif isinstance(usual, list):
            parser.add_argument(flag, type=type(usual[0]), nargs="+", help=f"{usual}")
        else:
            kind = type(usual) if isinstance(declared, tuple) else declared
            parser.add_argument(flag, type=kind, help=f"({usual})" if usual is not None else None)
    found = parser.parse_args(argv)
    for name, declared in flags.items():
        if getattr(found, name) is None and isinstance(declared, tuple):
            setattr(found, name, declared[1 if found.quick else 0])
    return found


def benchmark(name: str = "", **flags: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the function that measures: it takes the options and returns the result, which is then saved.

    It is called when its script is run. A result of None is not saved.

    Args:
        name: of the saved result, the script's by default.
        flags: see `options`.
    """

    def declare(measure: Callable[..., Any]) -> Callable[..., Any]:
        if measure.__module__ == "__main__":
            chosen = options(sys.modules["__main__"].__doc__, **flags)
            found = measure(chosen)
            if found is not None:
                save(name or Path(measure.__code__.co_filename).stem, found, chosen)
        return measure

    return declare


def in_turns(cases: Mapping[K, Callable[[], T]], rounds: int, warm_up: int = 0) -> dict[K, list[T]]:
    """Results of each case by round. Each round runs all cases once, in an order of its own.

    Args:
        warm_up: rounds before the first that counts.
    """
    found: dict[K, list[T]] = {name: [] for name in cases}
    for number in range(-warm_up, rounds):
        began = time.monotonic()
        for name in random.Random(number).sample(list(cases), len(cases)):
            result = cases[name]()
            if number >= 0:
                found[name].append(result)
        if time.monotonic() - began > 2:
            print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    return found


def summary(values: Sequence[float], digits: int = 6) -> dict[str, float]:
    """Median, smallest, largest and number of values."""
    median = round(statistics.median(values), digits)
    return {
        "median": median,
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "n": len(values),
    }


def summaries(found: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """`summary` of each case."""
    return {name: summary(values) for name, values in found.items()}


def ratios(values: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """`summary` of the ratios within each round."""
    return summary([one / other for one, other in zip(values, others, strict=True)])


def goal(
    what: str,
    measured: float,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    unit: str = "times",
    digits: int = 2,
) -> dict[str, Any]:
    """A goal with what was measured and whether it is met."""  # fmt: skip
    wanted = f"at most {at_most:.3g}" if at_least is None else f"at least {at_least:.3g}"
    met = measured <= at_most if at_most is not None else measured >= (at_least or 0)
    return {
        "what": what,
        "measured": round(measured, digits),
        "wanted": wanted,
        "unit": unit,
        "met": bool(met),
    }


def machine() -> dict[str, Any]:
    """Processor, cores and system: ratios can be compared between machines, absolute figures cannot."""
    model = platform.processor()
    with suppress(OSError):
        model = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[0]
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform()}


def save(name: str, result: dict[str, Any], chosen: argparse.Namespace | None = None) -> None:
    """Print a result and write it to benchmarks/results/NAME.json with machine, versions and date.

    Args:
        chosen: options of the script. With `--quick` or `--no-save` nothing is written.
    """
    if chosen is not None and (chosen.quick or chosen.no_save):
        print(json.dumps(result, indent=2))
        return
    from experiment_utils import atomic_files
    from training.run.provenance import versions

    facts = {
        "benchmark": name,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "versions": versions(),
    }
    if chosen is not None:
        facts |= {"provisional": chosen.provisional, "load_average": round(os.getloadavg()[0], 1)}
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(facts | result, indent=2)
    atomic_files.write_text(RESULTS / f"{name}.json", text + "\n")
    print(text)
