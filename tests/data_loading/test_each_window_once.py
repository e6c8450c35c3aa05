"""Each window once an epoch: over processes for ranks, their workers, SIGKILLs and resumes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from conf import UserError
from data_loading import StreamingDataset

WINDOWS, SEQ_LEN = 600, 8

_RANK = r"""
import json, sys, time
from pathlib import Path
from data_loading import StreamingDataset
folder, rank, ranks, workers, batch = Path(sys.argv[1]), *map(int, sys.argv[2:])
dataset = StreamingDataset(folder / "x.npy", seq_len=8, seed=3, val=9)
loader = dataset.loader(batch, rank, ranks, num_workers=workers)
if (folder / "state.json").exists():
    loader.load_state_dict(json.loads((folder / "state.json").read_text()))
with open(folder / f"read-{rank}.jsonl", "w", buffering=1) as log:
    print("ready", flush=True)
    for batch in loader:
        log.write(json.dumps([loader.state_dict(), batch["input_ids"][:, 0].tolist()]) + "\n")
        time.sleep(0.002)
print("end", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_over_ranks_workers_kills_and_resumes(seed: int, tmp_path: Path) -> None:
    """As in a run of several ranks, what all of them have read is what a checkpoint keeps."""
    chance = random.Random(seed)
    numbers = np.arange(WINDOWS * SEQ_LEN + 10) // SEQ_LEN
    np.save(tmp_path / "x.npy", numbers.astype("<u2"))
    counted: list[int] = []
    before = kills = 0
    while before < WINDOWS:
        ranks = chance.randint(1, 3)
        how = [str(ranks), str(chance.choice([0, 2])), str(chance.randint(1, 7))]
        ended = read_for_a_while(tmp_path, ranks, how, chance.uniform(0.0, 0.3))
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
    assert kills > 1
    assert Counter(counted) == Counter(range(WINDOWS))


def read_for_a_while(folder: Path, ranks: int, how: list[str], seconds: float) -> bool:
    """Whether all ranks came to the end before they were killed."""
    command = [sys.executable, "-c", _RANK, str(folder)]
    processes = [
        subprocess.Popen([*command, str(rank), *how], stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    for process in processes:
        process.kill()
    outputs = [process.communicate()[0] for process in processes]
    return all(output == "end\n" for output in outputs)


def read_log(path: Path) -> list[tuple[dict[str, int], list[int]]]:
    """Whole lines: the last one may have been cut short."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_more_ranks_than_windows(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(100, dtype="<u2"))
    dataset = StreamingDataset(tmp_path / "x.npy", seq_len=16, val=50)
    assert len(dataset) == 3
    with pytest.raises(UserError, match=r"4 ranks share 3 windows: .* Use fewer ranks"):
        dataset.loader(1, rank=0, world_size=4)
    for how in ({"repeat": True, "num_batches": 1}, {"tail": "pad"}):
        assert len([*dataset.loader(1, rank=3, world_size=4, **how)]) == 1  # type: ignore[arg-type]
