"""Put the files of a token set in place atomically.

They are written into a hidden folder next to the set (`.X.npy.partial`, `.X.partial`). When everything in it
is on the disk it is renamed to `.X.npy.commit`: from that moment the new set counts, and the next process,
reader or writer, finishes the moves of its parts. A set is never half old and half new.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from data_loading.tokens.set_files import SHARD_FILES, SetFiles, documents_of
from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError

_LOCK_WAIT_S = 60.0


@contextmanager
def staging(files: SetFiles) -> Iterator[Path]:
    """Yield the hidden folder for the parts; they are put in place at the end of the block.

    The caller holds the set's lock and has finished an earlier commit. After an exception the folder is kept,
    for another attempt.
    """
    files.partial.mkdir(exist_ok=True)
    yield files.partial
    _sync_tree(files.partial)
    atomic_files.point(f"{files.tokens.name}:before_commit")
    os.rename(files.partial, files.commit)
    atomic_files.fsync_folder(files.tokens.parent)
    atomic_files.point(f"{files.tokens.name}:after_commit")
    finish_commit(files)


def finish_commit(files: SetFiles) -> None:
    """Move the parts in a commit folder into place, if there is one.

    Each move can be repeated, so an earlier attempt may have been killed at any point.
    """
    if not files.commit.is_dir():
        return
    if files.is_folder:
        files.tokens.mkdir(exist_ok=True)
    for name, target in files.moves:
        source = files.commit / name
        if source.is_dir():
            aside = files.commit / "old"
            shutil.rmtree(aside, ignore_errors=True)
            with suppress(FileNotFoundError):
                os.rename(target, aside)
            os.rename(source, target)
        elif source.exists():
            os.replace(source, target)
        atomic_files.point(f"{files.tokens.name}:moved_{name}")
    if files.is_folder:
        _remove_replaced(files)
        atomic_files.fsync_folder(files.tokens)
    atomic_files.fsync_folder(files.tokens.parent)
    shutil.rmtree(files.commit)


def _remove_replaced(files: SetFiles) -> None:
    """Remove shards and earlier manifests that the manifest in place does not name."""
    manifest = json.loads(files.manifest.read_text(encoding="utf-8"))
    named = {files.manifest.name, *(files.earlier_manifest(found).name for found in manifest["earlier"])}
    for shard in manifest["shards"]:
        named |= {shard["name"], documents_of(Path(shard["name"])).name}
    for path in files.tokens.iterdir():
        if SHARD_FILES.fullmatch(path.name) and path.name not in named:
            path.unlink()


def settle(files: SetFiles) -> None:
    """Finish a commit that a killed writer left, before the set is read.

    Raises:
        UserError: This process may not write there.
    """
    if not files.commit.is_dir():
        return
    try:
        with lock_file.lock(files.lock, f"token set {files.tokens}", wait_s=_LOCK_WAIT_S):
            finish_commit(files)
    except OSError as error:
        raise UserError(
            f"{files.tokens}: its writer was killed while it moved the files into place, and they cannot be "
            f"moved now ({error.strerror}). Run this once where {files.tokens.parent} can be written",
            code="settle-failed",
        ) from error


def _sync_tree(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            atomic_files.fsync_folder(path)
        else:
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
