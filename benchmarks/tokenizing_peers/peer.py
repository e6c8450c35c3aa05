"""What every peer's script has in common: its arguments, and a digest of what it wrote.

python PEER.py CORPUS OUTPUT TOKENIZER WORKERS       # CORPUS.txt, CORPUS.jsonl, CORPUS-parts/*.jsonl
python PEER.py --digest OUTPUT TOKENIZER             # one line of JSON
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

SEPARATOR = "<|endoftext|>"
EOT_ID = 50_256

Tokenize = Callable[[Path, Path, Path, int], None]
"""(corpus without suffix, output folder, tokenizer's folder, worker processes)"""


def main(tokenize: Tokenize, ids: Callable[[Path], Iterable[np.ndarray]]) -> None:
    """ids: the written ids in their order, in pieces of any length, an end-of-text id after each document."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    if sys.argv[1] == "--digest":
        print(json.dumps(digest(ids(Path(sys.argv[2])))))
        return
    corpus, output, tokenizer, workers = sys.argv[1:]
    Path(output).mkdir(parents=True, exist_ok=True)
    tokenize(Path(corpus), Path(output), Path(tokenizer), int(workers))


def digest(pieces: Iterable[np.ndarray]) -> dict[str, int | str]:
    """Tokens of text, documents, and a sum over the documents' hashes, which no order changes."""
    tokens = documents = total = 0
    for document in _documents(pieces):
        if len(document):
            tokens, documents = tokens + len(document), documents + 1
            total += int.from_bytes(hashlib.sha256(document.astype("<u4").tobytes()).digest()[:16], "big")
    return {"tokens": tokens, "documents": documents, "digest": f"{total % (1 << 128):032x}"}


def _documents(pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    rest: list[np.ndarray] = []
    for piece in pieces:
        start = 0
        for end in np.flatnonzero(piece == EOT_ID):
            yield np.concatenate([*rest, piece[start:end]])
            rest, start = [], int(end) + 1
        rest.append(np.array(piece[start:]))
    if rest:
        yield np.concatenate(rest)


def flat(path: Path, dtype: str, offset: int = 0) -> Iterator[np.ndarray]:
    """A file of nothing but ids, behind `offset` bytes."""
    values = np.memmap(path, dtype, "r", offset)
    for start in range(0, len(values), 1 << 22):
        yield values[start : start + (1 << 22)]


def documents_of(path: Path) -> Iterator[str]:
    """Texts between the separator lines of a file, read a line at a time."""
    lines: list[str] = []
    with open(path, encoding="utf-8", newline="") as file:
        for line in file:
            if line == f"{SEPARATOR}\n":
                yield "".join(lines)
                lines = []
            else:
                lines.append(line)
    yield "".join(lines)
