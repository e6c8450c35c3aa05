"""litdata's StreamingDataset with its loader of tokens: chunks of 64 MB of uint16, shuffled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import Job, forever, ids_of, main

_BLOCK = 1 << 22


def _block(start: int, tokens: Path) -> Iterator:
    import torch

    yield torch.from_numpy(np.array(ids_of(tokens)[start : start + _BLOCK]))


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    import litdata

    litdata.optimize(
        fn=partial(_block, tokens=tokens),
        inputs=list(range(0, len(ids_of(tokens)), _BLOCK)),
        output_dir=str(folder / "data"),
        chunk_bytes="64MB",
        num_workers=1,
        item_loader=litdata.TokensLoader(),
    )


def batches(folder: Path, job: Job) -> Iterator:
    import litdata
    import torch

    dataset = litdata.StreamingDataset(
        str(folder / "data"),
        item_loader=litdata.TokensLoader(block_size=job.seq_len + 1),
        shuffle=True,
        drop_last=True,
    )
    loader = litdata.StreamingDataLoader(dataset, batch_size=job.batch_size, num_workers=job.workers)
    for batch in forever(lambda: iter(loader)):
        rows = batch.to(torch.int64)
        yield rows[:, :-1], rows[:, 1:]


if __name__ == "__main__":
    main(prepare, batches)
