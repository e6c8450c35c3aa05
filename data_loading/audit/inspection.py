"""What is in a token set: counts, how the vocabulary is used, lengths of documents, the first text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.pretokenizer.manifest import is_limited, text_bytes_of
from data_loading.tokenizers.read_files import holds_tokenizer, read_tokenizer
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.lazy_array import take
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import TokenSet, open_token_set

MOST_FREQUENT = 10
FIRST_TEXT_CHARACTERS = 400
_READ_IDS = 1 << 24
_LENGTHS_LOOKED_AT = 1 << 20
_QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Lengths:
    """Tokens a document, end-of-text included. estimated: from a sample of 2^20 documents."""

    mean: float
    smallest: int
    p5: int
    median: int
    p95: int
    largest: int
    estimated: bool


@dataclass(frozen=True)
class Inspection:
    """used_ids: how many ids of the vocabulary occur. most_frequent: (id, its text, share of all tokens).

    entropy_bits: of the frequencies of ids, a token. text_bytes: of what was tokenized; None where that is
    not known: with a limit, and for fields of lines and columns of tables. bytes_per_token: of it.
    """

    path: Path
    tokens: int
    file_bytes: int
    dtype: str
    tokenizer: str
    vocab_size: int
    used_ids: int
    entropy_bits: float
    most_frequent: list[tuple[int, str | None, float]]
    documents: int | None
    lengths: Lengths | None
    text_bytes: int | None
    bytes_per_token: float | None
    sources: list[dict[str, Any]]
    first_text: str | None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}


def inspect(path: Path) -> Inspection:
    """Read a token set once, in constant memory.

    Raises:
        UserError: there is none, or it is broken.
    """
    found = open_token_set(path)
    files = SetFiles(found.path)
    tokenizer = (
        read_tokenizer(files.tokenizer, found.tokenizer_name) if holds_tokenizer(files.tokenizer) else None
    )
    counts = _counts(found)
    shares = counts / len(found.tokens)
    used = shares[shares > 0]
    manifest = found.manifest or {}
    sources = manifest.get("sources", [])
    text_bytes = _text_bytes(manifest) if manifest else None
    return Inspection(
        path=found.path,
        tokens=len(found.tokens),
        file_bytes=found.file_bytes,
        dtype=found.tokens.dtype.name,
        tokenizer=found.tokenizer_name,
        vocab_size=found.vocab_size,
        used_ids=len(used),
        entropy_bits=float(-(used * np.log2(used)).sum()),
        most_frequent=[
            (int(i), tokenizer.decode([int(i)]) if tokenizer else None, float(shares[i]))
            for i in np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
            if counts[i]
        ],
        documents=None if found.documents is None else len(found.documents),
        lengths=_lengths(found),
        text_bytes=text_bytes,
        bytes_per_token=text_bytes / len(found.tokens) if text_bytes else None,
        sources=sources,
        first_text=_first_text(found, tokenizer),
    )


def _text_bytes(manifest: dict[str, Any]) -> int | None:
    sources = manifest["sources"]
    in_fields = any(
        ("skipped" in source or "nulls" in source) and "revision" not in source for source in sources
    )
    if is_limited(manifest) or in_fields:
        return None
    dropped = sum(
        source[name]["bytes"] for source in sources for name in ("cleaned", "duplicates") if name in source
    )
    return text_bytes_of(manifest) - dropped or None


def _counts(found: TokenSet) -> np.ndarray:
    counts = np.zeros(found.vocab_size, np.int64)
    for start in range(0, len(found.tokens), _READ_IDS):
        counts += np.bincount(found.tokens[start : start + _READ_IDS], minlength=found.vocab_size)
    return counts


def _lengths(found: TokenSet) -> Lengths | None:
    """Quantiles of a sample evenly spread over the set, where there are many documents."""
    if found.documents is None:
        return None
    starts, count = found.documents, len(found.documents)
    step = -(-count // _LENGTHS_LOOKED_AT)
    at = np.arange(0, count, step)
    following = np.minimum(at + 1, count - 1)
    ends = np.where(at + 1 < count, take(starts, following), len(found.tokens)).astype(np.int64)
    lengths = ends - take(starts, at).astype(np.int64)
    p5, median, p95 = (int(n) for n in np.quantile(lengths, _QUANTILES, method="inverted_cdf"))
    return Lengths(
        len(found.tokens) / count, int(lengths.min()), p5, median, p95, int(lengths.max()), step > 1
    )


def _first_text(found: TokenSet, tokenizer: Tokenizer | None) -> str | None:
    if tokenizer is None:
        return None
    text = tokenizer.decode(found.tokens[:FIRST_TEXT_CHARACTERS])
    return text if len(text) <= FIRST_TEXT_CHARACTERS else text[:FIRST_TEXT_CHARACTERS] + "..."
