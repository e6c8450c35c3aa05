"""Measure what resuming at 80% of an epoch costs, and compare the stream for other numbers of ranks.

The first batch of a fresh process is timed from its start (imports are over) and from a state at 80%. Then
one loader reads to 80% and on; others, of every number of ranks, resume from its state, and the
parts of their ranks are put together in the order of the global batch.

    python benchmarks/loading_resume.py      # 1 minute; the files of loading.py, or its own
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import BENCHMARKS, benchmark, in_turns, summaries, summary
from benchmarks.loading import warm, write_tokens
from benchmarks.loading_peers import VOCABULARY
from benchmarks.processes import run

SEQ_LEN, GLOBAL_BATCH, COMPARED = 1024, 30, 60
RANKS = (1, 2, 3)
GOAL_S = 0.05


def open_dataset(path: Path) -> Any:
    from data_loading import StreamingDataset, open_token_set

    return StreamingDataset(open_token_set(path, VOCABULARY), seq_len=SEQ_LEN)


def first_batch_s(path: Path, samples: int) -> float:
    """Seconds from opening the set to the first batch. samples: read before, 0: a fresh start."""
    import torch

    for module in ("loader.loader", "dataset.streaming_dataset", "token_set"):
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
    """Whether each number of ranks resumes as one loader continues; and its samples at 80%."""
    import torch

    torch.set_num_threads(1)
    dataset = open_dataset(path)
    loader = dataset.loader(GLOBAL_BATCH, repeat=True)
    batches = iter(loader)
    for _ in range(len(dataset) * 4 // 5 // GLOBAL_BATCH):
        next(batches)
    state = loader.state_dict()
    wanted = [next(batches)["input_ids"] for _ in range(COMPARED)]
    rows = []
    for ranks in RANKS:
        found = resumed(dataset, state, ranks)
        same = all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
        rows.append({"ranks": ranks, "same": same})
    return rows, state["samples"]


def resumed(dataset: Any, state: dict[str, Any], ranks: int) -> Iterator[Any]:
    """Global batches of all ranks' loaders, from a state on."""
    import torch

    streams = []
    for rank in range(ranks):
        loader = dataset.loader(GLOBAL_BATCH // ranks, rank, ranks, num_batches=COMPARED, repeat=True)
        loader.load_state_dict(state)
        streams.append(iter(loader))
    for parts in zip(*streams, strict=True):
        yield torch.cat([part["input_ids"] for part in parts])


if __name__ == "__main__" and sys.argv[1:2] == ["--first"]:
    print(json.dumps(first_batch_s(Path(sys.argv[2]), int(sys.argv[3]))))
    sys.exit()


@benchmark(folder=Path, tokens=(29, 22), rounds=(5, 1))
def measured(chosen: Any) -> Any:
    folder = (chosen.folder or BENCHMARKS / ".loading").resolve() / f"2-{chosen.tokens}" / "Ours"
    path = folder / "tokens.npy"
    write_tokens(path, 1 << chosen.tokens)
    open_dataset(path)  # checked once
    warm(folder)
    exact, samples = exactness(path)
    command = [sys.executable, __file__, "--first", path]
    cases = {
        name: lambda start=start: run([*command, start], errors=False).json
        for name, start in (("fresh", 0), ("at 80%", samples))
    }
    taken = in_turns(cases, chosen.rounds)
    added = [after - fresh for after, fresh in zip(taken["at 80%"], taken["fresh"], strict=True)]
    result = {
        "tokens": 1 << chosen.tokens, "first_batch_s": summaries(taken), "added_s": summary(added),
        "compared_batches": COMPARED, "exact": exact, "goal_s": GOAL_S,
    }  # fmt: skip
    assert all(row["same"] for row in exact), exact
    return result
