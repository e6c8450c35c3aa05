"""Megatron-core's GPTDataset over an indexed .bin, with torch's DataLoader; its indices cached on disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import EOT_ID, VOCABULARY, Job, forever, ids_of, main, write_raw

_DOCUMENT_TOKENS = 1 << 20


class _Tokenizer:
    """What the configuration asks of one."""

    eod, pad, vocab_size, unique_identifiers = EOT_ID, -1, VOCABULARY, {"class": "none"}


def prepare(tokens: Path, folder: Path, seq_len: int) -> None:
    from megatron.core.datasets.indexed_dataset import _IndexWriter

    total = len(ids_of(tokens))
    lengths = [min(_DOCUMENT_TOKENS, total - start) for start in range(0, total, _DOCUMENT_TOKENS)]
    write_raw(tokens, folder / "data.bin")
    with _IndexWriter(str(folder / "data.idx"), np.uint16) as index:
        index.write(lengths, None, list(range(len(lengths) + 1)))


def batches(folder: Path, job: Job) -> Iterator:
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split
    from torch.utils.data import DataLoader

    config = GPTDatasetConfig(
        random_seed=0,
        sequence_length=job.seq_len,
        split="1,0,0",
        path_to_cache=str(folder / "cache"),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        tokenizer=_Tokenizer(),
    )
    indexed = IndexedDataset(str(folder / "data"), multimodal=False, mmap=True)
    documents = np.arange(len(indexed.sequence_lengths), dtype=np.int32)
    dataset = GPTDataset(indexed, str(folder / "data"), documents, None, Split.train, config)
    loader = DataLoader(dataset, job.batch_size, num_workers=job.workers, drop_last=True)
    for batch in forever(lambda: iter(loader)):
        yield batch["tokens"], batch["labels"]


if __name__ == "__main__":
    main(prepare, batches)
