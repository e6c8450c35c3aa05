"""A folder of objects, read in ranges: in S3 or R2, on a web server, or on a disk."""

from __future__ import annotations

import abc
import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_loading.remote.address import Address
from data_loading.remote.credentials import R2_ENDPOINT, R2_VARIABLES, S3_VARIABLES, r2_options, s3_options
from data_loading.remote.retry import PATIENCE_S, Passing, Vanished, brief, persistently
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.extras import check_installed

CONNECT_S, REQUEST_S = 3, 60
_MARK = "highwater-checksum"
_WRITE_RETRIES = 8
_CHUNK_BYTES = 8 << 20
_OUT_OF_RANGE = "416 Range Not Satisfiable"


class Store(abc.ABC):
    """Objects beside a set, by their names relative to the folder that holds it."""

    def __init__(self, address: Address, patience_s: float = PATIENCE_S) -> None:
        self.address, self.patience_s = address, patience_s

    @abc.abstractmethod
    def read(self, name: str, start: int = 0, stop: int | None = None) -> tuple[bytes, int]:
        """(bytes from start to stop, size of the object). Raises Vanished, UserError."""

    @abc.abstractmethod
    def find(self, name: str) -> tuple[int, str | None] | None:
        """(size, mark it was written with) of an object; None where there is none."""

    @abc.abstractmethod
    def names(self, folder: str, usual: Iterable[str]) -> list[str]:
        """Names of what a folder holds; where it cannot be asked, the usual ones that there are."""

    @abc.abstractmethod
    def write(self, name: str, content: Iterator[bytes], size: int, mark: str) -> None:
        """Make an object, which is there when it is whole. mark: kept with it, see `find`."""


class ObjectStore(Store):
    """By obstore. A process that was forked must not use one that its parent used."""

    def __init__(self, address: Address, patience_s: float = PATIENCE_S) -> None:
        super().__init__(address, patience_s)
        self._advice = {"s3": S3_VARIABLES, "r2": R2_VARIABLES}.get(address.scheme, "the address")
        try:
            self._reading = _opened(address, retries=0)
            self._writing = (
                _opened(address, retries=_WRITE_RETRIES) if address.scheme in ("s3", "r2") else None
            )
        except UserError:
            raise
        except Exception as error:  # obstore has no common class for options that it refuses
            raise UserError(
                f"{address.uri}: {str(error).partition(chr(10))[0]}. Look at {self._advice}",
                code="store-options",
            ) from None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> tuple[bytes, int]:
        import obstore
        from obstore.exceptions import BaseError

        def once() -> tuple[bytes, int]:
            options: Any = {"range": (start, stop)} if stop is not None else {}
            try:
                found = obstore.get(self._reading, name, options=options)
            except BaseError as error:
                if _OUT_OF_RANGE not in str(error):
                    raise
                # It ends before the range: whoever asked compares its size.
                return b"", int(obstore.head(self._reading, name)["size"])
            size = int(found.meta["size"])
            data = bytes(found.bytes())
            if len(data) != min(size if stop is None else stop, size) - start:
                raise Passing(f"{len(data):,} bytes came for {start:,} to {stop or size:,} of {size:,}")
            return data, size

        return persistently(self.address.of(name), self._advice, once, self.patience_s)

    def find(self, name: str) -> tuple[int, str | None] | None:
        import obstore

        def once() -> tuple[int, str | None]:
            found = obstore.get(self._reading, name, options={"head": True})
            marks: dict[Any, Any] = dict(found.attributes)
            return int(found.meta["size"]), marks.get(_MARK)

        try:
            return persistently(self.address.of(name), self._advice, once, self.patience_s)
        except Vanished:
            return None

    def names(self, folder: str, usual: Iterable[str]) -> list[str]:
        import obstore

        if self._writing is None:  # a web server lists nothing that a program could read
            return [name for name in usual if self.find(f"{folder}/{name}")]

        def once() -> list[str]:
            found = obstore.list_with_delimiter(self._reading, folder)
            return [str(entry["path"]).rpartition("/")[2] for entry in found["objects"]]

        return sorted(persistently(self.address.of(folder), self._advice, once, self.patience_s))

    def write(self, name: str, content: Iterator[bytes], size: int, mark: str) -> None:
        import obstore
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        if self._writing is None:
            raise UserError(
                f"{self.address.uri}: a web server is read only. Copy to s3://, r2:// or a folder",
                code="store-read-only",
            )
        failure: list[BaseException] = []

        def watched() -> Iterator[bytes]:
            try:
                yield from content
            except BaseException as error:
                failure.append(error)
                raise

        attributes: Any = {_MARK: mark}
        try:
            # A store takes 10,000 parts of an object.
            chunk = max(_CHUNK_BYTES, size // 9_000 + 1)
            content_of = watched()
            obstore.put(
                self._writing, name, content_of, attributes=attributes, use_multipart=True, chunk_size=chunk
            )
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise UserError(
                f"{self.address.of(name)} may not be written ({brief(error)}). Look at {self._advice}",
                code="store-refused",
            ) from None
        except (BaseError, OSError) as error:
            if failure:
                raise failure[0] from None
            raise UserError(
                f"{self.address.of(name)} could not be written ({brief(error)}). Look at the network, and "
                f"at {self._advice}; the same command goes on with what is missing",
                code="store-unreachable",
            ) from None


class FolderStore(Store):
    """A folder on a disk."""

    def read(self, name: str, start: int = 0, stop: int | None = None) -> tuple[bytes, int]:
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(start)
                return file.read(-1 if stop is None else stop - start), size
        except FileNotFoundError:
            raise Vanished(f"{path}: there is no such file") from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}", code="file-unreadable") from None

    def find(self, name: str) -> tuple[int, str | None] | None:
        path = self._path(name)
        return (path.stat().st_size, None) if path.is_file() else None

    def names(self, folder: str, usual: Iterable[str]) -> list[str]:
        found = self._path(folder)
        return sorted(path.name for path in found.iterdir() if path.is_file()) if found.is_dir() else []

    def write(self, name: str, content: Iterator[bytes], size: int, mark: str) -> None:
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_files.atomic_file(path) as file:
                for data in content:
                    file.write(data)
        except OSError as error:
            raise UserError(_unwritable(path, error), code="file-unwritable") from None

    def _path(self, name: str) -> Path:
        return Path(self.address.root) / name


