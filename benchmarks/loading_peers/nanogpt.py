"""nanoGPT's get_batch, written anew from what it does (github.com/karpathy/nanoGPT, train.py).

A raw .bin of uint16, mapped anew for every batch (which bounds its memory); starts are drawn with
replacement; each window is converted and stacked on its own, inputs and labels apart.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import Job, main, write_raw


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    write_raw(tokens, folder / "train.bin")


def batches(folder: Path, job: Job) -> Iterator:
    import torch

    while True:
        ids = np.memmap(folder / "train.bin", dtype=np.uint16, mode="r")
        starts = torch.randint(len(ids) - job.seq_len, (job.batch_size,))

        def rows(shift: int, ids: np.ndarray = ids, starts: torch.Tensor = starts) -> torch.Tensor:
            spans = (ids[int(start) + shift : int(start) + shift + job.seq_len] for start in starts)
            return torch.stack([torch.from_numpy(span.astype(np.int64)) for span in spans])

        yield rows(0), rows(1)


if __name__ == "__main__":
    main(prepare, batches)
