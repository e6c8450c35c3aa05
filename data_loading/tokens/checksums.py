"""Tokens and documents of a set are those that its manifest was written with: checksums, read once."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

import numpy as np

from data_loading.text_io.content_hash import file_content_hash
from data_loading.tokens.npy import open_npy
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import Part, parts_of
from data_loading.tokens.verification_cache import one_reads, read_checked, write_checked
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_NOTED_EVERY = 100
"""Shards after which what is known is kept, should the rest be cut short."""


def verify_content(files: SetFiles, manifest: dict[str, Any]) -> None:
    """Hold tokens and document starts against their checksums, once for each state of the files.

    What the writer wrote holds no id outside the vocabulary; so does what is verified.

    Raises:
        UserError: a block differs; names it, and what mends it.
    """
    if not _unknown(files, manifest):
        return
    with one_reads(files, f"{files.tokens} to verify its checksums"):
        unknown = _unknown(files, manifest)
        for number, part in enumerate(unknown):
            log.info("reading %s once to verify its checksums", part.tokens_path)
            _verify(part, files, manifest["checksums"]["bytes"])
            if number % _NOTED_EVERY == _NOTED_EVERY - 1 or number == len(unknown) - 1:
                note_content(files, unknown[: number + 1])


def _unknown(files: SetFiles, manifest: dict[str, Any]) -> list[Part]:
    """Parts that were not verified in the state in which they are now."""
    known = _known(read_checked(files))
    return [part for part in parts_of(files, manifest) if known.get(_name(part)) != _facts(part)]


def _verify(part: Part, files: SetFiles, block_bytes: int) -> None:
    content = open_npy(part.tokens_path).view(np.uint8)
    if len(part.blocks) != -(-len(content) // block_bytes):
        raise UserError(
            f"{files.manifest} has {len(part.blocks):,} checksums for {len(content):,} "
            f"bytes of tokens in {part.tokens_path.name}, one for each {block_bytes:,}: it was changed. Copy "
            "the set again, or tokenize again with --overwrite",
            code="checksums-incomplete",
        )
    for number, expected in enumerate(part.blocks):
        start = number * block_bytes
        block = content[start : start + block_bytes]
        if hashlib.sha256(block.data).hexdigest() != expected:
            raise UserError(
                f"{part.tokens_path} is not what {files.manifest.name} was written for: bytes {start:,} to "
                f"{start + len(block):,} of its tokens do not match their checksum, so the file was "
                "changed or damaged. Copy the set again, or tokenize again with --overwrite",
                code="tokens-changed",
            )
    if file_content_hash(part.documents_path) != part.documents_checksum:
        raise UserError(
            f"{part.documents_path} is not what {files.manifest.name} was written for: its checksum does not "
            "match, so it was changed or damaged. Copy the set again, or tokenize again with --overwrite",
            code="documents-changed",
        )


def note_content(files: SetFiles, verified: list[Part]) -> None:
    """Keep that these parts, as they lie there now, are those of the manifest."""
    checked = read_checked(files)
    known = {name: facts for name, facts in _known(checked).items() if (files.folder / name).exists()}
    known.update({_name(part): _facts(part) for part in verified})
    write_checked(files, {**checked, "content": known})


def _known(checked: dict[str, Any]) -> dict[str, Any]:
    found = checked.get("content")
    return found if isinstance(found, dict) else {}


def _name(part: Part) -> str:
    return part.tokens_path.name


def _facts(part: Part) -> dict[str, Any]:
    states = [
        (stat.st_size, stat.st_mtime_ns) for stat in (part.tokens_path.stat(), part.documents_path.stat())
    ]
    expected = hashlib.sha256(json.dumps([part.blocks, part.documents_checksum]).encode()).hexdigest()
    return {"states": [list(state) for state in states], "checksums": expected}
