"""The leak detector against a straight-line fit and against one on RSS: false alarms, and how soon it finds.

Clean traces: 25 of each of 8 kinds of noise (benchmarks/leak_traces.py), of 12 more that were seen while the
detector was made, and of 2 that were written before its last changes; and real ones, anon
and RSS by step of small training runs in processes of their own, with evaluations, checkpoints and a
memory-mapped set that is read. Upon each a leak of 1 MB a step is put, from the first step on and from the
middle on. A method looks every 20 steps, as a run that is watched does; an alarm at any look counts.

    python benchmarks/memory_leaks.py [--traces 25] [--real 8] [--steps 600]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save
from benchmarks.leak_traces import ALSO_SEEN, CLEAN, FRESH, MB, clean
from benchmarks.pictures import draw
from experiment_utils.student_t import upper_tail
from memory import LeakWatch, find_leak

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOK_EVERY = 20

RUN = """
import json, sys
import numpy as np, torch
sys.path.insert(0, sys.argv[3])
from memory.process import read_process
import os
seed, steps = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(seed); torch.set_num_threads(1)
r = np.random.default_rng(seed)
width, has_evaluations, lengths_vary = int(r.choice([32, 64, 128])), bool(seed % 2), bool(seed % 3 == 0)
tokens = np.memmap(sys.argv[4], np.uint16, "r")
model = torch.nn.Sequential(
    torch.nn.Embedding(5000, width),
    torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True),
    torch.nn.Linear(width, 5000),
)
optimizer = torch.optim.AdamW(model.parameters())
amounts = []
for step in range(steps):
    length = int(r.integers(16, 128)) if lengths_vary else 64
    at = r.integers(0, len(tokens) - length - 1, 8)
    batch = torch.from_numpy(np.stack([tokens[i : i + length + 1].astype(np.int64) for i in at]))
    loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    loss.backward(); optimizer.step(); optimizer.zero_grad(set_to_none=True)
    if has_evaluations and step % 50 == 49:
        with torch.no_grad():
            model(torch.zeros(64, 64, dtype=torch.long)).logsumexp(-1)
    if step % 100 == 99:
        state = {k: v.clone() for k, v in model.state_dict().items()}
        torch.save(state, sys.argv[4] + f".{seed}.pt")
        del state
    now = read_process(os.getpid())
    amounts.append([now.anon_bytes, now.rss_bytes])
