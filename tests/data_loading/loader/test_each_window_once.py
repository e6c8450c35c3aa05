"""Each window once an epoch: over processes for ranks, SIGKILLs and resumes."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest
import torch  # noqa: F401  loaded before the processes fork: else they would load it first

from data_loading import StreamingDataset
from tests.golden_text import Golden

WINDOWS, SEQ_LEN = 600, 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_over_ranks_kills_and_resumes(seed: int, tmp_path: Path) -> None:
    """As in a run of several ranks, what all of them have read is what a checkpoint keeps."""
    chance = random.Random(seed)
    numbers = np.arange(WINDOWS * SEQ_LEN + 10) // SEQ_LEN
    np.save(tmp_path / "x.npy", numbers.astype("<u2"))
    counted: list[int] = []
    before = kills = 0
    while before < WINDOWS:
        ranks = chance.randint(1, 3)
        ended = read_for_a_while(tmp_path, ranks, chance.randint(1, 7), chance.uniform(0.0, 0.1))
        logs = [read_log(tmp_path / f"read-{rank}.jsonl") for rank in range(ranks)]
        states = [log[-1][0] for log in logs if log]
        reached = WINDOWS if ended else min((s["samples"] for s in states), default=0)
        if not ended and len(states) < ranks:
            reached = before
        for state, windows in (line for log in logs for line in log):
            counted += windows if before < state["samples"] <= reached else []
        if reached > before:
            (tmp_path / "state.json").write_text(json.dumps({**states[0], "samples": reached}))
        before, kills = reached, kills + (not ended)
    assert kills
    assert Counter(counted) == Counter(range(WINDOWS))


def read_for_a_while(folder: Path, ranks: int, batch: int, seconds: float) -> bool:
    """Whether all ranks came to the end before they were killed."""
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(ranks + 1)
    processes = [
        context.Process(target=read_and_log, args=(folder, rank, ranks, batch, ready))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    ready.wait()
    time.sleep(seconds)
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    return all(process.exitcode == 0 for process in processes)


def read_and_log(folder: Path, rank: int, ranks: int, batch: int, ready: Barrier) -> None:
    dataset = StreamingDataset(folder / "x.npy", seq_len=SEQ_LEN, seed=3, val=9)
    loader = dataset.loader(batch, rank, ranks)
    if (folder / "state.json").exists():
        loader.load_state_dict(json.loads((folder / "state.json").read_text()))
    with open(folder / f"read-{rank}.jsonl", "w", buffering=1) as log:
        ready.wait()
        for found in loader:
            log.write(json.dumps([loader.state_dict(), found["input_ids"][:, 0].tolist()]) + "\n")
            time.sleep(0.002)


def read_log(path: Path) -> list[tuple[dict[str, int], list[int]]]:
    """Whole lines: the last one may have been cut short."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_more_ranks_than_windows(tmp_path: Path, golden: Golden) -> None:
    np.save(tmp_path / "x.npy", np.arange(100, dtype="<u2"))
    dataset = StreamingDataset(tmp_path / "x.npy", seq_len=16, val=50)
    assert len(dataset) == 3
    for batch_size, ranks in ((1, 4), (2, 3), (3, 2)):
        with golden.refused("ranks-without-windows"):
            dataset.loader(batch_size, rank=0, world_size=ranks)
    for how in ({"repeat": True, "num_batches": 1}, {"tail": "pad"}):
        assert len([*dataset.loader(1, rank=3, world_size=4, **how)]) == 1  # type: ignore[arg-type]
