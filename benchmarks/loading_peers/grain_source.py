"""Grain: a random-access source over the mapped .npy, shuffled and batched, without threads of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import TOKENS, Job, ids_of, main


class Windows:
    """What Grain calls a RandomAccessDataSource."""

    def __init__(self, path: Path, seq_len: int) -> None:
        self._ids, self._seq_len = ids_of(path), seq_len

    def __len__(self) -> int:
        return (len(self._ids) - 1) // self._seq_len

    def __getitem__(self, index: int) -> np.ndarray:
        start = index * self._seq_len
        return np.array(self._ids[start : start + self._seq_len + 1])


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    os.link(tokens, folder / TOKENS)


def batches(folder: Path, job: Job) -> Iterator:
    import grain.python as grain
    import torch

    source = grain.MapDataset.source(Windows(folder / TOKENS, job.seq_len))
    made = source.shuffle(seed=0).repeat(None).batch(job.batch_size, drop_remainder=True)
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    dataset = made.to_iter_dataset(options)
    if job.workers:
        dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=job.workers))
    for batch in dataset:
        rows = torch.from_numpy(batch.astype(np.int64))
        yield rows[:, :-1], rows[:, 1:]


if __name__ == "__main__":
    main(prepare, batches)
