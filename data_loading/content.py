"""The tokens of a set are those that its manifest was written with: checksums, read once."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import numpy as np

from conf import UserError
from data_loading.checked import read_checked, write_checked
from data_loading.set_files import SetFiles

log = logging.getLogger("data_loading")


def verify_content(files: SetFiles, tokens: np.ndarray, manifest: dict[str, Any]) -> None:
    """Hold every block of tokens against its checksum, once for each state of the file.

    What the writer wrote holds no id outside the vocabulary; so does what is verified.

    Raises:
        UserError: a block differs; names it, and what mends it.
    """
    if read_checked(files).get("content") == _facts(files, manifest):
        return
    log.info("reading %s once to verify its checksums", files.tokens)
    block_bytes = manifest["checksums"]["bytes"]
    content = tokens.view(np.uint8)
    for number, expected in enumerate(manifest["checksums"]["blocks"]):
        start = number * block_bytes
        block = content[start : start + block_bytes]
        if hashlib.sha256(block.data).hexdigest() != expected:
            raise UserError(
                f"{files.tokens} is not what {files.manifest.name} was written for: bytes {start:,} to "
                f"{start + len(block):,} of its tokens do not match their checksum, so the file was "
                "changed or damaged. Copy the set again, or tokenize again with --overwrite"
            )
    note_content(files, manifest)


def note_content(files: SetFiles, manifest: dict[str, Any]) -> None:
    """Keep that the tokens, as they lie there now, are those of the manifest."""
    write_checked(files, {**read_checked(files), "content": _facts(files, manifest)})


def _facts(files: SetFiles, manifest: dict[str, Any]) -> dict[str, Any]:
    stat = files.tokens.stat()
    blocks = hashlib.sha256("".join(manifest["checksums"]["blocks"]).encode()).hexdigest()
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "checksums": blocks}
