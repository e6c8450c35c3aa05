"""The manifest of a token set: what it holds and what it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.pretokenizer.writer import CHECKSUM_BYTES, SetWriter
from data_loading.token_set import FORMAT, FORMAT_VERSION, fingerprint_of
from data_loading.tokenizer import Tokenizer
from memory import format_bytes

WRITER_VERSION = "1"
"""Raised when the same text, tokenizer and options would give other bytes in a file of the set."""
_SHOWN = 5
_KINDS = {
    "cleaned": {"control_characters": "control character", "blanks": "blank", "documents": "empty document"},
    "duplicates": {"lines": "duplicate line", "documents": "duplicate document"},
}


def make_manifest(
    facts: list[dict[str, Any]],
    options: dict[str, Any],
    tokenizer: Tokenizer,
    writer: SetWriter,
    dtype: np.dtype,
    engine_facts: dict[str, Any],
    folder: Path,
    documents_hash: str,
) -> dict[str, Any]:
    """facts: of the sources. folder: where the set will lie. documents_hash: of its docs.npy."""
    sources = [_relative(fact, folder) for fact in facts]
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "tokenizer": {
            "name": tokenizer.name,
            "content_hash": tokenizer.content_hash,
            "vocab_size": tokenizer.vocab_size,
            "eot_id": tokenizer.eot_id,
            "eot_appended": tokenizer.eot_id is not None,
        },
        "dtype": dtype.str,
        "tokens": writer.written.tokens,
        "documents": writer.written.documents,
        "sources": sources,
        "options": options,
        "fingerprint": fingerprint_of(sources, tokenizer.content_hash, options),
        "engine": engine_facts,
        "checksums": {
            "algorithm": "sha256",
            "bytes": CHECKSUM_BYTES,
            "blocks": writer.checksums,
            "documents": documents_hash,
        },
        "writer_version": WRITER_VERSION,
    }


def with_shares(facts: list[dict[str, Any]], starts: np.ndarray, tokens: int) -> list[dict[str, Any]]:
    """The facts with the tokens of each source, from the documents of each.

    starts: of all documents, uint64 `(documents,)`. tokens: of the whole set.
    """
    documents = np.cumsum([0, *(fact["documents"] for fact in facts)])
    if documents[-1] != len(starts):
        raise RuntimeError(f"{documents[-1]:,} documents were read and {len(starts):,} written")
    borders = [int(starts[place]) if place < len(starts) else tokens for place in documents]
    return [
        {**fact, "tokens": stop - start}
        for fact, start, stop in zip(facts, borders, borders[1:], strict=False)
    ]


def left_out(facts: list[dict[str, Any]]) -> Iterator[str]:
    """What a user is told of what is not in the set: lines, rows, characters, duplicates."""
    for name, what in (("skipped", "lines that are no documents"), ("nulls", "rows without a value")):
        found = [(fact["path"], fact[name]) for fact in facts if fact.get(name)]
        if found:
            total = sum(count for _, count in found)
            more = " ..." if len(found) > _SHOWN else ""
            yield f"left out {total:,} {what}, in {', '.join(path for path, _ in found[:_SHOWN])}{more}"
    for name, flag in (("cleaned", "--clean"), ("duplicates", "--dedup")):
        counts = [fact[name] for fact in facts if name in fact]
        if counts:
            sums = {kind: sum(count.get(kind, 0) for count in counts) for kind in (*_KINDS[name], "bytes")}
            lost = format_bytes(sums.pop("bytes"))
            dropped = [
                f"{number:,} {_KINDS[name][kind]}{'s' * (number != 1)}"
                for kind, number in sums.items()
                if number
            ]
            yield f"{flag} dropped {', '.join(dropped) or 'nothing'} ({lost})"


def text_bytes_of(manifest: dict[str, Any]) -> int:
    """Bytes of all sources, as they lie on disk."""
    return sum(source["bytes"] for source in manifest["sources"])


def _relative(fact: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A source in the folder of its tokens is named without it, so that the folder can be moved."""
    path = Path(fact["path"])
    return {**fact, "path": path.name} if path.parent == folder.resolve() else fact
