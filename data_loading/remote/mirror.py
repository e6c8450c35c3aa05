"""A token set copied between stores, every block held against its checksum on the way, the manifest last.

What the target has already, whole and right, is not copied again: so a copy that was cut short is finished
by the same command, and until then nobody takes the half of it for a set.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_loading.content_hash import ContentHash
from data_loading.remote.address import Address
from data_loading.remote.download import DownloadOptions, download
from data_loading.remote.files import fetch_manifest, fetch_tokenizer, manifest_or_advice
from data_loading.remote.pieces import Block, Piece, documents_piece, tokens_piece
from data_loading.remote.retry import FIRST_PATIENCE_S, Vanished
from data_loading.remote.store import FolderStore, Store, open_store
from data_loading.shards import parts_of
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

_ATTEMPTS = 4
_TOLD_EVERY_S = 10.0


@dataclass
class Report:
    """What a copy did, or would do: files and bytes copied, and what was there already."""

    files: int = 0
    bytes: int = 0
    there_files: int = 0
    there_bytes: int = 0
    is_whole: bool = False
    """The target had the manifest already, and everything that it names."""


def mirror(source: Address, target: Address, options: DownloadOptions, *, dry_run: bool = False) -> Report:
    """Copy a set. dry_run: only look at what there is.

    Raises:
        UserError: no set there, a damaged one, another set at the target, or a store that fails.
    """
    if source == target:
        raise UserError(f"{source.uri} is both, source and target", code="mirror-onto-itself")
    if source.files.is_folder and not source.scheme and not target.scheme:
        inside, outside = Path(target.uri).resolve(), Path(source.uri).resolve()
        if outside in inside.parents:
            raise UserError(
                f"{target.uri} lies in {source.uri}: a set is not copied into itself",
                code="mirror-into-itself",
            )
    if source.files.is_folder != target.files.is_folder:
        raise UserError(
            f"{source.uri} is a set in {_kind(source)}, {target.uri} the name of one in {_kind(target)}: "
            "both end in .npy, or neither",
            code="mirror-kinds-differ",
        )
    origin, goal = open_store(source, FIRST_PATIENCE_S), open_store(target, FIRST_PATIENCE_S)
    data, manifest = manifest_or_advice(origin)
    earlier = _manifest_there(goal, data, manifest)
    origin, goal = open_store(source), open_store(target)
    copy = _Copy(origin, goal, options, dry_run)
    copy.all_of(manifest)
    copy.report.is_whole = earlier == data and copy.report.files == 0
    if not dry_run and earlier != data:
        goal.write(
            target.files.manifest.as_posix(), iter([data]), len(data), hashlib.sha256(data).hexdigest()
        )
    return copy.report


def _kind(address: Address) -> str:
    return "a folder" if address.files.is_folder else "one file"


def _manifest_there(goal: Store, data: bytes, manifest: dict[str, Any]) -> bytes | None:
    """The manifest of the target; None: none.

    Raises:
        UserError: it is of another set than this one or what this one was before it grew.
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
    """From one store to another."""

    def __init__(self, origin: Store, goal: Store, options: DownloadOptions, dry_run: bool) -> None:
        self._origin, self._goal, self._options, self._dry_run = origin, goal, options, dry_run
        self.report = Report()
        self._told = time.monotonic()

    def all_of(self, manifest: dict[str, Any]) -> None:
        """Everything but the manifest."""
        files, others = self._origin.address.files, self._goal.address.files
        for name, data in fetch_tokenizer(self._origin, manifest).items():
            self._small(f"{others.tokenizer.as_posix()}/{name}", data)
        for fingerprint in manifest.get("earlier", ()):
            self._earlier(files.earlier_manifest(fingerprint), others.earlier_manifest(fingerprint))
        for part, other in zip(parts_of(files, manifest), parts_of(others, manifest), strict=True):
            self._piece(documents_piece(part), other.documents_path)
            self._piece(tokens_piece(part, manifest), other.tokens_path)

    def _earlier(self, name: Path, other: Path) -> None:
        try:
            data, _ = self._origin.read(name.as_posix())
        except Vanished:
            return  # a set of which nobody goes on reading the earlier state
        self._small(other.as_posix(), data)

    def _small(self, name: str, data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()
        found = self._goal.find(name)
        if found is not None and found[0] == len(data) and self._goal.read(name)[0] == data:
            self._count_there(len(data))
            return
        self._count(name, len(data))
        if not self._dry_run:
            self._goal.write(name, iter([data]), len(data), digest)

    def _piece(self, piece: Piece, target: Path) -> None:
        name = target.as_posix()
        if self._is_right(piece, name):
            self._count_there(piece.file_bytes)
            return
        self._count(name, piece.file_bytes)
        if self._dry_run:
            return
        if isinstance(self._goal, FolderStore):
            place = Path(self._goal.address.root) / target
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"{place.parent} cannot be made: {error.strerror}", code="file-unwritable"
                ) from None
            download(self._origin, piece, place, self._options)
        else:
            content = verified(self._origin, piece, self._options)
            self._goal.write(name, content, piece.file_bytes, piece.checksum)

    def _is_right(self, piece: Piece, name: str) -> bool:
        """Whether the target has this piece: by the mark that a copy leaves, or by its bytes."""
        found = self._goal.find(name)
        if found is None or found[0] != piece.file_bytes:
            return False
        if found[1] is not None:
            return found[1] == piece.checksum
        there = Piece(**{**piece.__dict__, "source": name})
        try:
            for _ in verified(self._goal, there, self._options, attempts=1):
                pass
        except UserError:
            return False
        return True

    def _count(self, name: str, size: int) -> None:
        self.report.files += 1
        self.report.bytes += size
        if not self._dry_run and time.monotonic() - self._told > _TOLD_EVERY_S:
            self._told = time.monotonic()
            log.info("%s (%s MB so far)", self._goal.address.of(name), f"{self.report.bytes / 1e6:,.0f}")

    def _count_there(self, size: int) -> None:
        self.report.there_files += 1
        self.report.there_bytes += size


