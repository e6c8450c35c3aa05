"""litdata's StreamingDataset with its loader of tokens: chunks of 64 MB of uint16, shuffled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from peer import Job, blocks, forever, main


def _block(number: int, tokens: Path) -> Iterator:
    import itertools

    import torch

    yield torch.from_numpy(next(itertools.islice(blocks(tokens), number, None)))


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    import litdata

    litdata.optimize(
        fn=partial(_block, tokens=tokens),
        inputs=list(range(sum(1 for _ in blocks(tokens)))),
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
