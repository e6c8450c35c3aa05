"""One piece of a set onto the disk: ranges in parallel, each block verified, whole or not there.

A download writes `.NAME.part`, which has its full length from the beginning, so that a disk that is too
small is told before anything is fetched; and `.NAME.parts`, the ranges that are written. Whoever fetches
the piece again goes on with these: what was half done when a process was killed is not fetched twice.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from data_loading.content_hash import file_content_hash
from data_loading.remote.pieces import Block, Piece
from data_loading.remote.store import Store
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

WORKERS = 8
PART_BYTES = 8 << 20
_ATTEMPTS = 4
"""At a block whose checksum does not match."""
_READ_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Stopped(Exception):
    """A download was told to stop; what it has stays for the next one."""


@dataclass(frozen=True)
class DownloadOptions:
    """workers: requests at a time. part_bytes: of a request."""

    workers: int = WORKERS
    part_bytes: int = PART_BYTES


def part_of(target: Path) -> Path:
    """The file that a download is written into."""
    return target.with_name(f".{target.name}.part")


def journal_of(target: Path) -> Path:
    """The file that says which ranges of it are written."""
    return target.with_name(f".{target.name}.parts")


def allocate(path: Path, size: int) -> None:
    """Give a file its length on the disk. Raises OSError: there is no room for it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def no_room(path: Path, needed: int, error: OSError) -> UserError:
    """What a user is told of a disk that took no more."""
    if error.errno not in _FULL:
        return UserError(
            f"{path} cannot be written: {os.strerror(error.errno or 0)}. See that you may write in "
            f"{path.parent}",
            code="file-unwritable",
        )
    stat = os.statvfs(path.parent)
    return UserError(
        f"{path.parent}: the disk is full: {needed:,} bytes are needed for {path.name.strip('.')}, "
        f"{stat.f_bavail * stat.f_frsize:,} are free. Make room, name a folder on another disk "
        "(dataset.cache=FOLDER), or let less lie there at a time (dataset.disk_budget=SIZE)",
        code="disk-space",
    )


def download(
    store: Store,
    piece: Piece,
    target: Path,
    options: DownloadOptions,
    reserve: Callable[[Path, int], None] = allocate,
    should_stop: Callable[[], bool] = lambda: False,
) -> int:
    """Make `target` of a piece, and return the bytes that were fetched for it.

    The caller sees that nobody else makes it. reserve: gives the partial file its length. should_stop:
    asked between requests.

    Raises:
        Stopped: as asked for.
        UserError: vanished, damaged, not answered for long, or no room on the disk; names which.
    """
    part = part_of(target)
    try:
        reserve(part, piece.file_bytes)
        with _Download(store, piece, target, options, should_stop) as running:
            running.run()
        for _ in range(_ATTEMPTS - 1):
            if piece.content_hash is None or file_content_hash(part) == piece.content_hash:
                break
            with _Download(store, piece, target, options, should_stop, anew=True) as running:
                running.run()
        else:
            if piece.content_hash is not None and file_content_hash(part) != piece.content_hash:
                raise UserError(
                    _damaged(store, piece, piece.blocks[0].start, piece.blocks[-1].stop),
                    code="object-damaged",
                )
        os.replace(part, target)
        atomic_files.fsync_folder(target.parent)
    except OSError as error:
        raise no_room(part, piece.file_bytes, error) from None
    with suppress(FileNotFoundError):
        journal_of(target).unlink()
    return running.fetched_bytes


