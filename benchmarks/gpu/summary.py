"""The report of a GPU as lines, its goals first, and as a section of docs/figures.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
WORDS = {True: "yes", False: "no", None: "not measured"}
LEAST_TIMES_PLAIN = {"32d": 2.0, "64d": 2.0, "256d": 1.3, "512d": 1.1}
LEAST_OF_GRAPH = 0.87
MEMORY_BELOW, MEMORY_ABOVE = -0.05, 0.15


@dataclass(frozen=True)
class Goal:
    """is_met: None if it was not measured."""

    name: str
    wanted: str
    measured: str = ""
    is_met: bool | None = None


def at(report: dict[str, Any], check: str, *keys: str) -> Any:
    """Result of a check under these keys; None if it has none."""
    found: Any = (report["checks"].get(check) or {}).get("found")
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _goal(name: str, wanted: str, found: Any, is_met: Callable[[Any], Any]) -> Goal:
    return Goal(name, wanted) if found is None else Goal(name, wanted, str(found), bool(is_met(found)))


def _at_least(name: str, least: float, found: Any) -> Goal:
    return _goal(name, f"at least {least:g}", found, lambda value: value >= least)


def goals(report: dict[str, Any]) -> Iterator[Goal]:
    """Each goal of the product on a GPU, and whether this report has met it."""
    for size, least in LEAST_TIMES_PLAIN.items():
        for check, way, wanted in (
            ("speed", "plain loop", least),
            ("compiled", "plain loop, compiled", least),
            ("speed", "plain loop, one CUDA graph", LEAST_OF_GRAPH),
        ):
            ours, theirs = (at(report, f"{check}_{size}", "ms", name, "ms") for name in ("product", way))
            ratio = round(theirs / ours, 2) if ours and theirs else None
            yield _at_least(f"{size}, speed / {way}", wanted, ratio)
        waits = at(report, f"speed_{size}", "syncs", "product")
        yield _goal(f"{size}, synchronizations in a step", "0", waits, lambda found: not found)
    for case in ("32d", "512d"):
        run = at(report, "run_speed", case) or {}
        # The driver counts the context and loaded kernels too, which torch does not reserve.
        for name, estimate, measured in (
            ("GPU", "gpu_bytes", "driver_mib"),
            ("host", "own_bytes", "host_mib"),
        ):
            pair = (run.get("estimate_mib") or {}).get(estimate), run.get(measured)
            what = f"{case}, {name} memory estimated / measured"
            wanted_range = f"{MEMORY_BELOW:+.0%} to {MEMORY_ABOVE:+.0%}"
            if all(pair):
                ratio = round(pair[0] / pair[1] - 1, 4)
                text = f"{ratio:+.1%} ({pair[0]} / {pair[1]} MiB)"
                yield Goal(what, wanted_range, text, MEMORY_BELOW <= ratio <= MEMORY_ABOVE)
            else:
                yield Goal(what, wanted_range)
    speedup = at(report, "run_ensembles", "alone", "speedup")
    yield _at_least("32 runs of 32d as one program, speedup", 5.0, speedup)
    same = at(report, "run_resume", "deterministic", "has_same_bits")
    yield _goal("kill -9 and resume, deterministic: same bits", "True", same, bool)
    share = at(report, "run_harness", "share", "overhead")
    yield _goal("harness around a step at 64d", "at most 1%", share, lambda share: share <= 0.01)
    limited = at(report, "run_recovery", "limited") or {}
    recovered = None if not limited else limited.get("exit") == 0 and bool(limited.get("smaller"))
    yield _goal("micro_batch=auto continues after CUDA out of memory", "True", recovered, bool)


def summary(report: dict[str, Any]) -> str:
    """Goals, then each check: what it found in short, and every error."""
    lines = [f"== {report['device']}, commit {str(report['commit'])[:10]}, {report['seconds']} s"]
    for goal in goals(report) if report["device"] == "cuda" else ():
        met = WORDS[goal.is_met]
        lines.append(f"{goal.name}: {goal.measured or '-'}; goal: {goal.wanted}; met: {met}")
    for name, check in report["checks"].items():
        lines.append(f"-- {name}: exit {check['exit']}")
        found = check["found"] if isinstance(check["found"], dict) else {}
        lines += [f"   {part}: {values}"[:600] for part, values in found.items()]
        parts = {part: values for part, values in found.items() if isinstance(values, dict)}
        wrong = [part for part, values in parts.items() if values.get("is_right") is False]
        lines += [f"   WRONG: {', '.join(wrong)}"] if wrong else []
    failed = {name: check["exit"] for name, check in report["checks"].items() if check["exit"] != 0}
    return "\n".join([*lines, f"checks that did not end well: {failed or 'none'}"])


def page() -> str:
    """The section of docs/figures.md, from the saved reports of all GPUs."""
    text = (
        "`make gpu` measures the CUDA side on a machine with a GPU in nine minutes and saves "
        "`benchmarks/results/gpu_NAME.json` for its GPU; `python benchmarks/figures.py` then writes this "
        "section. `benchmarks/gpu/README.md` lists the checks."
    )
    parts = ["## GPU", text]
    for path in sorted(RESULTS.glob("gpu_*.json")):
        report = json.loads(path.read_text())
        rows = [f"| {g.name} | {g.measured} | {g.wanted} | {WORDS[g.is_met]} |" for g in goals(report)]
        table = "\n".join(["| goal | measured | wanted | met |", "| --- | --- | --- | --- |", *rows])
        versions, date = report["versions"], report["date"]
        source = f"{versions['gpu']}, {date}, torch {versions['torch']}, Python {versions['python']}."
        parts += [f"### {path.stem}", table, source]
    return "\n\n".join(parts) + "\n"
