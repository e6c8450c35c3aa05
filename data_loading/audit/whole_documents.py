"""Whole documents of the inputs, encoded again by the reference and compared with the tokens of a set."""

from __future__ import annotations

import unicodedata
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.audit.result import Finding
from data_loading.pretokenizer.blocks import BlockEncoder, make_blocks
from data_loading.pretokenizer.engines.registry import REFERENCE, choose_engine
from data_loading.pretokenizer.inputs.discover import InputOptions, as_one, open_file
from data_loading.pretokenizer.sources.json_lines import Tolerance
from data_loading.text_io.chunks import Chunk
from data_loading.tokenizers.tokenizer import DefinedTokenizer, Tokenizer
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import Shards
from experiment_utils.errors import UserError

_WHAT = "whole documents"
MOST_DOCUMENTS = 64
LONGEST_DOCUMENTS = 8
"""Of those, the longest ones: a fault that cuts documents shows in them first."""
ENCODED_BYTES = 16 << 20
"""Text of a set that is encoded again: the reference takes some ten seconds for it."""
SMALL_BYTES = 4 << 20
"""Inputs of a set of which all documents are encoded again."""
SMALL_FILES = 1000
"""The most inputs of such a set: to open one takes some milliseconds."""
_READ_STARTS = 1 << 20
_ANY = 1 << 40


def documents_again(
    files: SetFiles, manifest: dict[str, Any], tokens: Shards, starts: Shards, tokenizer: Tokenizer
) -> Iterator[Finding]:
    """Compare documents of each input that is here; all of them in a small set."""
    sources = manifest["sources"]
    if not all("documents" in source for source in sources):
        yield Finding(_WHAT, None, "the manifest has no documents of each input")
        return
    reference = REFERENCE if isinstance(tokenizer, DefinedTokenizer) else "auto"
    try:
        engine = choose_engine(tokenizer, [], lambda line: None, reference).engine
    except UserError as error:
        yield Finding(_WHAT, None, str(error))
        return
    errors = manifest["options"].get("errors", "strict")
    encoder = BlockEncoder(engine, tokenizer.eot_id, tokenizer.vocab_size, errors, tokenizer.bos_id)
    budget, before = _Budget(ENCODED_BYTES), 0
    is_plain = not any("compression" in source or "bytes" not in source for source in sources)
    is_small = is_plain and len(sources) <= SMALL_FILES
    is_small = is_small and sum(source["bytes"] for source in sources) <= SMALL_BYTES
    chosen = [] if is_small else _chosen(starts, len(tokens))
    for source in sources:
        path, count = files.tokens.parent / source["path"], source["documents"]
        end = before + count
        here = range(before, end) if is_small else [number for number in chosen if before <= number < end]
        why = _why_not(path, source, manifest["options"])
        if why is not None:
            yield Finding(_WHAT, None, f"{path} is not encoded again: {why}")
        elif here and budget.left:
            compared = _Compared(path, encoder, tokenizer, tokens, starts, budget)
            yield compared.finding(manifest["options"], before, here)
        before += count


class _Budget:
    """Bytes of text that are still to be encoded."""

    def __init__(self, left: int) -> None:
        self.left = left


