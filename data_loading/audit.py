"""Is this token set what its manifest says? Every byte is read; `deep` encodes a sample of it again.

What a run checks when it opens a set (`token_set`) is remembered for each state of the files; here
nothing is believed.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conf import UserError
from data_loading.content_hash import file_content_hash
from data_loading.npy import open_npy
from data_loading.pretokenizer.byte_files import content_hash_of
from data_loading.pretokenizer.special_tokens import parsing
from data_loading.set_files import SetFiles, settle
from data_loading.token_set import read_manifest
from data_loading.tokenizer import Tokenizer
from data_loading.tokenizer_files import read_tokenizer

SAMPLES = 64
SAMPLE_TOKENS = 4096
SAMPLE_BYTES = 16384
_READ_DOCUMENTS = 1 << 20


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ok: None where it cannot be told here, e.g. without the text."""

    what: str
    ok: bool | None
    told: str

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "ok": self.ok, "told": self.told}


def audit(path: Path, *, deep: bool = False) -> list[Finding]:
    """Look at everything that a token set with a manifest holds; all findings, good and bad.

    deep: also encode samples from all over the text again, with the reference tokenizer, and look for
    them in the tokens (where the text is a plain one that is here); and the other way round.

    Raises:
        UserError: there is no set, or it has no manifest to hold it against.
    """
    files = SetFiles(path)
    settle(files)
    manifest = read_manifest(files.tokens)
    if manifest is None:
        raise UserError(
            f"{files.tokens} has no manifest ({files.manifest.name}): there is nothing to hold it against. "
            "Tokenize its text again for a set that can be verified"
        )
    tokens = open_npy(files.tokens)
    return list(_findings(files, manifest, tokens, deep))


def _findings(files: SetFiles, manifest: dict[str, Any], tokens: np.ndarray, deep: bool) -> Iterator[Finding]:
    there, said = (len(tokens), tokens.dtype.str), (manifest["tokens"], manifest["dtype"])
    length = Finding(
        "tokens", there == said, f"{there[0]:,} of {there[1]}, the manifest says {said[0]:,} of {said[1]}"
    )
    yield length
    if length.ok:
        yield from _content(manifest, tokens)
    documents = _documents(files, manifest, tokens)
    yield from documents
    tokenizer, finding = _tokenizer(files, manifest)
    yield finding
    yield from _sources(files, manifest, deep)
    if deep and tokenizer is not None and length.ok and all(found.ok for found in documents):
        yield from _samples(files, manifest, tokens, tokenizer)


