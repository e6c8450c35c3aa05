"""The dataset that ours replaced: a sample a call from a memory-mapped .npy, put together by default_collate.

The usual form of a dataset of tokens: __getitem__ slices one window, a torch DataLoader shuffles.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import TOKENS, Job, forever, ids_of, main


class StreamingTextDataset:
    """Map-style; seq_len inputs, and the labels one token on."""

    def __init__(self, path: Path, seq_len: int) -> None:
        self._ids, self._seq_len = ids_of(path), seq_len

    def __len__(self) -> int:
        return (len(self._ids) - 1) // self._seq_len

    def __getitem__(self, index: int) -> tuple:
        import torch

        start = index * self._seq_len
        window = np.array(self._ids[start : start + self._seq_len + 1], dtype=np.int64)
        return torch.tensor(window[:-1], dtype=torch.long), torch.tensor(window[1:], dtype=torch.long)


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    os.link(tokens, folder / TOKENS)


def batches(folder: Path, job: Job) -> Iterator:
    from torch.utils.data import DataLoader

    dataset = StreamingTextDataset(folder / TOKENS, job.seq_len)
    loader = DataLoader(dataset, job.batch_size, shuffle=True, num_workers=job.workers, drop_last=True)
    return forever(lambda: iter(loader))


if __name__ == "__main__":
    main(prepare, batches)
