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
from typing import Any

from data_loading.remote.retry import Sleep
from data_loading.remote.store import Store, disk_error
from data_loading.remote.stored_files import StoredBlock, StoredFile
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

WORKERS = 8
PART_BYTES = 8 << 20
_ATTEMPTS = 4
"""Downloads of a block until its checksum matches."""
_READ_BYTES = 1 << 20
CHECK_S = 0.2

Bytes = tuple[int, int]
"""Start and stop of a request."""
Check = Callable[[], None]
"""Called several times a second during a download; an exception from it ends the download."""


class Stopped(Exception):
    """The download is not wanted any more; its file keeps what was downloaded."""


@dataclass(frozen=True)
class RemoteOptions:
    """Folder for files of stored sets on this machine, and the requests for them."""

    cache: Path | None = None
    """Folder of downloaded files; None: $XDG_CACHE_HOME/highwater or ~/.cache/highwater."""
    budget_bytes: int | None = None
    """Limit for all that is in the folder; None: everything is kept."""
    workers: int = WORKERS
    """Requests at a time."""
    part_bytes: int = PART_BYTES
    """Bytes of a request."""

    def __post_init__(self) -> None:
        """Raises UserError: a value is not a whole number of at least 1."""
        for name in ("budget_bytes", "workers", "part_bytes"):
            value = getattr(self, name)
            if (type(value) is not int or value < 1) and (value, name) != (None, "budget_bytes"):
                raise UserError(
                    f"{name} {value!r}: expected a whole number, at least 1", code="count-invalid"
                )


def part_of(target: Path) -> Path:
    """Return the path that a download of `target` is written into."""
    return target.with_name(f".{target.name}.part")


def allocate(path: Path, size: int) -> None:
    """Give a file its length on the disk. Raises OSError: no room."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(descriptor, size)
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def download(
    store: Store,
    file: StoredFile,
    target: Path,
    options: RemoteOptions,
    reserve: Callable[[Path, int], None] = allocate,
    check: Check = lambda: None,
) -> None:
    """Download a file, or what an earlier attempt left of it.

    Args:
        reserve: gives the unfinished file its length.
        check: see `Check`.

    Raises:
        UserError: the object is missing or damaged, the store does not answer, or the disk is full.
    """
    part = part_of(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        blocks = damaged_blocks(part, file)
        reserve(part, file.file_bytes)
        with open(part, "r+b", buffering=0) as opened:

            def keep(start: int, data: Any) -> None:
                opened.seek(file.offset(start))
                _write(opened, data)

            _write(opened, file.header)
            read_blocks(store, file, blocks, options, keep, check)
            os.fsync(opened.fileno())
        os.replace(part, target)
        atomic_files.fsync_folder(target.parent)
        target.with_name(f".{target.name}.parts").unlink(missing_ok=True)  # of an earlier version
    except OSError as error:
        raise disk_error(part, file.file_bytes, error) from None


def _write(opened: Any, data: Any) -> None:
    view = memoryview(data)
    while len(view):
        view = view[opened.write(view) :]


def damaged_blocks(path: Path, file: StoredFile) -> Sequence[StoredBlock]:
    """Return the blocks that a local file does not hold as they should be; all if it does not exist."""
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
    """Return whether a local file has the right size, header and blocks. Raises OSError."""
    with open(path, "rb") as opened:
        has_header = opened.read(len(file.header)) == file.header
    return has_header and path.stat().st_size == file.file_bytes and not damaged_blocks(path, file)


def read_blocks(
    store: Store,
    file: StoredFile,
    blocks: Iterable[StoredBlock],
    options: RemoteOptions,
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
    step, blocks = options.part_bytes, list(blocks)
    again = f"Upload the set again: python -m data_loading mirror SOURCE {store.address.uri}"

    def parts_of(block: StoredBlock) -> list[Bytes]:
        return [(start, min(start + step, block.stop)) for start in range(block.start, block.stop, step)]

    def read(part: Bytes, sleep: Sleep) -> Any:
        data, size = store.read(file.source, *part, sleep)
        if size != file.source_bytes:
            kind = "truncated" if size < file.source_bytes else "another file"
            raise UserError(
                f"{store.address.of(file.source)} has {size:,} bytes, its manifest says "
                f"{file.source_bytes:,}: it is {kind}. {again}",
                code="object-size",
            )
        return data

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
                        f"object is damaged. {again}",
                        code="object-damaged",
                    )
                log.warning("%s are damaged; downloading them again", place)
                source = _in_order(read, parts, options.workers, check)


def _in_order(
    call: Callable[[Bytes, Sleep], Any], tasks: Sequence[Bytes], workers: int, check: Check
) -> Generator[Any, None, None]:
    """Results of `call(task, sleep)` in the order of the tasks; at most `workers` are under way or wait here.

    The threads are daemons: an exit of the process does not wait for a request that hangs.
    """
    results: deque[Future[Any]] = deque(Future() for _ in tasks)
    waiting = deque(zip(tasks, results, strict=True))
    free, is_over = threading.Semaphore(workers), threading.Event()

    def sleep(seconds: float) -> None:
        if is_over.wait(seconds):
            raise Stopped

    def work() -> None:
        while free.acquire() and waiting:
            try:
                task, future = waiting.popleft()
            except IndexError:  # another thread took it
                return
            try:
                future.set_result(call(task, sleep))
            except BaseException as error:
                future.set_exception(error)
            del future

    threads = min(workers, len(tasks))
    for _ in range(threads):
        threading.Thread(target=work, name="download", daemon=True).start()
    try:
        while results:
            while not wait([results[0]], CHECK_S).done:
                check()
            check()
            yield results.popleft().result()
            free.release()
    finally:
        is_over.set()
        waiting.clear()
        free.release(threads)
