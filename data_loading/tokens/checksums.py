"""Compare tokens and document starts with the checksums in the manifest, once for each state of the files."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from data_loading.text_io.content_hash import file_content_hash
from data_loading.tokens.npy import open_npy
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import Part, parts_of
from data_loading.verification_cache import one_reads, read_checked, write_checked
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

REPAIR = "Copy the set again, or tokenize again with --overwrite"
_STORED_EVERY = 100
"""Shards after which the results so far are stored, in case the process is killed."""


def verify_content(files: SetFiles, manifest: dict[str, Any]) -> None:
    """Verify the parts that have changed since they were last verified.

    The range of ids is not checked: the writer wrote none outside the vocabulary.

    Raises:
        UserError: A block differs from its checksum.
    """
    if not _changed(files, manifest):
        return
    with one_reads(files, f"{files.tokens} to verify its checksums"):
        changed = _changed(files, manifest)
        for number, part in enumerate(changed):
            log.info("reading %s once to verify its checksums", part.tokens_path)
            tokens = open_npy(part.tokens_path)
            for problem in checksum_problems(part, tokens, manifest["checksums"]["bytes"]):
                raise problem
            if number % _STORED_EVERY == _STORED_EVERY - 1 or number == len(changed) - 1:
                note_content(files, changed[: number + 1])


def checksum_problems(
    part: Part,
    tokens: np.ndarray,
    block_bytes: int,
    *,
    documents: bool = True,
    on_block: Callable[[np.ndarray], None] = lambda block: None,
) -> Iterator[UserError]:
    """Yield an error for each block of a part that differs from its checksum, and for its document starts.

    Args:
        part: The token file.
        tokens: Its tokens.
        block_bytes: Bytes of a block.
        documents: Whether its document starts are read.
        on_block: Called with the tokens of each block.
    """
    block_tokens = max(1, block_bytes // tokens.dtype.itemsize)
    blocks = -(-len(tokens) // block_tokens)
    if len(part.blocks) != blocks:
        yield UserError(
            f"{part.tokens_path}: the manifest has {len(part.blocks):,} checksums for its {blocks:,} blocks "
            f"of {block_bytes:,} bytes. {REPAIR}",
            code="checksums-incomplete",
        )
    for number, expected in zip(range(blocks), part.blocks, strict=False):
        block = tokens[number * block_tokens : (number + 1) * block_tokens]
        on_block(block)
        data = block.data.cast("B")
        if hashlib.sha256(data).hexdigest() != expected:
            start = number * block_tokens * tokens.dtype.itemsize
            yield UserError(
                f"{part.tokens_path} does not match its manifest: the checksum of bytes {start:,} to "
                f"{start + len(data):,} of its tokens is another one, so it was changed or damaged. {REPAIR}",
                code="tokens-changed",
            )
    if documents and file_content_hash(part.documents_path) != part.documents_checksum:
        yield UserError(
            f"{part.documents_path} does not match its manifest: its checksum is another one, so it was "
            f"changed or damaged. {REPAIR}",
            code="documents-changed",
        )


def note_content(files: SetFiles, verified: list[Part]) -> None:
    """Store that these parts, in their present state, match the manifest."""
    checked = read_checked(files)
    known = {name: facts for name, facts in _known(checked).items() if (files.folder / name).exists()}
    known.update({part.tokens_path.name: _facts(part) for part in verified})
    write_checked(files, {**checked, "content": known})


def _changed(files: SetFiles, manifest: dict[str, Any]) -> list[Part]:
    """Return the parts whose present state was not verified."""
    known = _known(read_checked(files))
    return [part for part in parts_of(files, manifest) if known.get(part.tokens_path.name) != _facts(part)]


def _known(checked: dict[str, Any]) -> dict[str, Any]:
    found = checked.get("content")
    return found if isinstance(found, dict) else {}


def _facts(part: Part) -> dict[str, Any]:
    stats = [path.stat() for path in (part.tokens_path, part.documents_path)]
    expected = hashlib.sha256(json.dumps([part.blocks, part.documents_checksum]).encode()).hexdigest()
    return {"states": [[stat.st_size, stat.st_mtime_ns] for stat in stats], "checksums": expected}
