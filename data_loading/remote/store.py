"""Folders of objects that are read in ranges: in S3 or R2, on a web server, or on a disk."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_loading.remote.address import Address, no_keys, store_options
from data_loading.remote.retry import PATIENCE_S, Passing, Sleep, Vanished, brief, persistently
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.extras import check_installed

CONNECT_S, REQUEST_S = 3, 60
_MARK = "highwater-checksum"
_WRITE_RETRIES = 8
_CHUNK_BYTES = 8 << 20
_MOST_CHUNKS = 9_000
"""A store accepts 10,000 parts of an object."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OUT_OF_RANGE = "416 Range Not Satisfiable"
Read = tuple[Any, int]
"""Bytes as a buffer (`len`, `memoryview`), without a copy, and the size of the object."""


class ObjectStore:
    """Store read and written with obstore, which does not work in a process forked after its first use."""

    def __init__(self, address: Address, patience_s: float = PATIENCE_S) -> None:
        self.address, self._patience_s, self._process = address, patience_s, os.getpid()
        try:
            self._reading, self._writing = (_opened(address, retries) for retries in (0, _WRITE_RETRIES))
        except UserError:
            raise
        except Exception as error:  # obstore has no common class for options that it refuses
            first = str(error).partition("\n")[0]
            is_half = address.scheme == "s3" and "Missing" in first  # one of two keys is set
            reason = no_keys() if is_half else f"{first}. Look at {address.variables}"
            raise UserError(f"{address.uri}: {reason}", code="store-options") from None

    def read(self, name: str, start: int = 0, stop: int | None = None, sleep: Sleep = time.sleep) -> Read:
        """Read the bytes of an object from start to stop. sleep: see `persistently`.

        Raises:
            Vanished: the object does not exist.
            UserError: it cannot be read.
        """
        import obstore
        from obstore.exceptions import BaseError

        def once() -> Read:
            options: Any = {"range": (start, stop)} if stop is not None else {}
            try:
                found = obstore.get(self._reading, name, options=options)
            except BaseError as error:
                if _OUT_OF_RANGE not in str(error):
                    raise
                return b"", int(obstore.head(self._reading, name)["size"])  # the caller compares the size
            size, data = int(found.meta["size"]), found.bytes()
            if len(data) != min(size if stop is None else stop, size) - start:
                raise Passing(f"{len(data):,} bytes came for {start:,} to {stop or size:,} of {size:,}")
            return data, size

        return self._persistently(name, once, sleep)

    def find(self, name: str) -> tuple[int, str | None] | None:
        """Return (size, mark that it was written with) of an object, None if it does not exist."""
        import obstore

        def once() -> tuple[int, str | None]:
            found = obstore.get(self._reading, name, options={"head": True})
            marks: dict[Any, Any] = dict(found.attributes)
            return int(found.meta["size"]), marks.get(_MARK)

        try:
            return self._persistently(name, once)
        except Vanished:
            return None

    def write(self, name: str, content: Iterator[bytes], size: int, mark: str) -> None:
        """Make an object, which appears when it is whole. mark: kept with it, see `find`."""
        import obstore
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        what = self.address.of(name)
        if self.address.scheme not in ("s3", "r2"):
            raise UserError(
                f"{self.address.uri}: a web server is read only. Copy to s3://, r2:// or a folder",
                code="store-read-only",
            )
        options: Any = {
            "attributes": {_MARK: mark}, "use_multipart": True,
            "chunk_size": max(_CHUNK_BYTES, size // _MOST_CHUNKS + 1),
        }  # fmt: skip
        try:
            obstore.put(self._writing, name, content, **options)
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise UserError(
                f"{what} cannot be written: no permission ({brief(error)}). Look at {self.address.variables}",
                code="store-refused",
            ) from None
        except (BaseError, OSError) as error:
            raise UserError(
                f"{what} could not be written ({brief(error)}). Look at the network, and at "
                f"{self.address.variables}; the same command continues with what is missing",
                code="store-unreachable",
            ) from None

    def _persistently(self, name: str, once: Callable[[], Any], sleep: Sleep = time.sleep) -> Any:
        if os.getpid() != self._process:  # obstore would wait for ever: its threads are not in a fork
            raise UserError(
                f"{self.address.of(name)} cannot be downloaded by a forked process. Read without worker "
                "processes (num_workers=0), give a DataLoader multiprocessing_context='spawn', or copy the "
                f"set to a disk first: python -m data_loading mirror {self.address.uri} FOLDER",
                code="download-in-fork",
            )
        return persistently(self.address.of(name), self.address.variables, once, self._patience_s, sleep)


class FolderStore:
    """A folder on a disk, with the methods of `ObjectStore`."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def path(self, name: str) -> Path:
        """Return the path of an object."""
        return Path(self.address.root) / name

    def read(self, name: str, start: int = 0, stop: int | None = None, sleep: Sleep = time.sleep) -> Read:
        path = self.path(name)
        try:
            with open(path, "rb") as file:
                file.seek(start)
                return file.read(-1 if stop is None else stop - start), os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            raise Vanished(f"{path}: there is no such file") from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}", code="file-unreadable") from None

    def find(self, name: str) -> tuple[int, str | None] | None:
        path = self.path(name)
        return (path.stat().st_size, None) if path.is_file() else None

    def write(self, name: str, content: Iterator[bytes], size: int, mark: str) -> None:
        path = self.path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_files.atomic_file(path) as file:
                file.writelines(content)
        except OSError as error:
            raise disk_error(path, size, error) from None


Store = ObjectStore | FolderStore


def open_store(address: Address, patience_s: float = PATIENCE_S) -> Store:
    """Open the store of an address. Raises UserError: the environment lacks what it needs."""
    if not address.scheme:
        return FolderStore(address)
    check_installed("obstore", "remote", address.uri)
    return ObjectStore(address, patience_s)


def _opened(address: Address, retries: int) -> Any:
    from datetime import timedelta

    from obstore.store import HTTPStore, S3Store

    is_web = address.scheme in ("https", "http")
    options = {} if is_web else store_options(address.scheme)
    url = f"{address.scheme}://" if is_web else str(options.get("endpoint", ""))
    common: dict[str, Any] = {
        "client_options": {
            "connect_timeout": timedelta(seconds=CONNECT_S), "timeout": timedelta(seconds=REQUEST_S),
            "allow_http": url.startswith("http://"),
        },
        "retry_config": {"max_retries": retries, "retry_timeout": timedelta(seconds=REQUEST_S)},
    }  # fmt: skip
    if is_web:
        return HTTPStore.from_url(url + "/".join(filter(None, [address.root, address.path])), **common)
    return S3Store(address.root, prefix=address.path or None, **options, **common)


def disk_error(path: Path, needed: int, error: OSError) -> UserError:
    """Return the error for a file that cannot be written; names the bytes that are needed and free."""
    if error.errno not in _FULL:
        return UserError(
            f"{path} cannot be written: {os.strerror(error.errno or 0)}. Check that you have the right to "
            f"write in {path.parent}",
            code="file-unwritable",
        )
    stat = os.statvfs(path.parent)
    return UserError(
        f"{path.parent}: the disk is full: {needed:,} bytes are needed for {path.name.strip('.')}, "
        f"{stat.f_bavail * stat.f_frsize:,} are free. Make room, name a folder on another disk "
        "(dataset.cache=FOLDER), or keep less at a time (dataset.disk_budget=SIZE)",
        code="disk-space",
    )
