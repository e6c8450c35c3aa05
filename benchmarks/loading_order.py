"""What an index of the order costs, however many windows there are, and what it holds in memory.

Just above a power of two a permutation by cycle walking would cost up to twice as much.

    python benchmarks/loading_order.py      # 15 seconds
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np

from benchmarks.environment import save, summary
from benchmarks.loading_peers.peer import resident
from data_loading.order import Permutation
from data_loading.orders import order_of

WINDOWS = {"1e9": 10**9, "1.1e9": 11 * 10**8, "1e12": 10**12, "1.2e12": 12 * 10**11}
BLOCK = 1 << 15
GOAL_NS, GOAL_RATIO = 30.0, 1.5
_BLOCKS = 20


def nanoseconds(windows: int, number: int) -> float:
    """CPU time of an index, computed in blocks that lie anywhere."""
    order = Permutation(windows, 0, number)
    starts = np.random.default_rng(number).integers(0, windows - BLOCK, _BLOCKS)
    blocks = [np.arange(start, start + BLOCK) for start in starts]
    order(blocks[0])
    started = time.thread_time()
    for block in blocks:
        order(block)
    return (time.thread_time() - started) / (BLOCK * _BLOCKS) * 1e9


def memory_bytes(windows: int) -> int:
    """Anonymous memory that an order of so many windows adds, once it has been asked all over."""
    before = resident()["RssAnon"]
    order = order_of("shuffled", windows, 0)
    for start in range(0, windows - BLOCK, windows // 200):
        order.span(start, start + 32, 0)
    return resident()["RssAnon"] - before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--provisional", action="store_true", help="say so in the result: the machine was busy"
    )
    options = parser.parse_args()
    memory_bytes(10**6)  # what the allocator keeps is there from here on
    taken: dict[str, list[float]] = {name: [] for name in WINDOWS}
    for number in range(options.rounds):
        for name, windows in WINDOWS.items():
            taken[name].append(nanoseconds(windows, number))
    rows: list[dict[str, Any]] = [
        {"windows": name, "ns": summary(taken[name]), "memory_bytes": memory_bytes(windows)}
        for name, windows in WINDOWS.items()
    ]
    ratios = [max(one) / min(one) for one in zip(*taken.values(), strict=True)]
    worst = max(row["ns"]["median"] for row in rows)
    ratio = summary(ratios)
    save(
        "loading_order",
        {
            "provisional": options.provisional,
            "block": BLOCK,
            "rows": rows,
            "worst_over_best": ratio,
            "goals": {"ns": GOAL_NS, "worst_over_best": GOAL_RATIO},
            "met": worst <= GOAL_NS and ratio["median"] <= GOAL_RATIO,
        },
    )


if __name__ == "__main__":
    main()
