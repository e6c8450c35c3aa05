"""What a saved figure must say of where it was measured, and how figures are summed up."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from training.provenance import versions

RESULTS = Path(__file__).resolve().parent / "results"


def machine() -> dict[str, Any]:
    """Processor, cores, system: ratios travel between machines, absolutes do not."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform()}


def save(name: str, result: dict[str, Any], *, tell: bool = True) -> None:
    """Write benchmarks/results/NAME.json and print it. tell: False: do not print."""
    RESULTS.mkdir(exist_ok=True)
    record = {
        "benchmark": name,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "versions": versions(),
        **result,
    }
    text = json.dumps(record, indent=2)
    atomic_files.write_text(RESULTS / f"{name}.json", text + "\n")
    if tell:
        print(text)


def summary(values: list[float]) -> dict[str, float]:
    """Median with the smallest and the largest, and how many there were."""
    return {
        "median": round(statistics.median(values), 6),
        "min": round(min(values), 6),
        "max": round(max(values), 6),
        "n": len(values),
    }
