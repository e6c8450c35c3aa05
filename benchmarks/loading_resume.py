"""What going on at 80% of an epoch costs, and whether it is the very stream, for other ranks and workers.

The first batch of a fresh process is timed from its start (imports are over) and from a state at 80%. Then
one loader reads to 80% and on; others, of every number of ranks and workers, go on from its state, and what
their ranks give is put together in the order of the global batch.

    python benchmarks/loading_resume.py      # 1 minute; the files of loading.py, or its own
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary
from benchmarks.loading_parts.files import VOCABULARY, warm, write_tokens

SEQ_LEN = 1024
GLOBAL_BATCH = 30
"""Of each rank a whole number for 1, 2 and 3 ranks."""
RANKS, WORKERS = (1, 2, 3), (0, 2)
GOAL_S = 0.05
_COMPARED = 60


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "benchmarks" / ".loading", metavar="FOLDER")
    parser.add_argument("--tokens", type=int, default=29, metavar="N", help="2**N tokens (29)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--provisional", action="store_true", help="say so in the result: the machine was busy"
    )
    parser.add_argument("--first", nargs=2, metavar=("FILE", "SAMPLES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first:
        print(json.dumps(first_batch_s(Path(options.first[0]), int(options.first[1]))))
        return 0
    path = options.folder.resolve() / f"2-{options.tokens}" / "ours" / "tokens.npy"
    write_tokens(path, 1 << options.tokens)
    open_dataset(path)  # checked once
    warm(path.parent)
    exact, samples = exactness(path)
    added: list[float] = []
    taken: dict[str, list[float]] = {"fresh": [], "at 80%": []}
    for number in range(options.rounds):
        cases = [("fresh", 0), ("at 80%", samples)]
        for name, start in cases if number % 2 == 0 else cases[::-1]:
            command = [sys.executable, __file__, "--first", str(path), str(start)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            taken[name].append(json.loads(done.stdout))
        added.append(taken["at 80%"][-1] - taken["fresh"][-1])
    is_met = summary(added)["median"] <= GOAL_S and all(row["same"] for row in exact)
    save(
        "loading_resume",
        {
            "provisional": options.provisional,
            "tokens": 1 << options.tokens,
            "first_batch_s": {name: summary(values) for name, values in taken.items()},
            "added_s": summary(added),
            "compared_batches": _COMPARED,
            "exact": exact,
            "goal_s": GOAL_S,
            "met": is_met,
        },
    )
    return 0 if is_met else 1


def open_dataset(path: Path) -> Any:
    from data_loading import StreamingDataset, open_token_set

    return StreamingDataset(open_token_set(path, VOCABULARY), seq_len=SEQ_LEN)


def first_batch_s(path: Path, samples: int) -> float:
    """From opening the set to the first batch. samples: read before, 0: a fresh start."""
    import torch

    for module in ("loader", "streaming", "token_set"):
        importlib.import_module(f"data_loading.{module}")
    torch.set_num_threads(1)
    started = time.perf_counter()
    dataset = open_dataset(path)
    loader = dataset.loader(GLOBAL_BATCH)
    if samples:
        loader.load_state_dict({"epoch": 0, "samples": samples, "fingerprint": dataset.fingerprint})
    next(iter(loader))
    return time.perf_counter() - started


def exactness(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Whether each number of ranks and workers goes on as one loader does; and its samples at 80%."""
    import torch

    torch.set_num_threads(1)
    dataset = open_dataset(path)
    loader = dataset.loader(GLOBAL_BATCH, repeat=True)
    until = len(dataset) * 4 // 5 // GLOBAL_BATCH
    batches = iter(loader)
    for _ in range(until):
        next(batches)
    state = loader.state_dict()
    wanted = [next(batches)["input_ids"] for _ in range(_COMPARED)]
    rows = []
    for ranks in RANKS:
        for workers in WORKERS:
            found = resumed(dataset, state, ranks, workers)
            same = all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
            rows.append({"ranks": ranks, "workers": workers, "same": same})
    return rows, state["samples"]


def resumed(dataset: Any, state: dict[str, Any], ranks: int, workers: int) -> Iterator[Any]:
    """Global batches of all ranks' loaders, from a state on."""
    import torch

    streams = []
    for rank in range(ranks):
        loader = dataset.loader(
            GLOBAL_BATCH // ranks, rank, ranks, workers, num_batches=_COMPARED, repeat=True
        )
        loader.load_state_dict(state)
        streams.append(iter(loader))
    for parts in zip(*streams, strict=True):
        yield torch.cat([part["input_ids"] for part in parts])


if __name__ == "__main__":
    sys.exit(main())
