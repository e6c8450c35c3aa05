"""OLMo-core's NumpyFSLDataset and its data loader, over raw ids (its .npy has no header)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import EOT_ID, VOCABULARY, Job, main, write_raw


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    write_raw(tokens, folder / "data.npy")


def batches(folder: Path, job: Job) -> Iterator:
    from olmo_core.data import DataCollator, NumpyFSLDataLoader, NumpyFSLDataset
    from olmo_core.data.utils import get_labels

    dataset = NumpyFSLDataset(
        str(folder / "data.npy"),
        sequence_length=job.seq_len,
        pad_token_id=EOT_ID,
        eos_token_id=EOT_ID,
        vocab_size=VOCABULARY,
        dtype=np.uint16,
    )
    loader = NumpyFSLDataLoader(
        dataset,
        collator=DataCollator(pad_token_id=EOT_ID),
        global_batch_size=job.seq_len * job.batch_size,
        work_dir=folder / "work",
        seed=0,
        num_workers=job.workers,
    )
    epoch = 0
    while True:
        epoch += 1
        loader.reshuffle(epoch)
        for batch in loader:
            yield batch["input_ids"], get_labels(batch)
        loader.reset()


if __name__ == "__main__":
    main(prepare, batches)
