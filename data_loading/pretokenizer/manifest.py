"""The manifest of a token set: its content and its sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.dataset.splits import split_ranges
from data_loading.pretokenizer.writer import CHECKSUM_BYTES, Written
from data_loading.text_io.content_hash import file_content_hash
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.lazy_array import Values
from data_loading.tokens.npy import open_npy
from data_loading.tokens.read_manifest import FORMAT, FORMAT_VERSION, SHARDS_VERSION, fingerprint_of
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shard_layout import Layout
from data_loading.tokens.shards import Shards
from memory import format_bytes

WRITER_VERSION = "1"
"""Raised when the same text, tokenizer and options would give other bytes in a file of the set."""
_SHOWN = 5
_KINDS = {
    "cleaned": {"control_characters": "control character", "blanks": "blank", "documents": "empty document"},
    "duplicates": {"lines": "duplicate line", "documents": "duplicate document"},
}


@dataclass(frozen=True)
class Made:
    """Files that a job has written, and the facts of the job."""

    folder: Path
    layout: Layout
    dtype: np.dtype
    written: Written
    checksums: list[str]
    sources: list[dict[str, Any]]
    """Facts of each source, its tokens included."""
    options: dict[str, Any]
    """Options that change ids or borders of documents."""
    tokenizer: Tokenizer
    engine: dict[str, Any]

    def starts(self) -> Values:
        """First token of each document, uint64 `(documents,)`."""
        return document_starts(self.folder, self.layout, self.written)

    def shards(self) -> list[dict[str, Any]]:
        """Entries of a manifest for its token files, in their order."""
        blocks, shards = iter(self.checksums), []
        for shard, start, stop in self.layout.spans(0, self.written.tokens):
            name, documents = self.layout.names(shard)
            count = -(-(stop - start) * self.dtype.itemsize // CHECKSUM_BYTES)
            shards.append(
                {
                    "name": name,
                    "tokens": stop - start,
                    "documents": len(open_npy(self.folder / documents, may_be_empty=True)),
                    "blocks": [next(blocks) for _ in range(count)],
                    "documents_checksum": file_content_hash(self.folder / documents),
                }
            )
        return shards


def document_starts(folder: Path, layout: Layout, written: Written) -> Values:
    """First token of each document in a folder, uint64 `(documents,)`."""
    shards = range(layout.last_shard(written.tokens) + 1)
    parts = [open_npy(folder / layout.names(shard)[1], may_be_empty=True) for shard in shards]
    return parts[0] if len(parts) == 1 else Shards(parts, [layout.first_token(shard) for shard in shards])


def make_manifest(made: Made, files: SetFiles, val_fraction: float | None) -> dict[str, Any]:
    """Manifest of a new set. val_fraction: share of the tokens that is held out; None: readers decide."""
    sources = [relative_source(fact, files.tokens.parent) for fact in made.sources]
    tokenizer, written = made.tokenizer, made.written
    return {
        "format": FORMAT,
        "version": SHARDS_VERSION if files.is_folder else FORMAT_VERSION,
        "tokenizer": facts_of_tokenizer(tokenizer),
        "dtype": made.dtype.str,
        "tokens": written.tokens,
        "documents": written.documents,
        "sources": sources,
        "options": made.options,
        "fingerprint": fingerprint_of(sources, tokenizer.content_hash, made.options),
        **_val(val_fraction, [_held_out(made, val_fraction)] if val_fraction is not None else []),
        "engine": made.engine,
        **(_shards(made) if files.is_folder else _one_file(made)),
        "writer_version": WRITER_VERSION,
    }


def facts_of_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "name": tokenizer.name,
        "content_hash": tokenizer.content_hash,
        "vocab_size": tokenizer.vocab_size,
        "eot_id": tokenizer.eot_id,
        "eot_appended": tokenizer.eot_id is not None,
        **({} if tokenizer.bos_id is None else {"bos_id": tokenizer.bos_id}),
    }


def make_longer_manifest(base: dict[str, Any], made: Made, files: SetFiles) -> dict[str, Any]:
    """Manifest of a set of shards with new ones behind it. Tokens that were held out stay held out."""
    alone = make_manifest(made, files, None)
    sources = [*base["sources"], *alone["sources"]]
    val = base.get("val")
    ranges = [] if val is None else [*val["ranges"], _held_out(made, val["fraction"], base["tokens"])]
    return {
        **alone,
        "tokens": base["tokens"] + alone["tokens"],
        "documents": base["documents"] + alone["documents"],
        "sources": sources,
        "fingerprint": fingerprint_of(sources, made.tokenizer.content_hash, made.options),
        **_val(None if val is None else val["fraction"], ranges),
        "shards": [*base["shards"], *alone["shards"]],
        "earlier": [*base["earlier"], base["fingerprint"]],
        "generations": [*base["generations"], *alone["generations"]],
    }


def _val(fraction: float | None, ranges: list[list[int]]) -> dict[str, Any]:
    return {} if fraction is None else {"val": {"fraction": fraction, "ranges": ranges}}


def _held_out(made: Made, fraction: float, first: int = 0) -> list[int]:
    """Range of the new tokens that is held out. Raises UserError if there are too few."""
    _, val = split_ranges(made.written.tokens, made.starts(), fraction)
    return [first + val.start, first + val.stop]


def _one_file(made: Made) -> dict[str, Any]:
    return {
        "checksums": {
            "algorithm": "sha256",
            "bytes": CHECKSUM_BYTES,
            "blocks": made.checksums,
            "documents": file_content_hash(made.folder / "docs.npy"),
        }
    }


def _shards(made: Made) -> dict[str, Any]:
    shards, tokens = made.shards(), made.written.tokens
    return {
        "checksums": {"algorithm": "sha256", "bytes": CHECKSUM_BYTES},
        "shard_tokens": made.layout.shard_tokens,
        "shards": shards,
        "earlier": [],
        "generations": [{"sources": len(made.sources), "tokens": tokens, "shards": len(shards)}],
    }


def with_shares(facts: list[dict[str, Any]], starts: Values, tokens: int) -> list[dict[str, Any]]:
    """Add the tokens of each source to its facts.

    Args:
        facts: Facts of each source, its documents included.
        starts: First token of each document, uint64 `(documents,)`.
        tokens: Tokens of the whole set.
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
    """Log lines about lines, rows, characters and duplicates that were left out of the set."""
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
    """Bytes that were read from all sources, decompressed; for a table, bytes on disk."""
    return sum(
        source.get("read_bytes", source.get("text_bytes", source["bytes"])) for source in manifest["sources"]
    )


def is_limited(manifest: dict[str, Any]) -> bool:
    """Whether the set could have ended before its sources."""
    return any(manifest["options"].get(name) is not None for name in ("max_documents", "max_tokens"))


def relative_source(fact: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Facts of a source, with its bare name if it is in the folder of the tokens, which can then move."""
    path = Path(fact["path"])
    return {**fact, "path": path.name} if path.parent == folder.resolve() else fact