def open_store(address: Address, patience_s: float = PATIENCE_S) -> Store:
    """The store of this address. Raises UserError: it cannot be had with what the environment says."""
    if not address.scheme:
        return FolderStore(address, patience_s)
    check_installed("obstore", "remote", address.uri)
    return ObjectStore(address, patience_s)


def _unwritable(path: Path, error: OSError) -> str:
    told = f"{path} cannot be written: {os.strerror(error.errno or 0)}. "
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return told + f"Make room on the disk of {path.parent}; the same command goes on with what is missing"
    return told + f"See that you may write in {path.parent}"


def _opened(address: Address, retries: int) -> Any:
    from datetime import timedelta

    from obstore.store import HTTPStore, S3Store

    common: dict[str, Any] = {
        "client_options": {
            "connect_timeout": timedelta(seconds=CONNECT_S), "timeout": timedelta(seconds=REQUEST_S),
        },
        "retry_config": {"max_retries": retries, "retry_timeout": timedelta(seconds=REQUEST_S)},
    }  # fmt: skip
    if address.scheme in ("https", "http"):
        common["client_options"]["allow_http"] = address.scheme == "http"
        url = f"{address.scheme}://" + "/".join(filter(None, [address.root, address.path]))
        return HTTPStore.from_url(url, **common)
    options = r2_options() if address.scheme == "r2" else s3_options()
    if (endpoint := options.get("endpoint")) is not None:
        _check_endpoint(endpoint, address)
    common["client_options"]["allow_http"] = str(options.get("endpoint", "")).startswith("http://")
    return S3Store(address.root, prefix=address.path or None, **options, **common)


def _check_endpoint(url: str, address: Address) -> None:
    """The library panics at one that is no URL. Raises UserError."""
    if not re.fullmatch(r"https?://[^\s/]+\S*", url):
        name = R2_ENDPOINT if address.scheme == "r2" else "AWS_ENDPOINT_URL"
        raise UserError(
            f"{address.uri}: {name}={url} is no URL: expected one such as http://localhost:9000 or https://HOST",
            code="endpoint-invalid",
        )
