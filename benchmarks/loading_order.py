"""Measure what an index of the order costs, by number of windows, and what an order holds in memory.

Just above a power of two a permutation by cycle walking would cost up to twice as much.

    python benchmarks/loading_order.py      # 15 seconds
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.harness import benchmark, in_turns, summary
from benchmarks.processes import proc_bytes
from data_loading.dataset.orders import order_of
from data_loading.dataset.permutation import Permutation

WINDOWS = {"1e9": 10**9, "1.1e9": 11 * 10**8, "1e12": 10**12, "1.2e12": 12 * 10**11}
BLOCK, BLOCKS = 1 << 15, 20
GOALS = {"ns": 30.0, "worst_over_best": 1.5}
_seeds = itertools.count()


def nanoseconds(windows: int) -> float:
    """CPU time of an index, computed in blocks at random places."""
    seed = next(_seeds)
    order = Permutation(windows, 0, seed)
    starts = np.random.default_rng(seed).integers(0, windows - BLOCK, BLOCKS)
    blocks = [np.arange(start, start + BLOCK) for start in starts]
    order(blocks[0])
    started = time.thread_time()
    for block in blocks:
        order(block)
    return (time.thread_time() - started) / (BLOCK * BLOCKS) * 1e9


def memory_bytes(windows: int) -> int:
    """Anonymous memory that an order adds, after reads all over it."""
    before = proc_bytes("RssAnon")
    order = order_of("shuffled", windows, 0)
    for start in range(0, windows - BLOCK, windows // 200):
        order.span(start, start + 32, 0)
    return proc_bytes("RssAnon") - before


@benchmark(rounds=(15, 1))
def measured(chosen: Any) -> Any:
    memory_bytes(10**6)  # the allocator keeps that much from here on
    cases = {name: lambda windows=windows: nanoseconds(windows) for name, windows in WINDOWS.items()}
    taken = in_turns(cases, chosen.rounds)
    rows = [
        {"windows": name, "ns": summary(taken[name]), "memory_bytes": memory_bytes(windows)}
        for name, windows in WINDOWS.items()
    ]
    over = summary([max(one) / min(one) for one in zip(*taken.values(), strict=True)])
    return {"block": BLOCK, "rows": rows, "worst_over_best": over, "goals": GOALS}
