"""Encode documents of the inputs and samples of the tokens again, with the reference tokenizer."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.audit.finding import Finding
from data_loading.pretokenizer.blocks import Block, BlockEncoder, make_blocks
from data_loading.pretokenizer.engines.registry import REFERENCE, choose_engine
from data_loading.pretokenizer.inputs.discover import InputOptions, as_one, open_file
from data_loading.pretokenizer.sources.json_lines import Tolerance
from data_loading.text_io.chunks import Chunk
from data_loading.tokenizers.cutting.cuts import first_cut, last_cut
from data_loading.tokenizers.tokenizer import DefinedTokenizer, Tokenizer
from data_loading.tokens.checksums import REPAIR
from data_loading.tokens.lazy_array import LENGTHS_READ, document_lengths
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import Shards
from experiment_utils.errors import UserError

_DOCUMENTS, _TOKENS = "whole documents", "token sample"
MOST_DOCUMENTS = 64
LONGEST_DOCUMENTS = 8
"""Longest ones among them: a fault that cuts documents shows in them first."""
ENCODED_BYTES = 16 << 20
"""Text of a set that is encoded again, which takes the reference some ten seconds."""
SMALL_BYTES = 4 << 20
"""Bytes of inputs up to which all documents are encoded again."""
_SMALL_FILES = 1000
_SAMPLES, _SAMPLE_TOKENS = 64, 4096
_UNLIMITED = 1 << 40


def encode_again(
    files: SetFiles, manifest: dict[str, Any], tokens: Shards, starts: Shards, tokenizer: Tokenizer
) -> Iterator[Finding]:
    """Compare documents of each input that is here (all of a small set), and samples of the tokens.

    Args:
        files: The set.
        manifest: Its manifest.
        tokens: Its tokens.
        starts: Document starts.
        tokenizer: As the set was made with it.
    """
    if not all("documents" in source for source in manifest["sources"]):
        yield Finding(_DOCUMENTS, None, "the manifest does not count the documents of each input")
    else:
        try:
            reference = REFERENCE if isinstance(tokenizer, DefinedTokenizer) else "auto"
            engine = choose_engine(tokenizer, [], lambda line: None, reference).engine
        except UserError as error:
            yield Finding(_DOCUMENTS, None, str(error))
        else:
            errors = manifest["options"].get("errors", "strict")
            encoder = BlockEncoder(engine, tokenizer.eot_id, tokenizer.vocab_size, errors, tokenizer.bos_id)
            yield from _Documents(manifest, tokens, starts, tokenizer, encoder).compare(files.tokens.parent)
    yield _token_sample(manifest, tokens, starts, tokenizer)


class _Documents:
    """Documents of the inputs, compared with the tokens until `ENCODED_BYTES` are encoded."""

    def __init__(
        self,
        manifest: dict[str, Any],
        tokens: Shards,
        starts: Shards,
        tokenizer: Tokenizer,
        encoder: BlockEncoder,
    ) -> None:
        self._manifest, self._tokens, self._starts = manifest, tokens, starts
        self._tokenizer, self._encoder = tokenizer, encoder
        self._left_bytes = ENCODED_BYTES

    def compare(self, folder: Path) -> Iterator[Finding]:
        """Yield a finding for each input. folder: where they are."""
        sources, options, first = self._manifest["sources"], self._manifest["options"], 0
        chosen = range(len(self._starts)) if _is_small(sources) else _chosen(self._starts, len(self._tokens))
        for source in sources:
            path, stop = folder / source["path"], first + source["documents"]
            numbers = [number for number in chosen if first <= number < stop]
            reason = _why_not(path, source, options)
            if reason is None and numbers and self._left_bytes:
                try:
                    yield self._compare_input(path, first, numbers)
                except UserError as error:
                    reason = str(error)
            if reason is not None:
                yield Finding(_DOCUMENTS, None, f"{path} is not encoded again: {reason}")
            first = stop

    def _compare_input(self, path: Path, first: int, chosen: Sequence[int]) -> Finding:
        """Compare the chosen documents of an input. first: number of its first document."""
        count, size, wanted = 0, 0, set(chosen)
        with closing(_documents(path, self._manifest["options"])) as documents:
            for number, chunks in enumerate(documents, first):
                if number in wanted:
                    before = self._left_bytes
                    difference = self._difference(number, chunks)
                    if difference is not None:
                        where = f"document {number - first:,} of {path}"
                        return Finding(_DOCUMENTS, False, f"{difference} ({where})", REPAIR)
                    count, size = count + 1, size + before - self._left_bytes
                if number == chosen[-1] or not self._left_bytes:
                    break
                for _ in chunks:
                    pass
        what = f"{count:,} document{'s' * (count != 1)} ({size:,} bytes) of {path.name}"
        return Finding(_DOCUMENTS, True, f"{what} encoded again give the same ids")

    def _difference(self, number: int, chunks: Iterator[Chunk]) -> str | None:
        """Compare a document: until no bytes are left, and then its end."""
        at = int(self._starts[number])
        stop = int(self._starts[number + 1]) if number + 1 < len(self._starts) else len(self._tokens)
        last: Block | None = None
        for block in make_blocks(chunks, self._tokenizer.cut_rule, self._encoder.engine.block_bytes):
            if not self._left_bytes:
                last = block
                continue
            ids = self._encoder.encode(block).ids
            found = self._tokens[at : min(at + len(ids), stop)]
            if not np.array_equal(found, ids):
                same = found == ids[: len(found)]
                at += len(found) if same.all() else int(np.argmin(same))
                return f"the tokens from {at:,} on are not those of its text"
            at += len(ids)
            self._left_bytes = max(0, self._left_bytes - sum(len(chunk.data) for chunk in block.chunks))
        if last is not None:
            ids = self._encoder.encode(last).ids
            at = stop if np.array_equal(self._tokens[max(at, stop - len(ids)) : stop], ids) else at
        return None if at == stop else f"the tokens from {at:,} on do not end as its text does"


def _is_small(sources: list[dict[str, Any]]) -> bool:
    if len(sources) > _SMALL_FILES or any("compression" in one or "bytes" not in one for one in sources):
        return False
    return bool(sum(source["bytes"] for source in sources) <= SMALL_BYTES)


def _why_not(path: Path, source: dict[str, Any], options: dict[str, Any]) -> str | None:
    """Return why the documents of an input are not those of the set, None if they are."""
    if not path.is_file():
        return "it is not here"
    if path.stat().st_size != source["bytes"]:
        return "it was changed since"
    unicode = source.get("cleaned", {}).get("unicode", unicodedata.unidata_version)
    if unicode != unicodedata.unidata_version:
        return f"it was cleaned by Unicode {unicode}, and here is {unicodedata.unidata_version}"
    return f"duplicates were dropped (--dedup {options['dedup']})" if options.get("dedup") else None


def _chosen(starts: Shards, n_tokens: int) -> list[int]:
    """Return the numbers of the documents to compare: first, last, the longest and random ones; ascending."""
    count = len(starts)
    if count <= MOST_DOCUMENTS:
        return list(range(count))
    longest: list[tuple[int, int]] = []
    for slice_, lengths in enumerate(document_lengths(starts, n_tokens)):
        top = np.argsort(lengths)[-LONGEST_DOCUMENTS:]
        longest += [(int(lengths[place]), slice_ * LENGTHS_READ + int(place)) for place in top]
        longest = sorted(longest)[-LONGEST_DOCUMENTS:]
    random = np.random.default_rng(0).integers(0, count, MOST_DOCUMENTS - LONGEST_DOCUMENTS - 2)
    return sorted({0, count - 1, *(number for _, number in longest), *map(int, random)})


def _documents(path: Path, options: dict[str, Any]) -> Generator[Iterator[Chunk]]:
    """Yield the chunks of each document with text, however long or damaged lines are."""
    asked = InputOptions(
        encoding=options.get("encoding", "utf-8"),
        errors=options.get("errors", "strict"),
        document_separator=options.get("document_separator"),
        text_field=options.get("text_field"),
        clean=options.get("clean"),
        longest_bytes=_UNLIMITED,
    )
    tolerance = Tolerance(_UNLIMITED)
    source = as_one([open_file(path, asked, tolerance)], asked, tolerance)
    with closing(source.chunks()) as chunks:
        for chunk in chunks:
            if chunk.data:
                yield _rest_of(chunk, chunks)


def _rest_of(chunk: Chunk, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield a chunk and those after it, to the end of its document."""
    for part in chain([chunk], chunks):
        yield part
        if part.ends_document:
            return


