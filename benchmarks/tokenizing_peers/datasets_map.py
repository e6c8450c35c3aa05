"""Hugging Face `datasets.map` over lines of JSON, with the tokenizer that its handbook uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import EOT_ID, main


def tokenize(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    os.environ["HF_DATASETS_CACHE"] = str(output / "cache")
    from datasets import load_dataset
    from transformers import AutoTokenizer

    encoder = AutoTokenizer.from_pretrained(str(tokenizer))

    def encode(batch: dict) -> dict:
        return {"ids": [[*ids, EOT_ID] for ids in encoder(batch["text"])["input_ids"]]}

    data = load_dataset("json", data_files=str(corpus.with_suffix(".jsonl")), split="train")
    data = data.map(encode, batched=True, num_proc=workers, remove_columns=["text"])
    data.save_to_disk(output / "data")


def ids(output: Path) -> Iterator[np.ndarray]:
    from datasets import load_from_disk

    table = load_from_disk(output / "data").data
    for batch in table.table.to_batches(max_chunksize=64):
        yield np.asarray(batch.column("ids").flatten())


if __name__ == "__main__":
    main(tokenize, ids)
