"""This project's loader, with the reader that the job names; `max_resident_bytes` as well."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from peer import TOKENS, VOCABULARY, Job, main


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    from data_loading import open_token_set

    os.link(tokens, folder / TOKENS)
    open_token_set(folder / TOKENS, VOCABULARY)  # a lone file is read once, to know its largest id


def batches(folder: Path, job: Job) -> Iterator:
    from data_loading import StreamingDataset, open_token_set

    tokens = open_token_set(folder / TOKENS, VOCABULARY)
    dataset = StreamingDataset(tokens, seq_len=job.seq_len, val=1, **(job.options or {}))
    for batch in dataset.loader(job.batch_size, num_workers=job.workers, repeat=True):
        yield batch["input_ids"], batch["labels"]


if __name__ == "__main__":
    main(prepare, batches)
