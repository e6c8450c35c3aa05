"""tiktoken in a pool of processes, as llm.c's data/fineweb.py has it: a document a call, uint16 to a file."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer import EOT_ID, documents_of, flat, main


def gpt2(folder: Path):
    """tiktoken's GPT-2, from vocab.json and merges.txt instead of a download."""
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    ranks = data_gym_to_mergeable_bpe_ranks(
        vocab_bpe_file=str(folder / "merges.txt"), encoder_json_file=str(folder / "vocab.json")
    )
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    return tiktoken.Encoding(
        "gpt2-local", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": EOT_ID}
    )


def start(folder: Path) -> None:
    global encoding
    encoding = gpt2(folder)


def encode(text: str) -> np.ndarray:
    return np.array([*encoding.encode_ordinary(text), EOT_ID], np.uint16)


def tokenize(corpus: Path, output: Path, tokenizer: Path, workers: int) -> None:
    with (
        multiprocessing.Pool(workers, start, (tokenizer,)) as pool,
        open(output / "tokens.bin", "wb") as file,
    ):
        for ids in pool.imap(encode, documents_of(corpus.with_suffix(".txt")), chunksize=16):
            file.write(ids.tobytes())


if __name__ == "__main__":
    main(tokenize, lambda output: flat(output / "tokens.bin", "<u2"))