def _content(manifest: dict[str, Any], tokens: np.ndarray) -> Iterator[Finding]:
    """Checksums and the range of ids, in one reading."""
    block_bytes, blocks = manifest["checksums"]["bytes"], manifest["checksums"]["blocks"]
    size = tokens.dtype.itemsize
    wrong, largest = [], 0
    per_block = max(1, block_bytes // size)
    for number, start in enumerate(range(0, len(tokens), per_block)):
        block = tokens[start : start + per_block]
        largest = max(largest, int(block.max()))
        digest = hashlib.sha256(block.data.cast("B")).hexdigest()
        if number >= len(blocks) or digest != blocks[number]:
            wrong.append(f"bytes {start * size:,} to {(start + len(block)) * size:,}")
    count = -(-len(tokens) // per_block)
    if len(blocks) != count:
        wrong.append(f"{len(blocks):,} checksums for {_blocks(count)}")
    yield Finding(
        "checksums", not wrong, f"do not match: {'; '.join(wrong)}" if wrong else f"of {_blocks(count)} match"
    )
    vocab_size = manifest["tokenizer"]["vocab_size"]
    yield Finding("ids", largest < vocab_size, f"at most {largest:,}, the vocabulary has {vocab_size:,}")


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count:,} blocks"


def _documents(files: SetFiles, manifest: dict[str, Any], tokens: np.ndarray) -> list[Finding]:
    """Starts ascend from 0 below the last token, and each document ends as the manifest says."""
    if not files.documents.exists():
        return [Finding("documents", False, f"{files.documents} is missing")]
    starts = open_npy(files.documents)
    found = [
        Finding(
            "documents",
            len(starts) == manifest["documents"],
            f"{len(starts):,}, the manifest says {manifest['documents']:,}",
        ),
        Finding(
            "document checksum",
            file_content_hash(files.documents) == manifest["checksums"]["documents"],
            f"of {files.documents.name}",
        ),
    ]
    eot_id = manifest["tokenizer"]["eot_id"] if manifest["tokenizer"]["eot_appended"] else None
    wrong_order, wrong_end = None, None
    previous = -1
    for at in range(0, len(starts), _READ_DOCUMENTS):
        part = np.asarray(starts[at : at + _READ_DOCUMENTS]).astype(np.int64)
        steps = np.diff(part, prepend=previous)
        bad_starts = (steps <= 0) | (part >= len(tokens))
        bad_starts[0] |= at == 0 and part[0] != 0
        if wrong_order is None and bad_starts.any():
            wrong_order = at + int(np.argmax(bad_starts))
        ends = part[part > 0] - 1
        if eot_id is not None and wrong_order is None and wrong_end is None:
            bad = np.flatnonzero(tokens[ends] != eot_id)
            wrong_end = int(ends[bad[0]]) if len(bad) else None
        previous = int(part[-1])
    if eot_id is not None and wrong_end is None and int(tokens[-1]) != eot_id:
        wrong_end = len(tokens) - 1
    order = (
        "ascend from 0" if wrong_order is None else f"start {wrong_order:,} does not follow the one before"
    )
    found.append(Finding("document starts", wrong_order is None, order))
    if eot_id is not None:
        ends_told = (
            f"each ends with {eot_id}" if wrong_end is None else f"token {wrong_end:,} is not {eot_id}"
        )
        found.append(Finding("ends of documents", wrong_end is None, ends_told))
    return found


def _tokenizer(files: SetFiles, manifest: dict[str, Any]) -> tuple[Tokenizer | None, Finding]:
    said = manifest["tokenizer"]
    try:
        tokenizer = read_tokenizer(files.tokenizer, said["name"])
    except (UserError, OSError) as error:
        return None, Finding("tokenizer", False, str(error))
    same = tokenizer.content_hash == said["content_hash"]
    told = f"{said['name']}, content {said['content_hash'][:12]}"
    if not same:
        told += f", but {files.tokenizer} holds {tokenizer.content_hash[:12]}"
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


def _samples(
    files: SetFiles, manifest: dict[str, Any], tokens: np.ndarray, tokenizer: Tokenizer
) -> Iterator[Finding]:
    """Samples of the text, which must stand in the tokens, and of the tokens, encoded again from their text.

    Both begin and end where the text may be cut, so that they may be encoded by themselves.
    """
    if not tokenizer.cut_rule.exists:
        yield Finding("sample", None, f"this tokenizer allows no cut ({tokenizer.cut_rule.why_none})")
        return
    if manifest["options"].get("special_tokens") == "parse":
        tokenizer = parsing(tokenizer)
    text = _text_of(files, manifest)
    if text is not None:
        yield _text_in_tokens(files, manifest, text, tokenizer)
    yield _tokens_again(files, manifest, tokens, tokenizer)


def _text_of(files: SetFiles, manifest: dict[str, Any]) -> Path | None:
    """The text the set was made from, where it is one plain text that is here."""
    options, sources = manifest["options"], manifest["sources"]
    if options.get("clean") or options.get("dedup"):
        return None
    is_packed = any(source.get("compression") or source.get("read_bytes") for source in sources)
    if (
        is_packed
        or len(sources) != 1
        or (options.get("encoding"), options.get("errors"))
        != (
            "utf-8",
            "strict",
        )
    ):
        return None
    path = files.tokens.parent / manifest["sources"][0]["path"]
    return path if path.suffix == ".txt" and path.is_file() else None


def _text_in_tokens(files: SetFiles, manifest: dict[str, Any], text: Path, tokenizer: Tokenizer) -> Finding:
    separator = manifest["options"].get("document_separator")
    dtype, found, compared = np.dtype(manifest["dtype"]), 0, 0
    with open(text, "rb") as file, open(files.tokens, "rb") as token_file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        ids = mmap.mmap(token_file.fileno(), 0, access=mmap.ACCESS_READ)
        for place in _places(len(content)):
            part = _safe_part(content[place : place + SAMPLE_BYTES], tokenizer, separator)
            if not part:
                continue
            expected = tokenizer.encode(part.decode()).astype(dtype).tobytes()
            compared += len(part)
            if not _stands_in(ids, expected, dtype.itemsize):
                told = f"{part[:40].decode(errors='replace')!r}... of {text} (near byte {place:,})"
                return Finding("sample of the text", False, f"the ids of {told} are not in {files.tokens}")
            found += 1
    told = (
        f"the ids of {compared:,} bytes from {found:,} places are there" if found else "none can be cut out"
    )
    return Finding("sample of the text", True if found else None, told)


def _stands_in(ids: mmap.mmap, expected: bytes, itemsize: int) -> bool:
    """Whether the bytes stand there at the beginning of an id."""
    at = ids.find(expected)
    while at >= 0 and at % itemsize:
        at = ids.find(expected, at + 1)
    return at >= 0


def _tokens_again(
    files: SetFiles, manifest: dict[str, Any], tokens: np.ndarray, tokenizer: Tokenizer
) -> Finding:
    starts = open_npy(files.documents)
    appended = manifest["tokenizer"]["eot_appended"]
    compared = 0
    for place in _places(len(tokens)):
        document = int(np.searchsorted(starts, place, side="right")) - 1
        last = int(starts[document + 1]) if document + 1 < len(starts) else len(tokens)
        ids = np.asarray(tokens[place : min(last - appended, place + SAMPLE_TOKENS)])
        part = _safe_part(tokenizer.decode(ids).encode(), tokenizer).decode()
        expected = tokenizer.encode(part)
        if not part or "\ufffd" in part or tokenizer.decode(expected) != part:
            continue  # cut inside a character, or a tokenizer that does not give back its text
        compared += len(expected)
        if not _holds(ids, expected):
            told = f"from token {place:,} on there are others than those of {part[:40]!r}..."
            return Finding("sample of the tokens", False, told)
    if not compared:
        return Finding("sample of the tokens", None, "this tokenizer does not give back its text")
    return Finding("sample of the tokens", True, f"{compared:,} decoded and encoded again are the same")


def _places(length: int) -> list[int]:
    """The beginning and places all over, the same ones each time."""
    return sorted({0, *map(int, np.random.default_rng(0).integers(0, length, SAMPLES))})


def _safe_part(data: bytes, tokenizer: Tokenizer, separator: str | None = None) -> bytes:
    """What of a sample may be encoded by itself; empty where nothing may."""
    from data_loading.pretokenizer.cuts import first_cut, last_cut

    rule = tokenizer.cut_rule
    if separator is not None:
        data = data[: data.find(separator.encode())] if separator.encode() in data else data
    begin, end = first_cut(data, rule, 0), last_cut(data, rule, 0, len(data))
    return b"" if begin is None or end is None else data[begin + rule.drop_space : end]


def _holds(ids: np.ndarray, part: np.ndarray) -> bool:
    """Whether `part` stands somewhere in `ids`."""
    places = np.flatnonzero(ids[: len(ids) - len(part) + 1] == part[0])
    return any(np.array_equal(ids[place : place + len(part)], part) for place in places)
