"""Check every byte of a token set, its documents and its sources. A run checks bytes only (`token_set`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.audit.check_exports import check_exports_of
from data_loading.audit.encode_again import encode_again
from data_loading.audit.finding import Finding
from data_loading.dataset.splits import split_ranges
from data_loading.pretokenizer.manifest import with_shares
from data_loading.text_io.byte_files import content_hash_of
from data_loading.tokenizers.document_ends import recorded_ends
from data_loading.tokenizers.read_files import check_copies, read_tokenizer
from data_loading.tokenizers.special_tokens import parsing
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.checksums import REPAIR, checksum_problems
from data_loading.tokens.commit import settle
from data_loading.tokens.lazy_array import take
from data_loading.tokens.read_manifest import LaterVersion, read_manifest
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import Part, Shards, allow_open_files, parts_of
from data_loading.tokens.truncated_documents import CutDocuments, earlier_manifests, refuse_cut
from experiment_utils.errors import UserError

_READ_DOCUMENTS = 1 << 20


def check_set(path: Path, *, deep: bool = False) -> list[Finding]:
    """Check a token set with a manifest, and the exports of it in the same folder.

    Args:
        path: X.npy, or a folder of shards.
        deep: Also encode documents of the inputs and samples of the tokens again.

    Returns:
        All findings, good and bad.

    Raises:
        UserError: There is no set, or its manifest is missing or of a later version.
    """
    files = SetFiles(path)
    settle(files)
    try:
        manifest = read_manifest(files.tokens)
    except LaterVersion:
        raise
    except UserError as error:
        return [Finding("manifest", False, str(error))]
    if manifest is None:
        raise UserError(
            f"{files.tokens} has no manifest ({files.manifest.name}), so nothing can be compared. "
            "Tokenize its text again for a set that can be verified",
            code="manifest-missing",
        )
    return [*_check(files, manifest, deep), *check_exports_of(files.tokens)]


@dataclass(frozen=True)
class _OpenSet:
    """A set whose files have the lengths in its manifest."""

    files: SetFiles
    manifest: dict[str, Any]
    tokens: Shards
    starts: Shards


def _check(files: SetFiles, manifest: dict[str, Any], deep: bool) -> Iterator[Finding]:
    parts = parts_of(files, manifest)
    allow_open_files(2 * len(parts))
    tokens, tokens_finding = _open("tokens", parts, Part.open_tokens)
    starts, starts_finding = _open("documents", parts, Part.open_documents)
    yield from [*tokens_finding, *starts_finding]
    yield from _content(manifest, zip(parts, tokens, starts, strict=True))
    opened = None
    if all(array is not None for array in (*tokens, *starts)):
        first = [part.first_token for part in parts]
        opened = _OpenSet(files, manifest, Shards(tokens), Shards(starts, first))
        documents = list(_documents(opened))
        yield from documents
        if not all(finding.ok for finding in documents):
            opened = None
    if opened is not None:
        yield from [*_shares(opened), *_held_out(opened), *_cut(opened)]
    tokenizer, finding = _tokenizer(files, manifest)
    yield finding
    yield from _sources(files, manifest, deep)
    if deep and tokenizer is not None and opened is not None:
        if manifest["options"].get("special_tokens") == "parse":
            tokenizer = recorded_ends(parsing(tokenizer), manifest["options"])
        yield from encode_again(files, manifest, opened.tokens, opened.starts, tokenizer)


def _open(
    what: str, parts: list[Part], opener: Callable[[Part], np.ndarray]
) -> tuple[list[Any], list[Finding]]:
    """Return (an array of each part, None for one that cannot be opened; findings)."""
    arrays: list[np.ndarray | None] = []
    findings = []
    for part in parts:
        try:
            arrays.append(opener(part))
        except UserError as error:
            arrays.append(None)
            findings.append(Finding(what, False, str(error)))
    count = sum(len(array) for array in arrays if array is not None)
    shards = f" in {len(parts):,} shards" if len(parts) > 1 else ""
    return arrays, findings or [Finding(what, True, f"{count:,}{shards}, as the manifest says")]


def _content(manifest: dict[str, Any], opened: Iterable[tuple[Part, Any, Any]]) -> Iterator[Finding]:
    """Compare checksums and the range of ids of the files that could be opened, in one reading."""
    largest: list[int] = []
    readable = [(part, tokens, starts) for part, tokens, starts in opened if tokens is not None]
    if not readable:
        return
    problems: dict[str, list[str]] = {"checksums": [], "document checksum": []}
    for part, tokens, starts in readable:
        for problem in checksum_problems(
            part,
            tokens,
            manifest["checksums"]["bytes"],
            documents=starts is not None,
            on_block=lambda block: largest.append(int(block.max())),
        ):
            what = "document checksum" if problem.code == "documents-changed" else "checksums"
            problems[what].append(str(problem))
    good = {
        "checksums": _count(len(largest), "block"),
        "document checksum": _count(sum(starts is not None for *_, starts in readable), "file"),
    }
    for what, found in problems.items():
        more = f" ({len(found) - 1:,} more)" if len(found) > 1 else ""
        yield Finding(what, not found, f"{found[0]}{more}" if found else f"all match ({good[what]})")
    vocab_size = manifest["tokenizer"]["vocab_size"]
    message = f"at most {max(largest, default=0):,}, the vocabulary has {vocab_size:,}"
    yield Finding("ids", max(largest, default=0) < vocab_size, message, REPAIR)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _documents(found: _OpenSet) -> Iterator[Finding]:
    """Check that starts ascend from 0, and that documents begin and end with their ids."""
    tokens, starts, tokenizer = found.tokens, found.starts, found.manifest["tokenizer"]
    eot_id = tokenizer["eot_id"] if tokenizer["eot_appended"] else None
    bos_id = tokenizer.get("bos_id")
    wrong: dict[str, str] = {}

    def expect(what: str, places: np.ndarray, id_: int | None) -> None:
        if id_ is None or what in wrong:
            return
        others = np.flatnonzero(take(tokens, places) != id_)
        if len(others):
            wrong[what] = f"token {places[others[0]]:,} is not {id_}"

    previous = -1
    for at in range(0, len(starts), _READ_DOCUMENTS):
        part = starts[at : at + _READ_DOCUMENTS].astype(np.int64)
        bad = (np.diff(part, prepend=previous) <= 0) | (part >= len(tokens))
        bad[0] |= at == 0 and part[0] != 0
        if bad.any():
            wrong["document starts"] = f"start {at + int(np.argmax(bad)):,} does not follow the one before it"
            break
        expect("document ends", part[part > 0] - 1, eot_id)
        expect("document beginnings", part, bos_id)
        previous = int(part[-1])
    expect("document ends", np.array([len(tokens) - 1]), eot_id)
    good = {
        "document starts": "ascend from 0",
        "document ends": f"each is {eot_id}" if eot_id is not None else None,
        "document beginnings": f"each is {bos_id}" if bos_id is not None else None,
    }
    for what, message in good.items():
        if message is not None:
            yield Finding(what, what not in wrong, wrong.get(what, message), REPAIR)


def _shares(found: _OpenSet) -> Iterator[Finding]:
    """Check that the tokens of each source are those of its documents."""
    sources, starts = found.manifest["sources"], found.starts
    without = [source["path"] for source in sources if not {"documents", "tokens"} <= source.keys()]
    if len(without) == len(sources):
        return
    noted = sum(source.get("documents", 0) for source in sources)
    message, ok = "documents and tokens of each add up", False
    if without:
        message = f"the manifest has no documents and tokens of {without[0]}"
    elif noted != len(starts) or any(source["documents"] < 0 for source in sources):
        message = f"the manifest gives its sources {noted:,} documents, there are {len(starts):,}"
    else:
        counted = with_shares(sources, starts, found.manifest["tokens"])
        pairs = [(one, other) for one, other in zip(sources, counted, strict=True) if one != other]
        ok = not pairs
        for source, actual in pairs[:1]:
            message = (
                f"{actual['tokens']:,} tokens of {source['path']}, the manifest says {source['tokens']:,}"
            )
    yield Finding("source shares", ok, message, REPAIR)


def _held_out(found: _OpenSet) -> Iterator[Finding]:
    """Check that the last part of each text that was added is held out."""
    manifest = found.manifest
    if "val" not in manifest:
        return
    ranges, fraction = manifest["val"]["ranges"], manifest["val"].get("fraction")
    added = [generation["tokens"] for generation in manifest.get("generations", [])] or [manifest["tokens"]]
    ok = [stop for _, stop in ranges] == list(accumulate(added))
    if ok and len(added) == 1 and isinstance(fraction, float) and 0 < fraction < 1:
        _, val = split_ranges(manifest["tokens"], found.starts, fraction)
        ok = ranges == [[val.start, val.stop]]
    shown = ", ".join(f"{start:,} to {stop:,}" for start, stop in ranges)
    expected = f"the last {fraction} of each text that was added"
    yield Finding("held out", ok, f"tokens {shown}, {'' if ok else 'not '}{expected}", REPAIR)


def _cut(found: _OpenSet) -> Iterator[Finding]:
    """Find documents that an earlier version may have cut."""
    files, manifest = found.files, found.manifest
    earlier = earlier_manifests(files, manifest)
    try:
        refuse_cut(str(files.tokens), manifest, files.tokenizer, found.starts, earlier=earlier)
    except CutDocuments as error:
        yield Finding("engine", False, str(error))


def _tokenizer(files: SetFiles, manifest: dict[str, Any]) -> tuple[Tokenizer | None, Finding]:
    noted = manifest["tokenizer"]
    try:
        tokenizer = read_tokenizer(files.tokenizer, noted["name"])
        check_copies(files.tokenizer, tokenizer)
        tokenizer = recorded_ends(tokenizer, manifest["options"])
    except (UserError, OSError) as error:
        return None, Finding("tokenizer", False, str(error), REPAIR)
    for name in ("content_hash", "vocab_size", "eot_id"):
        actual = getattr(tokenizer, name)
        if actual != noted[name]:
            message = f"{files.tokenizer} has {name} {actual}, the manifest says {noted[name]}"
            return None, Finding("tokenizer", False, message, REPAIR)
    return tokenizer, Finding("tokenizer", True, f"{noted['name']}, content {noted['content_hash'][:12]}")


def _sources(files: SetFiles, manifest: dict[str, Any], deep: bool) -> Iterator[Finding]:
    """Compare the inputs that are here: by size and time, by content if the time differs or `deep`."""
    for source in manifest["sources"]:
        path = files.tokens.parent / source["path"]
        if not path.is_file():
            yield Finding("source", None, f"{source['path']} is not here")
            continue
        stat = path.stat()
        if stat.st_size != source["bytes"]:
            message = f"{path} has {stat.st_size:,} bytes, it had {source['bytes']:,}"
            yield Finding("source", False, message, REPAIR)
        elif stat.st_mtime_ns == source.get("mtime_ns") and not deep:
            yield Finding("source", True, f"{path} has the size and time it had")
        else:
            try:
                same = content_hash_of(path, source.get("read_bytes")) == source["content_hash"]
            except UserError as error:
                yield Finding("source", False, str(error))
                continue
            message = "has the content it had" if same else "was changed since"
            yield Finding("source", same, f"{path} {message}", REPAIR)
