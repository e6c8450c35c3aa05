"""Index of packed documents: the pieces of each row, made once and kept on disk.

A folder of two plain `.npy` files of uint64 and their facts, `packing.json`. rows.npy `(rows + 1,)`: the
first piece of each row, and the number of all pieces. pieces.npy `(2 * pieces,)`: for each piece its first
token, and the number of its tokens.

The folder is in a hidden folder next to the tokens or, if that cannot be written, in the user's cache. All of
it can be made again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.dataset.packing.best_fit import best_fit
from data_loading.dataset.packing.pieces import borders_of, pieces_of
from data_loading.tokens.npy import NpyWriter
from data_loading.tokens.tokens import Tokens
from data_loading.user_cache import cache_folder
from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from memory import format_bytes

log = logging.getLogger("data_loading")

FORMAT = "highwater packing"
ALGORITHM = "best fit 1"
"""Part of fingerprints: changes with everything that changes the rows."""
ROWS, PIECES, FACTS = "rows.npy", "pieces.npy", "packing.json"
_CANNOT_WRITE = (
    errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOTDIR,
    errno.EEXIST,
)  # fmt: skip
_LONGEST_WAIT_S = 3600.0
_LOG_EVERY_S = 30.0


@dataclass(frozen=True)
class Packing:
    """Rows of `seq_len` tokens: pieces of documents, then padding."""

    folder: Path
    seq_len: int
    shift: int
    stop: int
    """End of the tokens that are read."""
    rows: int
    pieces: int
    inputs: int
    """Tokens of all rows that are no padding."""
    labels: int
    """Tokens of all rows that have a loss."""

    def __len__(self) -> int:
        return self.rows

    @property
    def name(self) -> str:
        """Difference from other packings of the same tokens, for fingerprints."""
        shift = f", shift {self.shift}" if self.shift != 1 else ""
        return f"rows of {self.seq_len}, packed by {ALGORITHM}{shift}"

    @property
    def efficiency(self) -> float:
        """Share of the tokens of all rows that is no padding; 0 without rows."""
        return self.inputs / (self.rows * self.seq_len) if self.rows else 0.0


def packing_of(
    tokens: Tokens,
    ranges: Sequence[range],
    seq_len: int,
    shift: int,
    eot_id: int | None,
    *,
    is_before: bool = False,
    check: bool = False,
) -> Packing:
    """Return the packing of the documents of these ranges: the existing index, or one that is made now.

    Args:
        tokens: A set.
        ranges: Of a split.
        seq_len: Tokens of a row.
        shift: Tokens from an input to its label.
        eot_id: The id between documents, for tokens without a list of document starts.
        is_before: Whether it is the first id of a document, else the last.
        check: Compare the index with its checksums, even if size and time of its files are unchanged.

    Raises:
        UserError: nothing says where documents begin, or the index can be stored nowhere.
        LockHeld: another process has been making it for an hour.
    """
    asked = {
        "algorithm": ALGORITHM,
        "tokens": tokens.fingerprint,
        "ranges": [[part.start, part.stop] for part in ranges],
        "seq_len": seq_len,
        "shift": shift,
        "documents": None if tokens.documents is None else len(tokens.documents),
        "eot_id": eot_id if tokens.documents is None else None,
        **({"is_before": True} if is_before else {}),
    }
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    places = (tokens.derived_folder, cache_folder())
    folders = [place / f"packing-{key}" for place in places if place is not None]
    for folder in folders:
        if (found := _opened(folder, asked, check)) is not None:
            return found
    failures = []
    for folder in folders:
        try:
            return _made_once(folder, asked, tokens, ranges, check)
        except OSError as error:
            if error.errno not in _CANNOT_WRITE:
                raise
            failures.append(f"{folder.parent} ({os.strerror(error.errno or 0)})")
    raise UserError(
        f"the packed documents of {tokens.name} need an index on disk, which could not be written: "
        f"{', '.join(failures)}. Make room, or set XDG_CACHE_HOME to a folder that can be written",
        code="packing-no-room",
    )


def _opened(folder: Path, asked: dict[str, Any], check: bool) -> Packing | None:
    """Return the index in this folder; None if it is missing, damaged or of something else."""
    try:
        text = (folder / FACTS).read_bytes()
    except OSError:
        return None
    try:
        facts = json.loads(text)
        wrong = _wrong(folder, facts, asked, check)
        if wrong is None:
            counts = {name: int(facts[name]) for name in ("rows", "pieces", "inputs", "labels")}
            stop = max((part[1] for part in asked["ranges"]), default=0)
            return Packing(folder, asked["seq_len"], asked["shift"], stop, **counts)
    except OSError as error:
        wrong = f"{error.filename}: {error.strerror}"
    except (ValueError, KeyError, TypeError) as error:
        wrong = f"{FACTS} is damaged ({error!r})"
    log.warning("the index of packed documents in %s is made again: %s", folder, wrong)
    return None


def _wrong(folder: Path, facts: dict[str, Any], asked: dict[str, Any], check: bool) -> str | None:
    if (facts["format"], facts["asked"]) != (FORMAT, asked):
        return "it is of other tokens or windows"
    lost = [name for name in (ROWS, PIECES) if not _is_whole(folder / name, facts["files"][name], check)]
    return f"{', '.join(lost)} changed since" if lost else None


def _is_whole(path: Path, fact: dict[str, Any], check: bool) -> bool:
    """Compare a file with its facts. Without check, an unchanged size and time are enough."""
    stat = path.stat()
    if stat.st_size != fact["bytes"]:
        return False
    if stat.st_mtime_ns == fact["mtime_ns"] and not check:
        return True
    if atomic_files.file_sha256(path) != fact["sha256"]:
        return False
    with suppress(OSError):  # a file of another user is read again each time
        os.utime(path, ns=(stat.st_atime_ns, fact["mtime_ns"]))
    return True


def _made_once(
    folder: Path, asked: dict[str, Any], tokens: Tokens, ranges: Sequence[range], check: bool
) -> Packing:
    """Return the index, made under a lock. Raises OSError: the folder cannot be written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock, what = folder.with_name(f".{folder.name}.lock"), f"the index {folder} of packed documents"
    wait_s = 0.0
    while True:
        try:
            with lock_file.lock(lock, what, wait_s):
                found = _opened(folder, asked, check)
                return _made(folder, asked, tokens, ranges) if found is None else found
        except lock_file.LockHeld as held:
            if wait_s:
                raise
            log.info("%s is being made by %s; waiting", held.what, held.holder)
            wait_s = _LONGEST_WAIT_S