class _Download:
    """The requests of one piece, and the two files that they are written into."""

    def __init__(
        self,
        store: Store,
        piece: Piece,
        target: Path,
        options: DownloadOptions,
        should_stop: Callable[[], bool],
        anew: bool = False,
    ) -> None:
        self._store, self._piece, self._options, self._should_stop = store, piece, options, should_stop
        self._target, self._anew = target, anew
        self._lock = threading.Lock()
        self.fetched_bytes = 0

    def __enter__(self) -> _Download:
        self._file = os.open(part_of(self._target), os.O_RDWR | os.O_CLOEXEC)
        journal = journal_of(self._target)
        self._done = set() if self._anew else _written(journal, self._head())
        self._journal = open(journal, "a" if self._done else "w", encoding="ascii")
        if not self._done:
            self._journal.write(self._head())
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        self._journal.close()

    def _head(self) -> str:
        """What the ranges of a journal belong to."""
        return f"{self._piece.checksum} {self._options.part_bytes}\n"

    def run(self) -> None:
        parts = [(block, list(_parts(block, self._options.part_bytes))) for block in self._piece.blocks]
        self._left = {block: sum(start not in self._done for start, _ in there) for block, there in parts}
        with ThreadPoolExecutor(self._options.workers, thread_name_prefix="download") as pool:
            # A block whose parts were all written before is verified like one that was just fetched.
            waiting = [pool.submit(self._verify, block) for block, left in self._left.items() if not left]
            waiting += [
                pool.submit(self._fetch, block, start, stop)
                for block, there in parts
                for start, stop in there
                if start not in self._done
            ]
            try:
                ended, _ = wait(waiting, return_when=FIRST_EXCEPTION)
                for future in ended:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        os.fsync(self._file)

    def _fetch(self, block: Block, start: int, stop: int) -> None:
        self._get(start, stop)
        with self._lock:
            self._left[block] -= 1
            is_last = self._left[block] == 0
        if is_last:
            self._verify(block)

    def _get(self, start: int, stop: int) -> None:
        if self._should_stop():
            raise Stopped
        data, size = self._store.read(self._piece.source, start, stop)
        if size != self._piece.source_bytes:
            word = "truncated" if size < self._piece.source_bytes else "another file"
            raise UserError(
                f"{self._store.address.of(self._piece.source)} has {size:,} bytes, its manifest says "
                f"{self._piece.source_bytes:,}: it is {word}. Upload the set again: python -m data_loading "
                f"mirror SOURCE {self._store.address.uri}",
                code="object-size",
            )
        at = self._piece.place(start)
        while data:
            written = os.pwrite(self._file, data, at)
            data, at = data[written:], at + written
        with self._lock:
            self.fetched_bytes += stop - start
            self._journal.write(f"{start}\n")
            self._journal.flush()

    def _verify(self, block: Block) -> None:
        """Read back what stands in the file: what is verified is what will be read."""
        if block.sha256 is None:
            self._write_header()
            return
        for _ in range(_ATTEMPTS):
            if self._sha256(block) == block.sha256:
                self._write_header()
                return
            log.warning(
                "%s: bytes %s to %s came wrong; fetching them again",
                self._store.address.of(self._piece.source), f"{block.start:,}", f"{block.stop:,}",
            )  # fmt: skip
            for start, stop in _parts(block, self._options.part_bytes):
                self._get(start, stop)
        if self._sha256(block) != block.sha256:
            raise UserError(
                _damaged(self._store, self._piece, block.start, block.stop), code="object-damaged"
            )

    def _write_header(self) -> None:
        if self._piece.header:
            os.pwrite(self._file, self._piece.header, 0)

    def _sha256(self, block: Block) -> str:
        digest, at, end = hashlib.sha256(), self._piece.place(block.start), self._piece.place(block.stop)
        while at < end:
            data = os.pread(self._file, min(_READ_BYTES, end - at), at)
            if not data:
                break
            digest.update(data)
            at += len(data)
        return digest.hexdigest()


def _parts(block: Block, part_bytes: int) -> Iterator[tuple[int, int]]:
    for start in range(block.start, block.stop, part_bytes):
        yield start, min(start + part_bytes, block.stop)


def _written(journal: Path, head: str) -> set[int]:
    """Starts of the ranges that a journal of this piece names, without a last line that was cut short."""
    try:
        text = journal.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return set()
    if not text.startswith(head):
        return set()
    lines = text[len(head) :].rpartition("\n")[0].split("\n")
    return {int(line) for line in lines if line.isdigit()}


def _damaged(store: Store, piece: Piece, start: int, stop: int) -> str:
    return (
        f"{store.address.of(piece.source)}: bytes {start:,} to {stop:,} do not match the checksum in the "
        f"manifest, fetched {_ATTEMPTS} times: the object is damaged. Upload the set again: python -m "
        f"data_loading mirror SOURCE {store.address.uri}"
    )
