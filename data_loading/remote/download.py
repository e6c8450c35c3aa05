"""Downloads: ranges in parallel, every block verified, a local file that is whole or absent.

A download is written into `.NAME.part`, which has its full length from the start: a full disk is found before
anything is downloaded. An interrupted download continues with the blocks that do not match their checksum.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from data_loading.remote.retry import Sleep
from data_loading.remote.store import Store, disk_error
from data_loading.remote.stored_files import Block, StoredFile
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

WORKERS = 8
PART_BYTES = 8 << 20
_ATTEMPTS = 4
"""Downloads of a block until its checksum matches."""
_READ_BYTES = 1 << 20
_CHECK_S = 0.2

T = TypeVar("T")
Task = TypeVar("Task")
Check = Callable[[], None]
"""Called several times a second during a download; an exception from it ends the download."""


class Stopped(Exception):
    """The download is not wanted any more; its file keeps what was downloaded."""


@dataclass(frozen=True)
class DownloadOptions:
    """Requests of a download."""

    workers: int = WORKERS
    """Requests at a time."""
    part_bytes: int = PART_BYTES
    """Bytes of a request."""


def part_of(target: Path) -> Path:
    """Path that a download of `target` is written into."""
    return target.with_name(f".{target.name}.part")


def allocate(path: Path, size: int) -> None:
    """Give a file its length on the disk. Raises OSError: no room."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def download(
    store: Store,
    file: StoredFile,
    target: Path,
    options: DownloadOptions,
    reserve: Callable[[Path, int], None] = allocate,
    check: Check = lambda: None,
) -> None:
    """Make `target`. The caller prevents that another process makes it at the same time.

    Args:
        reserve: gives the partial file its length.
        check: see `Check`.

    Raises:
        UserError: the object is missing or damaged, the store does not answer, or the disk is full.
    """
    part = part_of(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        blocks = damaged_blocks(part, file)
        reserve(part, file.file_bytes)
        descriptor = os.open(part, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, file.header, 0)
            read_blocks(
                store, file, blocks, options,
                lambda start, data: _write(descriptor, data, file.offset(start)), check,
            )  # fmt: skip
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(part, target)
        atomic_files.fsync_folder(target.parent)
        target.with_name(f".{target.name}.parts").unlink(missing_ok=True)  # of an earlier version
    except OSError as error:
        raise disk_error(part, file.file_bytes, error) from None


def damaged_blocks(path: Path, file: StoredFile) -> Sequence[Block]:
    """Blocks that a local file does not hold as they should be; all of them if it does not exist."""
    if not path.exists():
        return file.blocks
    damaged = []
    with open(path, "rb", buffering=0) as opened:
        for block in file.blocks:
            digest, left = block.hasher(), block.stop - block.start
            opened.seek(file.offset(block.start))
            while left and (data := opened.read(min(left, _READ_BYTES))):
                digest.update(data)
                left -= len(data)
            if digest.hexdigest() != block.checksum:
                damaged.append(block)
    return damaged


def is_whole(path: Path, file: StoredFile) -> bool:
    """Whether a local file has the right size, header and blocks. Raises OSError."""
    with open(path, "rb") as opened:
        has_header = opened.read(len(file.header)) == file.header
    return has_header and path.stat().st_size == file.file_bytes and not damaged_blocks(path, file)


def read_blocks(
    store: Store,
    file: StoredFile,
    blocks: Iterable[Block],
    options: DownloadOptions,
    sink: Callable[[int, Any], None],
    check: Check = lambda: None,
    attempts: int = _ATTEMPTS,
) -> None:
    """Read blocks in their order and verify them; a damaged one is read again.

    Args:
        sink: called with (position in the object, bytes) of each part in order; of a block that is read again
            with all of its parts again. The bytes are right when this returns.

    Raises:
        UserError: see `download`.
    """
    step = options.part_bytes

    def parts_of(block: Block) -> list[tuple[int, int]]:
        return [(start, min(start + step, block.stop)) for start in range(block.start, block.stop, step)]

    def read(part: tuple[int, int], sleep: Sleep) -> Any:
        data, size = store.read(file.source, *part, sleep)
        if size != file.source_bytes:
            kind = "truncated" if size < file.source_bytes else "another file"
            raise UserError(
                f"{store.address.of(file.source)} has {size:,} bytes, its manifest says "
                f"{file.source_bytes:,}: it is {kind}. {_upload_again(store)}",
                code="object-size",
            )
        return data

    blocks = list(blocks)
    every = [part for block in blocks for part in parts_of(block)]
    with closing(_in_order(read, every, options.workers, check)) as stream:
        for block in blocks:
            source, parts = stream, parts_of(block)
            for attempt in range(1, attempts + 1):
                digest = block.hasher()
                for (start, _), data in zip(parts, source, strict=False):
                    digest.update(data)
                    sink(start, data)
                if digest.hexdigest() == block.checksum:
                    break
                place = f"{store.address.of(file.source)}: bytes {block.start:,} to {block.stop:,}"
                if attempt == attempts:
                    raise UserError(
                        f"{place} do not match the checksum in the manifest, fetched {attempts} times: the "
                        f"object is damaged. {_upload_again(store)}",
                        code="object-damaged",
                    )
                log.warning("%s are damaged; downloading them again", place)
                source = _in_order(read, parts, options.workers, check)


def _upload_again(store: Store) -> str:
    return f"Upload the set again: python -m data_loading mirror SOURCE {store.address.uri}"


def _in_order(
    call: Callable[[Task, Sleep], T], tasks: Sequence[Task], workers: int, check: Check
) -> Generator[T, None, None]:
    """Results of `call(task, sleep)` in the order of the tasks; at most `workers` are under way or wait here.

    The threads are daemons: an exit of the process does not wait for a request that hangs.
    """
    waiting: SimpleQueue[tuple[Future[T], Task] | None] = SimpleQueue()
    is_over = threading.Event()

    def sleep(seconds: float) -> None:
        if is_over.wait(seconds):
            raise Stopped

    def work() -> None:
        while (taken := waiting.get()) is not None and not is_over.is_set():
            future, task = taken
            try:
                future.set_result(call(task, sleep))
            except BaseException as error:
                future.set_exception(error)
            del future, task, taken

    def result(future: Future[T]) -> T:
        while not wait([future], _CHECK_S).done:
            check()
        check()
        return future.result()

    count = min(workers, len(tasks))
    for _ in range(count):
        threading.Thread(target=work, name="download", daemon=True).start()
    ahead: deque[Future[T]] = deque()
    try:
        for task in tasks:
            if len(ahead) == count:
                yield result(ahead.popleft())
            ahead.append(Future())
            waiting.put((ahead[-1], task))
        while ahead:
            yield result(ahead.popleft())
    finally:
        is_over.set()
        for _ in range(count):
            waiting.put(None)


def _write(descriptor: int, data: Any, offset: int) -> None:
    view = memoryview(data)
    while len(view):
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