def _made(folder: Path, asked: dict[str, Any], tokens: Tokens, ranges: Sequence[range]) -> Packing:
    """Write the index under another name and rename it; the caller holds its lock."""
    partial, aside = (folder.with_name(f".{folder.name}.{end}") for end in ("partial", "old"))
    for left in (partial, aside):
        shutil.rmtree(left, ignore_errors=True)
    log.info("packing the documents of %s into rows of %s tokens", tokens.name, f"{asked['seq_len']:,}")
    started = time.monotonic()
    partial.mkdir()
    try:
        counts = _write(partial, asked, tokens, ranges)
        files = {name: _settled(partial / name) for name in (ROWS, PIECES)}
        atomic_files.write_json(
            partial / FACTS, {"format": FORMAT, "asked": asked, "from": tokens.name, **counts, "files": files}
        )
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    atomic_files.replace_folder(partial, folder, aside, "packing")
    found = _opened(folder, asked, check=False)
    if found is None:
        raise UserError(
            f"{folder} was changed while it was written. Type the same command again",
            code="changed-while-written",
        )
    log.info(
        "%s pieces of documents in %s, packed in %.1f s; the index is kept in %s (%s)",
        f"{found.pieces:,}",
        counted(found.rows, "row"),
        time.monotonic() - started,
        folder,
        format_bytes(sum(fact["bytes"] for fact in files.values())),
    )
    return found


def _write(folder: Path, asked: dict[str, Any], tokens: Tokens, ranges: Sequence[range]) -> dict[str, int]:
    """Write both arrays to disk, and return their counts."""
    seq_len, shift = asked["seq_len"], asked["shift"]
    total, logged_s = sum(map(len, ranges)), time.monotonic()
    inputs = labels = 0
    with open(folder / ROWS, "wb") as rows_file, open(folder / PIECES, "wb") as pieces_file:
        rows, pieces = NpyWriter(rows_file, np.dtype("<u8")), NpyWriter(pieces_file, np.dtype("<u8"))
        rows.append(np.zeros(1))
        documents = borders_of(
            ranges, tokens.tokens, tokens.documents, asked["eot_id"], is_before="is_before" in asked
        )
        for block in pieces_of(documents, seq_len, shift):
            held = np.minimum(block.tokens, seq_len)
            row, n = best_fit(held, seq_len)
            order = np.argsort(row.astype(np.min_scalar_type(n)), kind="stable")
            before = pieces.length // 2
            pieces.append(np.stack([block.starts[order], block.tokens[order]], axis=1).ravel())
            rows.append(np.cumsum(np.bincount(row, minlength=n)) + before)
            inputs += int(held.sum())
            labels += int((block.tokens - shift).sum())
            atomic_files.point("packing:block")
            if time.monotonic() - logged_s > _LOG_EVERY_S:
                logged_s = time.monotonic()
                log.info("packed %.0f%%", 100 * inputs / total)
        for writer, file in ((rows, rows_file), (pieces, pieces_file)):
            writer.finish()
            file.flush()
            os.fsync(file.fileno())
        return {"rows": rows.length - 1, "pieces": pieces.length // 2, "inputs": inputs, "labels": labels}


def _settled(path: Path) -> dict[str, Any]:
    """Return size, time and checksum of a file. Its time becomes one of whole seconds, as every disk has."""
    whole_s = int(time.time())
    os.utime(path, (whole_s, whole_s))
    stat = path.stat()
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": atomic_files.file_sha256(path)}