class _Compared:
    """The documents of one input."""

    def __init__(
        self,
        path: Path,
        encoder: BlockEncoder,
        tokenizer: Tokenizer,
        tokens: Shards,
        starts: Shards,
        budget: _Budget,
    ) -> None:
        self._path, self._encoder, self._tokenizer = path, encoder, tokenizer
        self._tokens, self._starts, self._budget = tokens, starts, budget

    def finding(self, options: dict[str, Any], first: int, chosen: Sequence[int]) -> Finding:
        """first: number of the first document of the input. chosen: numbers of those to compare."""
        compared, size, number, wanted = 0, 0, first, set(chosen)
        try:
            with closing(_documents(self._path, options)) as documents:
                for chunks in documents:
                    if number in wanted and self._budget.left:
                        wrong, bytes_ = self._differs(number, chunks)
                        if wrong is not None:
                            where = f"document {number - first:,} of {self._path}"
                            return Finding(_WHAT, False, f"{wrong} ({where})")
                        compared, size = compared + 1, size + bytes_
                    if number == chosen[-1] or not self._budget.left:
                        break
                    for _ in chunks:
                        pass
                    number += 1
        except UserError as error:
            return Finding(_WHAT, None, f"{self._path} is not encoded again: {error}")
        told = f"{compared:,} document{'s' * (compared != 1)} ({size:,} bytes) of {self._path.name}"
        return Finding(_WHAT, True, f"{told} encoded again: the ids that are there")

    def _differs(self, number: int, chunks: Iterator[Chunk]) -> tuple[str | None, int]:
        """(how the tokens of a document are not those of its text, bytes that were compared)."""
        at, size = int(self._starts[number]), 0
        last = number + 1 == len(self._starts)
        stop = len(self._tokens) if last else int(self._starts[number + 1])
        for block in make_blocks(chunks, self._tokenizer.cut_rule, self._encoder.engine.block_bytes):
            ids = self._encoder.encode(block).ids
            there = self._tokens[at : min(at + len(ids), stop)]
            if not np.array_equal(there, ids):
                same = there == ids[: len(there)]
                at += len(there) if same.all() else int(np.argmin(same))
                return f"from token {at:,} on there are others than those of its text", size
            at, size = at + len(ids), size + sum(len(chunk.data) for chunk in block.chunks)
            self._budget.left = max(0, self._budget.left - sum(len(chunk.data) for chunk in block.chunks))
            if not self._budget.left:
                return None, size
        return (None if at == stop else f"from token {at:,} on there are more than those of its text"), size


def _why_not(path: Path, source: dict[str, Any], options: dict[str, Any]) -> str | None:
    """Why the documents of an input are not those of the set; None where they are."""
    if not path.is_file():
        return "it is not here"
    if path.stat().st_size != source["bytes"]:
        return "it was changed since"
    unicode = source.get("cleaned", {}).get("unicode", unicodedata.unidata_version)
    if unicode != unicodedata.unidata_version:
        return f"it was cleaned by Unicode {unicode}, and here is {unicodedata.unidata_version}"
    return f"duplicates were dropped (--dedup {options['dedup']})" if options.get("dedup") else None


def _chosen(starts: Shards, n_tokens: int) -> list[int]:
    """Numbers of the documents to compare: first, last, the longest and some all over; ascending."""
    count = len(starts)
    if count <= MOST_DOCUMENTS:
        return list(range(count))
    longest: list[tuple[int, int]] = []
    for at in range(0, count, _READ_STARTS):
        part = np.asarray(starts[at : at + _READ_STARTS + 1]).astype(np.int64)
        if at + _READ_STARTS >= count:
            part = np.append(part, n_tokens)
        lengths = np.diff(part)
        top = np.argsort(lengths)[-LONGEST_DOCUMENTS:]
        longest += [(int(lengths[place]), at + int(place)) for place in top]
        longest = sorted(longest)[-LONGEST_DOCUMENTS:]
    some = np.random.default_rng(0).integers(0, count, MOST_DOCUMENTS - LONGEST_DOCUMENTS - 2)
    return sorted({0, count - 1, *(number for _, number in longest), *map(int, some)})


def _documents(path: Path, options: dict[str, Any]) -> Generator[Iterator[Chunk]]:
    """The chunks of each document with text; those that are not read are passed over."""
    asked = InputOptions(
        encoding=options.get("encoding", "utf-8"),
        errors=options.get("errors", "strict"),
        document_separator=options.get("document_separator"),
        text_field=options.get("text_field"),
        clean=options.get("clean"),
        longest_bytes=_ANY,
    )
    tolerance = Tolerance(_ANY)
    source = as_one([open_file(path, asked, tolerance)], asked, tolerance)
    with closing(source.chunks()) as chunks:
        for chunk in chunks:
            if chunk.data:
                yield _rest_of(chunk, chunks)


def _rest_of(chunk: Chunk, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    yield chunk
    while not chunk.ends_document:
        following = next(chunks, None)
        if following is None:
            return
        chunk = following
        yield chunk
