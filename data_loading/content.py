"""Tokens and documents of a set are those that its manifest was written with: checksums, read once."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

import numpy as np

from conf import UserError
from data_loading.checked import read_checked, write_checked
from data_loading.content_hash import file_content_hash
from data_loading.set_files import SetFiles

log = logging.getLogger("data_loading")


def verify_content(files: SetFiles, tokens: np.ndarray, manifest: dict[str, Any]) -> None:
    """Hold tokens and document starts against their checksums, once for each state of the files.

    What the writer wrote holds no id outside the vocabulary; so does what is verified.

    Raises:
        UserError: a block differs; names it, and what mends it.
    """
    if read_checked(files).get("content") == _facts(files, manifest):
        return
    log.info("reading %s once to verify its checksums", files.tokens)
    block_bytes = manifest["checksums"]["bytes"]
    content = tokens.view(np.uint8)
    if len(manifest["checksums"]["blocks"]) != -(-len(content) // block_bytes):
        raise UserError(
            f"{files.manifest} has {len(manifest['checksums']['blocks']):,} checksums for {len(content):,} "
            f"bytes of tokens, one for each {block_bytes:,}: it was changed. Copy the set again, or tokenize "
            "again with --overwrite"
        )
    for number, expected in enumerate(manifest["checksums"]["blocks"]):
        start = number * block_bytes
        block = content[start : start + block_bytes]
        if hashlib.sha256(block.data).hexdigest() != expected:
            raise UserError(
                f"{files.tokens} is not what {files.manifest.name} was written for: bytes {start:,} to "
                f"{start + len(block):,} of its tokens do not match their checksum, so the file was "
                "changed or damaged. Copy the set again, or tokenize again with --overwrite"
            )
    if file_content_hash(files.documents) != manifest["checksums"]["documents"]:
        raise UserError(
            f"{files.documents} is not what {files.manifest.name} was written for: its checksum does not "
            "match, so it was changed or damaged. Copy the set again, or tokenize again with --overwrite"
        )
    note_content(files, manifest)


def note_content(files: SetFiles, manifest: dict[str, Any]) -> None:
    """Keep that tokens and documents, as they lie there now, are those of the manifest."""
    write_checked(files, {**read_checked(files), "content": _facts(files, manifest)})


def _facts(files: SetFiles, manifest: dict[str, Any]) -> dict[str, Any]:
    states = [(stat.st_size, stat.st_mtime_ns) for stat in (files.tokens.stat(), files.documents.stat())]
    expected = hashlib.sha256(json.dumps(manifest["checksums"]).encode()).hexdigest()
    return {"states": [list(state) for state in states], "checksums": expected}