os.unlink(sys.argv[4] + f".{seed}.pt") if steps >= 100 else None
print(json.dumps(amounts))
"""

Method = Callable[[list[float]], "int | None"]


def line_p(values: list[float]) -> float:
    """One-sided p of the slope of a least-squares line, as if the samples were independent."""
    n = len(values)
    if n < 3:
        return 1.0
    middle, mean = (n - 1) / 2, statistics.fmean(values)
    spread = n * (n * n - 1) / 12
    slope = sum((x - middle) * (y - mean) for x, y in enumerate(values)) / spread
    left = sum((y - mean - slope * (x - middle)) ** 2 for x, y in enumerate(values))
    if left <= 0:
        return 0.0 if slope > 0 else 1.0
    return upper_tail(slope / math.sqrt(left / (n - 2) / spread), n - 2)


def by_line(values: list[float]) -> int | None:
    """The step of the first look at which the line rises with p < 0.05, warm-up left out as ours is."""
    for seen in range(LOOK_EVERY, len(values) + 1, LOOK_EVERY):
        if seen >= 40 and line_p(values[seen // 4 : seen]) < 0.05:
            return seen
    return None


def by_line_once(values: list[float]) -> int | None:
    """The same, with one look at the end."""
    return len(values) if line_p(values[len(values) // 4 :]) < 0.05 else None


def by_watch(values: list[float]) -> int | None:
    """Ours, while it runs."""
    watch = LeakWatch()
    for step, value in enumerate(values):
        watch.add(step, value)
        if step % LOOK_EVERY == LOOK_EVERY - 1 and watch.look().is_significant:
            return step + 1
    return None


def by_look(values: list[float]) -> int | None:
    """Ours, once at the end."""
    return len(values) if find_leak(range(len(values)), values).is_significant else None


METHODS: dict[str, Method] = {
    "LeakWatch, every 20 steps": by_watch,
    "find_leak, once at the end": by_look,
    "line with p < 0.05, every 20 steps": by_line,
    "line with p < 0.05, once at the end": by_line_once,
}


def real_traces(count: int, steps: int) -> tuple[list[list[float]], list[list[float]]]:
    """anon and RSS by step of so many training runs."""
    import tempfile

    import numpy as np

    anon, rss = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        np.random.default_rng(0).integers(0, 5000, 64 << 20, np.uint16).tofile(path)
        for seed in range(count):
            command = [sys.executable, "-c", RUN, str(seed), str(steps), str(ROOT), str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            amounts = json.loads(done.stdout)
            anon.append([float(one) for one, _ in amounts])
            rss.append([float(one) for _, one in amounts])
    return anon, rss


def leaky(values: list[float], begin: int = 0) -> list[float]:
    return [value + MB * max(0, step - begin) for step, value in enumerate(values)]


def measure(traces: list[list[float]], methods: dict[str, Method]) -> dict[str, Any]:
    """Of each method: share of clean traces that alarm, share of leaks found, and after how many steps."""
    found: dict[str, Any] = {}
    for name, method in methods.items():
        alarms = [method(values) for values in traces]
        delays = [method(leaky(values)) for values in traces]
        middle = [len(values) // 2 for values in traces]
        late = [
            None if at is None or at <= begin else at - begin
            for at, begin in zip(
                (method(leaky(values, begin)) for values, begin in zip(traces, middle, strict=True)),
                middle,
                strict=True,
            )
        ]
        found[name] = {
            "traces": len(traces),
            "false_alarms": round(sum(at is not None for at in alarms) / len(traces), 4),
            **{f"leak_{key}": value for key, value in _delays(delays).items()},
            **{f"late_leak_{key}": value for key, value in _delays(late).items()},
        }
    return found


def _delays(delays: list[int | None]) -> dict[str, Any]:
    known = sorted(at for at in delays if at is not None)
    return {
        "found": round(len(known) / len(delays), 4),
        "found_within_200": round(sum(at <= 200 for at in known) / len(delays), 4),
        "median_steps": known[len(known) // 2] if known else None,
        "p90_steps": known[int(0.9 * len(known))] if known else None,
    }


def cost() -> dict[str, float]:
    """Microseconds of CPU of the parts, on a long trace."""
    values = clean("correlated", 0, 5000)
    watch = LeakWatch()
    started = time.process_time()
    for step, value in enumerate(values):
        watch.add(step, value)
    added = time.process_time() - started
    started = time.process_time()
    for _ in range(50):
        watch.look()
    return {
        "add_us": round(1e6 * added / len(values), 2),
        "look_us": round(1e6 * (time.process_time() - started) / 50, 1),
    }


def figure(result: dict[str, Any]) -> Figure:
    """False alarms by kind of noise, ours and the line's."""
    from matplotlib.figure import Figure

    names = [
        "LeakWatch, every 20 steps",
        "line with p < 0.05, once at the end",
        "line with p < 0.05, every 20 steps",
    ]
    kinds = list(result["by_kind"])
    drawn = Figure(figsize=(8, 3.6), layout="constrained")
    axes = drawn.subplots()
    for number, (name, color) in enumerate(zip(names, ("#0b6e99", "#b9c2c9", "#d1772e"), strict=True)):
        shares = [100 * result["by_kind"][kind][name]["false_alarms"] for kind in kinds]
        places = [place + 0.27 * (number - 1) for place in range(len(kinds))]
        axes.bar(places, shares, 0.25, label=name, color=color)
    axes.axhline(5, color="black", linewidth=0.8, linestyle="--", label="5%")
    axes.set_xticks(range(len(kinds)), [kind.replace("_", " ") for kind in kinds], rotation=20)
    axes.set_ylabel("clean runs called a leak, %")
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return drawn


def run(traces: int, real: int, steps: int) -> dict[str, Any]:
    """The whole result."""
    by_kind = {kind: measure([clean(kind, seed, steps) for seed in range(traces)], METHODS) for kind in CLEAN}
    simulated = measure([clean(kind, seed, steps) for kind in CLEAN for seed in range(traces)], METHODS)
    ours = {name: METHODS[name] for name in list(METHODS)[:1]}
    seen, fresh = (
        {kind: measure([clean(kind, n, steps) for n in range(traces)], ours) for kind in kinds}
        for kinds in (ALSO_SEEN, FRESH)
    )
    anon, rss = real_traces(real, steps) if real else ([], [])
    return {
        "what": "share of clean runs called a leak, and steps until a leak of 1 MB a step is found; "
        f"simulated noise of {len(CLEAN)} kinds and real training runs of {steps} steps",
        "goals": {"false_alarms": 0.05, "found_within_steps": 200},
        "simulated": simulated,
        "by_kind": by_kind,
        "also_seen_by_kind": seen,
        "fresh_by_kind": fresh,
        "real_anon": measure(anon, METHODS) if anon else {},
        "real_rss": measure(rss, METHODS) if rss else {},
        "cost": cost(),
        "goals_met": all(
            one["LeakWatch, every 20 steps"]["false_alarms"] <= 0.05
            for one in (by_kind | seen | fresh).values()
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=int, default=25, help="of each kind of noise")
    parser.add_argument("--real", type=int, default=8, help="training runs whose traces are taken")
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    save("memory_leaks", run(options.traces, options.real, options.steps))
    draw("memory-leaks.png")


if __name__ == "__main__":
    main()
