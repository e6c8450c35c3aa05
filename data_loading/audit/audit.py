"""Is this token set what its manifest says? Every byte is read; `deep` encodes a sample of it again.

What a run checks when it opens a set (`token_set`) is remembered for each state of the files; here
nothing is believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.audit.result import MEND_SET, Finding
from data_loading.audit.samples import samples
from data_loading.audit.whole_documents import documents_again
from data_loading.dataset.splits import split_ranges
from data_loading.export_formats.check_export import audit_beside
from data_loading.pretokenizer.manifest import with_shares
from data_loading.text_io.byte_files import content_hash_of
from data_loading.text_io.content_hash import file_content_hash
from data_loading.tokenizers.cutting.special_tokens import parsing
from data_loading.tokenizers.document_ends import recorded_ends
from data_loading.tokenizers.read_files import check_copies, read_tokenizer
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.lazy_array import take
from data_loading.tokens.npy import open_npy
from data_loading.tokens.set_files import SetFiles, settle
from data_loading.tokens.shards import Part, Shards, allow_open_files, parts_of
from data_loading.tokens.token_set import LaterVersion, read_manifest
from data_loading.tokens.truncated_documents import CutDocuments, earlier_manifests, refuse_cut
from experiment_utils.errors import UserError

_READ_DOCUMENTS = 1 << 20


def audit(path: Path, *, deep: bool = False) -> list[Finding]:
    """Look at everything that a token set with a manifest holds, and at the exports of it that lie beside it.

    All findings, good and bad.

    deep: also encode whole documents of the inputs that are here again, with the reference tokenizer (all
    of a small set, else samples), and compare the ids; look for samples from all over plain texts in the
    tokens; and encode the text of samples of the tokens.

    Raises:
        UserError: there is no set, or it has no manifest to hold it against, or one of a later version.
    """
    files = SetFiles(path)
    settle(files)
    try:
        manifest = read_manifest(files.tokens)
    except LaterVersion:
        raise
    except UserError as error:
        return [Finding("manifest", False, str(error), mend="")]
    if manifest is None:
        raise UserError(
            f"{files.tokens} has no manifest ({files.manifest.name}): there is nothing to hold it against. "
            "Tokenize its text again for a set that can be verified",
            code="manifest-missing",
        )
    parts = parts_of(files, manifest)
    allow_open_files(2 * len(parts))
    opened = [_open_part(part) for part in parts]
    return [*_findings(files, manifest, opened, deep), *audit_beside(files.tokens)]


@dataclass(frozen=True)
class _Opened:
    """A token file and its document starts; where one cannot be read it is empty, and broken says why."""

    part: Part
    tokens: np.ndarray
    starts: np.ndarray
    broken: list[Finding]


def _open_part(part: Part) -> _Opened:
    broken = []

    def read(what: str, path: Path, *, may_be_empty: bool) -> np.ndarray:
        try:
            return open_npy(path, may_be_empty=may_be_empty)
        except UserError as error:
            missing = f"{path} is missing" if not path.exists() else None
            broken.append(Finding(what, False, missing or str(error), MEND_SET if missing else ""))
            return np.empty(0, np.uint64)

    tokens = read("tokens", part.tokens_path, may_be_empty=False)
    return _Opened(part, tokens, read("documents", part.documents_path, may_be_empty=True), broken)


def _findings(
    files: SetFiles, manifest: dict[str, Any], opened: list[_Opened], deep: bool
) -> Iterator[Finding]:
    broken = [finding for one in opened for finding in one.broken]
    yield from broken
    readable = [one for one in opened if len(one.tokens)]
    lengths = list(_lengths(manifest, readable))
    yield from lengths
    if readable and all(found.ok for found in lengths):
        yield from _content(manifest, readable)
    documents = broken or _documents(manifest, opened)
    yield from [] if broken else documents
    if all(found.ok for found in [*lengths, *documents]):
        yield from _shares(manifest, _starts(opened))
        yield from _held_out(manifest, _starts(opened))
        yield from _cut(files, manifest, _starts(opened))
    tokenizer, finding = _tokenizer(files, manifest)
    yield finding
    yield from _sources(files, manifest, deep)
    if deep and tokenizer is not None and all(found.ok for found in [*lengths, *documents]):
        if manifest["options"].get("special_tokens") == "parse":
            tokenizer = recorded_ends(parsing(tokenizer), manifest["options"])
        yield from documents_again(files, manifest, _tokens(opened), _starts(opened), tokenizer)
        yield from samples(files, manifest, _tokens(opened), _starts(opened), tokenizer)


def _lengths(manifest: dict[str, Any], opened: list[_Opened]) -> Iterator[Finding]:
    for one in opened:
        there, said = (len(one.tokens), one.tokens.dtype.str), (one.part.tokens, manifest["dtype"])
        if there != said or len(opened) == 1:
            where = f" in {one.part.tokens_path.name}" if len(opened) > 1 else ""
            told = f"{there[0]:,} of {there[1]}{where}, the manifest says {said[0]:,} of {said[1]}"
            yield Finding("tokens", there == said, told)
    if len(opened) > 1 and sum(len(one.tokens) for one in opened) == manifest["tokens"]:
        yield Finding("tokens", True, f"{manifest['tokens']:,} in {len(opened):,} shards")


def _content(manifest: dict[str, Any], opened: list[_Opened]) -> Iterator[Finding]:
    """Checksums and the range of ids, in one reading."""
    size = opened[0].tokens.dtype.itemsize
    per_block = max(1, manifest["checksums"]["bytes"] // size)
    wrong, largest, count = [], 0, 0
    for one in opened:
        blocks, name = one.part.blocks, one.part.tokens_path.name
        for number, start in enumerate(range(0, len(one.tokens), per_block)):
            block = one.tokens[start : start + per_block]
            largest = max(largest, int(block.max()))
            digest = hashlib.sha256(block.data.cast("B")).hexdigest()
            if number >= len(blocks) or digest != blocks[number]:
                wrong.append(f"bytes {start * size:,} to {(start + len(block)) * size:,} of {name}")
        here = -(-len(one.tokens) // per_block)
        count += here
        if len(blocks) != here:
            wrong.append(f"{len(blocks):,} checksums for {_blocks(here)} of {name}")
    yield Finding(
        "checksums", not wrong, f"do not match: {'; '.join(wrong)}" if wrong else f"of {_blocks(count)} match"
    )
    vocab_size = manifest["tokenizer"]["vocab_size"]
    yield Finding("ids", largest < vocab_size, f"at most {largest:,}, the vocabulary has {vocab_size:,}")


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count:,} blocks"


def _documents(manifest: dict[str, Any], opened: list[_Opened]) -> list[Finding]:
    """Starts ascend from 0 below the last token, and each document ends as the manifest says."""
    starts, tokens = _starts(opened), _tokens(opened)
    changed = [
        one.part.documents_path.name
        for one in opened
        if file_content_hash(one.part.documents_path) != one.part.documents_checksum
    ]
    found = [
        Finding(
            "documents",
            len(starts) == manifest["documents"],
            f"{len(starts):,}, the manifest says {manifest['documents']:,}",
        ),
        Finding(
            "document checksum",
            not changed,
            f"of {', '.join(changed) or _of_files([one.part.documents_path.name for one in opened])}",
        ),
    ]
    eot_id = manifest["tokenizer"]["eot_id"] if manifest["tokenizer"]["eot_appended"] else None
    bos_id = manifest["tokenizer"].get("bos_id")
    wrong_order, wrong_end, wrong_begin = None, None, None
    previous = -1
    for at in range(0, len(starts), _READ_DOCUMENTS):
        part = starts[at : at + _READ_DOCUMENTS].astype(np.int64)
        steps = np.diff(part, prepend=previous)
        bad_starts = (steps <= 0) | (part >= len(tokens))
        bad_starts[0] |= at == 0 and part[0] != 0
        if wrong_order is None and bad_starts.any():
            wrong_order = at + int(np.argmax(bad_starts))
        ends = part[part > 0] - 1
        if eot_id is not None and wrong_order is None and wrong_end is None:
            bad = np.flatnonzero(take(tokens, ends) != eot_id)
            wrong_end = int(ends[bad[0]]) if len(bad) else None
        if bos_id is not None and wrong_order is None and wrong_begin is None:
            bad = np.flatnonzero(take(tokens, part) != bos_id)
            wrong_begin = int(part[bad[0]]) if len(bad) else None
        previous = int(part[-1])
    if eot_id is not None and wrong_end is None and tokens[-1] != eot_id:
        wrong_end = len(tokens) - 1
    order = (
        "ascend from 0" if wrong_order is None else f"start {wrong_order:,} does not follow the one before"
    )
    found.append(Finding("document starts", wrong_order is None, order))
    if eot_id is not None:
        ends_told = (
            f"each ends with {eot_id}" if wrong_end is None else f"token {wrong_end:,} is not {eot_id}"
        )
        found.append(Finding("document ends", wrong_end is None, ends_told))
    if bos_id is not None:
        told = f"token {wrong_begin} is not {bos_id}" if wrong_begin is not None else f"each is {bos_id}"
        found.append(Finding("document beginnings", wrong_begin is None, told))
    return found


def _shares(manifest: dict[str, Any], starts: Shards) -> Iterator[Finding]:
    """The tokens of each source are those of its documents."""
    sources, documents = manifest["sources"], len(starts)
    has_shares = [{"documents", "tokens"} <= source.keys() for source in sources]
    if not all(has_shares):
        without = sources[has_shares.index(False)]["path"]
        if any(has_shares):
            yield Finding("source shares", False, f"the manifest has no documents and tokens of {without}")
        return
    said = sum(source["documents"] for source in sources)
    if said != documents or any(source["documents"] < 0 for source in sources):
        told = f"the manifest gives its sources {said:,} documents, there are {documents:,}"
        yield Finding("source shares", False, told)
        return
    counted = with_shares(sources, starts, manifest["tokens"])
    for source, found in zip(sources, counted, strict=True):
        if source["tokens"] != found["tokens"]:
            told = f"{found['tokens']:,} tokens of {source['path']}, the manifest says {source['tokens']:,}"
            yield Finding("source shares", False, told)
            return
    yield Finding("source shares", True, "documents and tokens of each add up")


def _held_out(manifest: dict[str, Any], starts: Shards) -> Iterator[Finding]:
    """The last part of what was made at once is held out: of a set that never grew, the very tokens."""
    if "val" not in manifest:
        return
    said, fraction = manifest["val"]["ranges"], manifest["val"].get("fraction")
    made = [generation["tokens"] for generation in manifest.get("generations", [])] or [manifest["tokens"]]
    right = [stop for _, stop in said] == list(accumulate(made))
    if right and len(made) == 1 and isinstance(fraction, float) and 0 < fraction < 1:
        _, val = split_ranges(manifest["tokens"], starts, fraction)
        right = said == [[val.start, val.stop]]
    told = ", ".join(f"{start:,} to {stop:,}" for start, stop in said)
    how = "as its share says" if right else f"not the last {fraction} of what was made at once"
    yield Finding("held out", right, f"tokens {told}, {how}")


def _cut(files: SetFiles, manifest: dict[str, Any], starts: Shards) -> Iterator[Finding]:
    """Documents that an earlier version may have cut."""
    earlier = earlier_manifests(files, manifest)
    try:
        refuse_cut(str(files.tokens), manifest, files.tokenizer, starts, earlier=earlier)
    except CutDocuments as error:
        yield Finding("engine", False, str(error), mend="")


def _tokens(opened: list[_Opened]) -> Shards:
    return Shards([one.tokens for one in opened])


def _starts(opened: list[_Opened]) -> Shards:
    return Shards([one.starts for one in opened], [one.part.first_token for one in opened])


def _of_files(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names):,} files"


def _tokenizer(files: SetFiles, manifest: dict[str, Any]) -> tuple[Tokenizer | None, Finding]:
    said = manifest["tokenizer"]
    try:
        tokenizer = read_tokenizer(files.tokenizer, said["name"])
        check_copies(files.tokenizer, tokenizer)
        tokenizer = recorded_ends(tokenizer, manifest["options"])
    except (UserError, OSError) as error:
        return None, Finding("tokenizer", False, str(error))
    same = tokenizer.content_hash == said["content_hash"]
    told = f"{said['name']}, content {said['content_hash'][:12]}"
    if not same:
        told += f", but {files.tokenizer} holds {tokenizer.content_hash[:12]}"
    for name, of_files in (("vocab_size", tokenizer.vocab_size), ("eot_id", tokenizer.eot_id)):
        if same and said[name] != of_files:
            same, told = False, f"{files.tokenizer} has {name} {of_files}, the manifest says {said[name]}"
    return (tokenizer if same else None), Finding("tokenizer", same, told)


def _sources(files: SetFiles, manifest: dict[str, Any], deep: bool) -> Iterator[Finding]:
    for source in manifest["sources"]:
        path = files.tokens.parent / source["path"]
        if not path.is_file():
            yield Finding("source", None, f"{source['path']} is not here")
        elif path.stat().st_size != source["bytes"]:
            told = f"{path} has {path.stat().st_size:,} bytes, it had {source['bytes']:,}"
            yield Finding("source", False, told)
        elif path.stat().st_mtime_ns == source.get("mtime_ns") and not deep:
            yield Finding("source", True, f"{path} has the size and time it had")
        else:
            try:
                same = content_hash_of(path, source.get("read_bytes")) == source["content_hash"]
            except UserError as error:
                yield Finding("source", False, str(error))
                continue
            told = f"{path} " + ("has the content it had" if same else "was changed since")
            yield Finding("source", same, told)
