"""The script that this project replaces, in 20 lines: pieces of 2000 characters, all ids in one list."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import flat, main


def tokenize(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    from transformers import AutoTokenizer

    encoder = AutoTokenizer.from_pretrained(str(tokenizer))
    with open(corpus.with_suffix(".txt")) as file:
        text = file.read()
    tokens = []
    for start in range(0, len(text), 2000):
        piece = text[start : start + 2000]
        tokens.extend(encoder(piece, truncation=True, max_length=1024)["input_ids"])
    np.save(output / "tokens.npy", np.array(tokens))


if __name__ == "__main__":
    main(tokenize, lambda output: flat(output / "tokens.npy", "<i8", 128))