def verified(
    store: Store, piece: Piece, options: DownloadOptions, attempts: int = _ATTEMPTS
) -> Iterator[bytes]:
    """The bytes of a piece's file, block by block, each once it matches its checksum.

    A piece whose checksum is of the whole is held in memory: document starts of one token file.

    Raises:
        UserError: a block is damaged in the store; names it.
    """
    if piece.header:
        yield piece.header
    with ThreadPoolExecutor(options.workers, thread_name_prefix="mirror") as pool:
        if piece.content_hash is not None:
            whole = Block(piece.blocks[0].start, piece.blocks[-1].stop, piece.content_hash)
            yield _block(store, piece, whole, options, pool, attempts)
            return
        for block in piece.blocks:
            yield _block(store, piece, block, options, pool, attempts)


def _block(
    store: Store,
    piece: Piece,
    block: Block,
    options: DownloadOptions,
    pool: ThreadPoolExecutor,
    attempts: int,
) -> bytes:
    starts = range(block.start, block.stop, options.part_bytes)

    def part(start: int) -> bytes:
        data, size = store.read(piece.source, start, min(start + options.part_bytes, block.stop))
        if size != piece.source_bytes:
            raise UserError(
                f"{store.address.of(piece.source)} has {size:,} bytes, its manifest says "
                f"{piece.source_bytes:,}. Copy or tokenize the set again",
                code="object-size",
            )
        return data

    for _ in range(attempts):
        data = b"".join(pool.map(part, starts))
        digest = _content_hash(data) if piece.content_hash else hashlib.sha256(data).hexdigest()
        if digest == block.sha256:
            return data
    raise UserError(
        f"{store.address.of(piece.source)}: bytes {block.start:,} to {block.stop:,} do not match the "
        f"checksum in the manifest, read {attempts} times: it is damaged. Copy or tokenize the set again",
        code="object-damaged",
    )


def _content_hash(data: bytes) -> str:
    found = ContentHash()
    found.update(data)
    return found.hexdigest()
