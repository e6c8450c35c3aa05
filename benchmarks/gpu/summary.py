"""The report of a GPU as lines, its goals first, and as a section of docs/figures.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
WORDS = {True: "yes", False: "no", None: "not measured"}

LEAST_TIMES_PLAIN = {"32d": 2.0, "64d": 2.0, "256d": 1.3, "512d": 1.1}
LEAST_OF_GRAPH = 0.87
"""1 / 1.15."""
MEMORY_BELOW, MEMORY_ABOVE = -0.05, 0.15
LEAST_ENSEMBLE_SPEEDUP = 5.0
MOST_OVERHEAD = 0.01


@dataclass(frozen=True)
class Goal:
    """is_met: None where it was not measured."""

    name: str
    wanted: str
    measured: str = ""
    is_met: bool | None = None


def at(report: dict[str, Any], check: str, *keys: str) -> Any:
    """Result of a check under these keys; None where it has none."""
    found: Any = (report["checks"].get(check) or {}).get("found")
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def goals(report: dict[str, Any]) -> list[Goal]:
    """Each goal of the product on a GPU, and whether this report has met it."""
    return [*_speed(report), *_memory(report), *_runs(report)]


def _speed(report: dict[str, Any]) -> Iterator[Goal]:
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


def _memory(report: dict[str, Any]) -> Iterator[Goal]:
    for case in ("32d", "512d"):
        run = at(report, "run_speed", case) or {}
        estimate = run.get("estimate_mib") or {}
        # The driver counts the context and loaded kernels too, which torch does not reserve.
        for name, estimated, measured in (
            ("GPU", estimate.get("gpu_bytes"), run.get("driver_mib")),
            ("host", estimate.get("own_bytes"), run.get("host_mib")),
        ):
            ratio = round(estimated / measured - 1, 4) if estimated and measured else None
            wanted = f"{MEMORY_BELOW:+.0%} to {MEMORY_ABOVE:+.0%}"
            is_met = None if ratio is None else MEMORY_BELOW <= ratio <= MEMORY_ABOVE
            yield Goal(
                f"{case}, {name} memory estimated / measured",
                wanted,
                "" if ratio is None else f"{ratio:+.1%} ({estimated} / {measured} MiB)",
                is_met,
            )


def _runs(report: dict[str, Any]) -> Iterator[Goal]:
    speedup = at(report, "run_ensembles", "alone", "speedup")
    yield _at_least("32 runs of 32d as one program, speedup", LEAST_ENSEMBLE_SPEEDUP, speedup)
    same = at(report, "run_resume", "deterministic", "has_same_bits")
    yield _goal("kill -9 and resume, deterministic: same bits", "True", same, bool)
    share = at(report, "run_harness", "share", "overhead")
    yield _goal(
        "harness around a step at 64d", f"at most {MOST_OVERHEAD:.0%}", share, lambda s: s <= MOST_OVERHEAD
    )
    limited = at(report, "run_recovery", "limited") or {}
    recovered = None if not limited else limited.get("exit") == 0 and bool(limited.get("smaller"))
    yield _goal("micro_batch=auto continues after CUDA out of memory", "True", recovered, bool)


def _at_least(name: str, least: float, found: Any) -> Goal:
    return _goal(name, f"at least {least:g}", found, lambda value: value >= least)


def _goal(name: str, wanted: str, found: Any, is_met: Any) -> Goal:
    return Goal(name, wanted) if found is None else Goal(name, wanted, str(found), bool(is_met(found)))


def summary(report: dict[str, Any]) -> str:
    """Goals, then each check: what it found in short, and every error."""
    lines = [f"== {report['device']}, commit {str(report['commit'])[:10]}, {report['seconds']} s"]
    for goal in goals(report) if report["device"] == "cuda" else ():
        met = WORDS[goal.is_met]
        lines.append(f"{goal.name}: {goal.measured or '-'}; goal: {goal.wanted}; met: {met}")
    for name, check in report["checks"].items():
        lines.append(f"-- {name}: exit {check['exit']}")
        found = check["found"] if isinstance(check["found"], dict) else {}
        for part, values in found.items():
            if not part.startswith("kernels of") and values != {"is_ready": True}:
                lines.append(f"   {part}: {_short(values)}"[:600])
        wrong = [
            part
            for part, values in found.items()
            if isinstance(values, dict) and values.get("is_right") is False
        ]
        if wrong:
            lines.append(f"   WRONG: {', '.join(wrong)}")
    failed = {name: check["exit"] for name, check in report["checks"].items() if check["exit"] != 0}
    lines.append(f"checks that did not end well: {failed or 'none'}")
    return "\n".join(lines)


def _short(values: Any) -> Any:
    """Without what only a closer look needs."""
    if isinstance(values, dict):
        left_out = ("at", "output", "summary", "longest", "took_s")
        return {key: _short(value) for key, value in values.items() if key not in left_out}
    return values


def page() -> str:
    """The section of docs/figures.md, of the saved reports of all GPUs."""
    text = (
        "`make gpu` measures the CUDA side on a machine with a GPU in nine minutes and saves "
        "`benchmarks/results/gpu_NAME.json` for its GPU; `python benchmarks/figures.py` then writes this "
        "section. [benchmarks/gpu](../benchmarks/gpu/README.md) lists the checks."
    )
    parts = ["## GPU", text]
    for path in sorted(RESULTS.glob("gpu_*.json")):
        report = json.loads(path.read_text())
        versions = report["versions"]
        source = (
            f"{versions['gpu']}, {report['date']}, torch {versions['torch']}, Python {versions['python']}."
        )
        parts += [f"### {path.stem}", _table(report), source]
    if len(parts) == 2:
        parts.append(_table({"device": "cuda", "checks": {}}))
    return "\n\n".join(parts) + "\n"


def _table(report: dict[str, Any]) -> str:
    from benchmarks.tokenizing_parts.page import goals as table_of

    return table_of((goal.name, goal.measured, goal.wanted, goal.is_met) for goal in goals(report))
