"""Compare the leak detector with a straight-line fit: false alarms, and steps until a leak is found.

Clean traces: 25 of each of 8 kinds of noise (tests/memory/leaks/leak_traces.py) and of 15 harder kinds; and
real ones, anon and RSS by step of small training runs in processes of their own, with evaluations,
checkpoints and a memory-mapped set that is read. A leak of 1 MB a step is added to each, from the first
step on and from the middle on. A method looks every 20 steps, as on a run that is watched; an alarm at any
look counts.

    python benchmarks/memory_leaks.py
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.harness import ROOT, benchmark
from benchmarks.processes import run
from memory import LeakWatch, find_leak
from memory.leaks.detector import upper_tail
from tests.memory.leaks.leak_traces import CLEAN, MB, OTHERS, clean

LOOK_EVERY = 20
RUN = """
import json, os, sys
import numpy as np, torch
sys.path.insert(0, sys.argv[3])
from memory.measure.process import read_process
seed, steps = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(seed); torch.set_num_threads(1)
r = np.random.default_rng(seed)
width, has_evaluations, lengths_vary = int(r.choice([32, 64, 128])), bool(seed % 2), bool(seed % 3 == 0)
tokens = np.memmap(sys.argv[4], np.uint16, "r")
model = torch.nn.Sequential(
    torch.nn.Embedding(1000, width),
    torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True),
    torch.nn.Linear(width, 1000),
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
print(json.dumps(amounts))
"""
Trace = list[float]
Method = Callable[[Trace], "int | None"]


def line_p(values: Trace) -> float:
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


def by_line(values: Trace) -> int | None:
    """Step of the first look at which the line rises with p < 0.05, without the same warm-up as ours."""
    for seen in range(2 * LOOK_EVERY, len(values) + 1, LOOK_EVERY):
        if line_p(values[seen // 4 : seen]) < 0.05:
            return seen
    return None


def by_line_once(values: Trace) -> int | None:
    """The same, with one look at the end."""
    return len(values) if line_p(values[len(values) // 4 :]) < 0.05 else None


def by_watch(values: Trace) -> int | None:
    """The detector, while a run lasts."""
    watch = LeakWatch()
    for step, value in enumerate(values):
        watch.add(step, value)
        if step % LOOK_EVERY == LOOK_EVERY - 1 and watch.look().is_significant:
            return step + 1
    return None


def by_look(values: Trace) -> int | None:
    """The detector, once at the end."""
    return len(values) if find_leak(range(len(values)), values).is_significant else None


METHODS: dict[str, Method] = {
    "LeakWatch, every 20 steps": by_watch,
    "find_leak, once at the end": by_look,
    "line with p < 0.05, every 20 steps": by_line,
    "line with p < 0.05, once at the end": by_line_once,
}
OURS = dict(list(METHODS.items())[:1])


def real_traces(count: int, steps: int) -> list[list[tuple[float, float]]]:
    """(anon, RSS) by step of training runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        np.random.default_rng(0).integers(0, 1000, 64 << 20, np.uint16).tofile(path)
        command = [sys.executable, "-c", RUN]
        with ThreadPoolExecutor(3) as pool:  # amounts of memory, not times
            runs = [
                pool.submit(run, [*command, seed, steps, ROOT, path], errors=False) for seed in range(count)
            ]
            return [one.result().json for one in runs]


def measure(traces: list[Trace], methods: dict[str, Method] = METHODS) -> dict[str, Any]:
    """By method: share of clean traces with an alarm, share of leaks found, and after how many steps."""

    def leaky(values: Trace, begin: int) -> Trace:
        return [value + MB * max(0, step - begin) for step, value in enumerate(values)]

    def delay(method: Method, values: Trace, begin: int) -> int | None:
        at = method(leaky(values, begin))
        return None if at is None or at <= begin else at - begin

    found: dict[str, Any] = {}
    for name, method in methods.items():
        alarms = sum(method(values) is not None for values in traces)
        soon = _delays([delay(method, values, 0) for values in traces])
        late = _delays([delay(method, values, len(values) // 2) for values in traces])
        found[name] = {
            "traces": len(traces), "false_alarms": round(alarms / len(traces), 4),
            **{f"leak_{key}": value for key, value in soon.items()},
            **{f"late_leak_{key}": value for key, value in late.items()},
        }  # fmt: skip
    return found


def _delays(delays: list[int | None]) -> dict[str, Any]:
    known = sorted(at for at in delays if at is not None)
    return {
        "found": round(len(known) / len(delays), 4),
        "found_within_200": round(sum(at <= 200 for at in known) / len(delays), 4),
        "median_steps": known[len(known) // 2] if known else None,
        "p90_steps": known[int(0.9 * len(known))] if known else None,
    }


def result(traces: int, real: int, steps: int, real_steps: int) -> dict[str, Any]:
    """The whole result. traces: of each kind of noise; real: training runs."""

    def of(kind: str) -> list[Trace]:
        return [clean(kind, seed, steps) for seed in range(traces)]

    pool = ThreadPoolExecutor(1)
    amounts = pool.submit(real_traces, real, real_steps) if real else None
    found: dict[str, Any] = {
        "what": "share of clean runs called a leak, and steps until a leak of 1 MB a step is found; "
        f"simulated noise of {len(CLEAN)} kinds, {steps} steps, and real training runs of {real_steps} steps",
        "goals": {"false_alarms": 0.02, "found": 0.95, "found_within_steps": 200},
        "simulated": measure([values for kind in CLEAN for values in of(kind)]),
        "by_kind": {kind: measure(of(kind)) for kind in CLEAN},
        "others_by_kind": {kind: measure(of(kind), OURS) for kind in OTHERS},
        "others": measure([values for kind in OTHERS for values in of(kind)], OURS),
    }
    for place, name in enumerate(("real_anon", "real_rss")):
        values = [[float(one[place]) for one in trace] for trace in (amounts.result() if amounts else [])]
        found[name] = measure(values) if values else {}
    return found


@benchmark(traces=(25, 1), real=(20, 1), steps=(600, 160), real_steps=(400, 160))
def measured(chosen: Any) -> Any:
    return result(chosen.traces, chosen.real, chosen.steps, chosen.real_steps)
