"""Copies of token sets between stores and disks, every block verified, the manifest last.

What the target has already is not copied again: the same command finishes an interrupted copy, and until
then the target is no set.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_loading.remote.address import Address
from data_loading.remote.download import RemoteOptions, download, read_blocks
from data_loading.remote.retry import FIRST_PATIENCE_S, Vanished
from data_loading.remote.store import FolderStore, Store, open_store
from data_loading.remote.stored_files import (
    SetGeometry,
    StoredFile,
    fetch_manifest,
    fetch_tokenizer,
    manifest_or_advice,
)
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_LOG_EVERY_S = 10.0


@dataclass
class Report:
    """Files and bytes that a copy copied, or would copy, and that were at the target already."""

    files: int = 0
    bytes: int = 0
    there_files: int = 0
    there_bytes: int = 0
    is_whole: bool = False
    """The target had the manifest and everything that it names."""


def mirror(source: Address, target: Address, options: RemoteOptions, *, dry_run: bool = False) -> Report:
    """Copy a set, or only compare source and target (`dry_run`).

    Raises:
        UserError: no set at the source, a damaged one, another set at the target, or a store that fails.
    """
    _check_addresses(source, target)
    data, manifest = manifest_or_advice(open_store(source, FIRST_PATIENCE_S))
    earlier = _manifest_at(open_store(target, FIRST_PATIENCE_S), manifest)
    copy = _Copy(open_store(source), open_store(target), options, dry_run)
    copy.all_of(manifest)
    copy.report.is_whole = earlier == data and copy.report.files == 0
    if not dry_run and earlier != data:
        copy.goal.write(target.files.manifest.as_posix(), iter([data]), len(data), _sha256(data))
    return copy.report


def _check_addresses(source: Address, target: Address) -> None:
    if source == target:
        raise UserError(f"{source.uri} is both, source and target", code="mirror-onto-itself")
    if source.files.is_folder != target.files.is_folder:
        raise UserError(
            f"{source.uri} and {target.uri}: one is a folder, one is a file. Both end in .npy, or neither",
            code="mirror-kinds-differ",
        )
    is_local = source.files.is_folder and not source.scheme and not target.scheme
    if is_local and Path(source.uri).resolve() in Path(target.uri).resolve().parents:
        raise UserError(
            f"{target.uri} is inside {source.uri}: a set is not copied into itself", code="mirror-into-itself"
        )


def _manifest_at(goal: Store, manifest: dict[str, Any]) -> bytes | None:
    """The manifest at the target; None: it has none.

    Raises:
        UserError: it is neither of this set nor of an earlier state of it.
    """
    try:
        found, there = fetch_manifest(goal)
    except Vanished:
        return None
    if there["fingerprint"] not in (manifest["fingerprint"], *manifest.get("earlier", ())):
        raise UserError(
            f"{goal.address.uri} holds another set already (fingerprint {there['fingerprint'][:16]}, this "
            f"one has {manifest['fingerprint'][:16]}). Remove it, or give another target",
            code="mirror-target-taken",
        )
    return found


class _Copy:
    """Copy of one set from `origin` to `goal`."""

    def __init__(self, origin: Store, goal: Store, options: RemoteOptions, dry_run: bool) -> None:
        self._origin, self.goal, self._options, self._dry_run = origin, goal, options, dry_run
        self.report = Report()
        self._logged_s = time.monotonic()

    def all_of(self, manifest: dict[str, Any]) -> None:
        """Copy everything but the manifest."""
        files, others = self._origin.address.files, self.goal.address.files
        for name, data in fetch_tokenizer(self._origin, manifest).items():
            self._small(f"{others.tokenizer.as_posix()}/{name}", data)
        for fingerprint in manifest.get("earlier", ()):
            with suppress(Vanished):
                data = bytes(self._origin.read(files.earlier_manifest(fingerprint).as_posix())[0])
                self._small(others.earlier_manifest(fingerprint).as_posix(), data)
        geometry = SetGeometry(files, manifest)
        for number, part in enumerate(SetGeometry(others, manifest).parts):
            self._large(geometry.documents_file(number), part.documents_path.as_posix())
            self._large(geometry.tokens_file(number), part.tokens_path.as_posix())

    def _small(self, name: str, data: bytes) -> None:
        found = self.goal.find(name)
        is_there = found is not None and found[0] == len(data) and bytes(self.goal.read(name)[0]) == data
        if self._is_wanted(name, len(data), is_there):
            self.goal.write(name, iter([data]), len(data), _sha256(data))

    def _large(self, file: StoredFile, name: str) -> None:
        if not self._is_wanted(name, file.file_bytes, self._is_right(file, name)):
            return
        if isinstance(self.goal, FolderStore):
            download(self._origin, file, self.goal.path(name), self._options)
        else:
            self.goal.write(name, self._verified(file), file.file_bytes, file.checksum)

    def _verified(self, file: StoredFile) -> Iterator[bytes]:
        """The bytes of a file, block by block, each verified."""
        yield file.header
        for block in file.blocks:
            content, first = bytearray(block.stop - block.start), block.start

            def keep(start: int, data: Any, content: bytearray = content, first: int = first) -> None:
                content[start - first : start - first + len(data)] = data

            read_blocks(self._origin, file, [block], self._options, keep)
            yield bytes(content)

    def _is_right(self, file: StoredFile, name: str) -> bool:
        """Whether the target has this file: by the mark that a copy leaves, or by its bytes."""
        found = self.goal.find(name)
        if found is None or found[0] != file.file_bytes:
            return False
        if found[1] is not None:
            return found[1] == file.checksum
        there = replace(file, source=name)
        try:
            read_blocks(self.goal, there, there.blocks, self._options, lambda start, data: None, attempts=1)
        except UserError:
            return False
        return True

    def _is_wanted(self, name: str, size: int, is_there: bool) -> bool:
        """Count a file; returns whether it is to be copied now."""
        report = self.report
        if is_there:
            report.there_files, report.there_bytes = report.there_files + 1, report.there_bytes + size
            return False
        report.files, report.bytes = report.files + 1, report.bytes + size
        if not self._dry_run and time.monotonic() - self._logged_s > _LOG_EVERY_S:
            self._logged_s = time.monotonic()
            log.info("%s (%s MB so far)", self.goal.address.of(name), f"{report.bytes / 1e6:,.0f}")
        return not self._dry_run


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