def _token_sample(manifest: dict[str, Any], tokens: Shards, starts: Shards, tokenizer: Tokenizer) -> Finding:
    """Decode samples of the tokens and encode their text again, from one safe cut to another."""
    rule = tokenizer.cut_rule
    if not rule.exists:
        return Finding(_TOKENS, None, f"this tokenizer allows no cut ({rule.why_none})")
    ends, begins = manifest["tokenizer"]["eot_appended"], "bos_id" in manifest["tokenizer"]
    places = {0, *map(int, np.random.default_rng(0).integers(0, len(tokens), _SAMPLES))}
    compared = 0
    for place in sorted(places):
        document = bisect_right(starts, place) - 1
        last = starts[document + 1] if document + 1 < len(starts) else len(tokens)
        place = max(place, int(starts[document]) + begins)
        ids = tokens[place : min(last - ends, place + _SAMPLE_TOKENS)]
        data = tokenizer.decode(ids).encode()
        begin, end = first_cut(data, rule, 0), last_cut(data, rule, 0, len(data))
        if begin is None or end is None or begin + rule.drop_space >= end:
            continue
        text = data[begin + rule.drop_space : end].decode()
        expected = tokenizer.encode(text)
        if "\ufffd" in text or tokenizer.decode(expected) != text:
            continue  # cut inside a character, or a tokenizer that does not give back its text
        compared += len(expected)
        if not _contains(ids, expected):
            return Finding(
                _TOKENS, False, f"the tokens from {place:,} on are not those of {text[:40]!r}...", REPAIR
            )
    if not compared:
        return Finding(_TOKENS, None, "this tokenizer does not give back its text")
    return Finding(_TOKENS, True, f"{compared:,} decoded and encoded again are the same")


def _contains(ids: np.ndarray, part: np.ndarray) -> bool:
    places = np.flatnonzero(ids[: len(ids) - len(part) + 1] == part[0])
    return any(np.array_equal(ids[place : place + len(part)], part) for place in places)
