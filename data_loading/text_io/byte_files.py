"""Bytes of a file, decompressed if it is compressed, with their content hash, from any byte on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from data_loading.text_io.compression import (
    Compression,
    compression_of,
    decompressed,
    is_cut_short,
    looks_damaged,
)
from data_loading.text_io.content_hash import ContentHash
from experiment_utils.errors import UserError
from memory.files.file_kinds import HEAD_BYTES

READ_BYTES = 1 << 20
SAMPLE_BYTES = 360 << 10
_BITE_BYTES = 512


class ByteStream(Protocol):
    """Bytes of a text.

    Attributes:
        argument: What a user types for it.
        name: Name in messages about bytes that `read` returned.
        total_bytes: Size on disk; None if it is not known.
        done_bytes: How much of that `read` has read so far.
        can_continue: False if the bytes can be read only once.
        starts: Bytes from which `at` can read; None: any.
    """

    argument: str
    total_bytes: int | None
    done_bytes: int
    can_continue: bool
    starts: Sequence[int] | None

    @property
    def name(self) -> str: ...

    def read(self, first: int = 0, content: ContentHash | None = None) -> Iterator[tuple[bytes, int]]:
        """Yield (bytes, offset) from the byte `first` on, in the same parts whatever `first` is."""
        ...

    def at(self, start: int, length: int) -> tuple[bytes, int]:
        """About `length` bytes from `start` on, fewer at the end, and their size on disk."""
        ...

    def state(self) -> Any: ...

    def facts(self) -> dict[str, Any]: ...


@contextmanager
def read_errors(name: str | Path) -> Iterator[None]:
    """Turn an OSError into a UserError that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}", code="file-unreadable") from error


class ByteFile:
    """A file on disk. Its compression is recognized by content, whatever its name.

    Raises:
        UserError: it is missing, empty, cut short, damaged or no plain file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.argument = path, str(path)
        self.done_bytes, self.can_continue = 0, True
        self._facts: dict[str, Any] = {}
        try:
            self._resolved = str(path.resolve())
            check_name(self._resolved)
        except RuntimeError:  # what pathlib raises before Python 3.13
            raise UserError(
                f"{path} is a link that leads back to itself: remove it (rm)", code="input-link-loop"
            ) from None
        try:
            with read_errors(path):
                self._stat = path.stat()
                self._check_kind()
                with open(path, "rb", buffering=0) as file:
                    self.head = file.read(HEAD_BYTES)
        except UserError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise UserError(f"{path}: no such text file", code="input-missing") from None
            raise
        self.total_bytes: int | None = self._stat.st_size
        self.compression = compression_of(self.head)
        self.starts: Sequence[int] | None = None if self.compression is None else (0,)
        self._check_head()

    def _check_kind(self) -> None:
        if self.path.is_dir():
            raise UserError(f"{self.path} is a folder; expected a text file", code="input-is-folder")
        if not self.path.is_file():
            raise UserError(
                f"{self.path} is a pipe or a device; expected a text file, which is read twice. Output of a "
                "program is taken from standard input: PROGRAM | python pretokenize_dataset.py -",
                code="input-is-pipe",
            )

    def _check_head(self) -> None:
        path, suffix = self.path, self.path.suffix.lower()
        if not self.head:
            raise UserError(f"{path} is empty: there is nothing to tokenize", code="input-empty")
        if is_cut_short(self.head, suffix):
            raise UserError(
                f"{path} is cut short: it ends after {self.total_bytes} bytes. Copy or download it again",
                code="input-cut-short",
            )
        if self.compression is None and looks_damaged(self.head, suffix):
            raise UserError(
                f"{path} is compressed by its name, but its first bytes {self.head[:6]!r} are neither of a "
                "compressed file nor of a text: it is damaged. Copy or download it again, or rename a text "
                "that is not compressed",
                code="input-not-compressed",
            )

    @property
    def name(self) -> str:
        return str(self.path) if self.compression is None else f"{self.path} (decompressed)"

    def read(self, first: int = 0, content: ContentHash | None = None) -> Iterator[tuple[bytes, int]]:
        """Yield (bytes, offset) from `first` on. Parts end at multiples of READ_BYTES.

        Args:
            first: Byte of the (decompressed) text.
            content: Gets all bytes that it does not know yet. If the iterator is closed before the end,
                `facts` is about the bytes up to there.

        Raises:
            UserError: the file cannot be read, is damaged, or was changed since it was opened.
        """
        content = content or ContentHash()
        offset, is_whole = min(first, content.known_bytes), False
        try:
            with read_errors(self.path), open(self.path, "rb", buffering=0) as file:
                if self.compression is None:
                    file.seek(offset)
                    content.skip_to(offset)
                    parts = _aligned(file.read, offset)
                else:
                    offset = 0
                    parts = self._decompressed(file.read, self.compression)
                for data in parts:
                    content.update(data)
                    self.done_bytes = file.tell()
                    unread = data[max(0, first - offset) :]
                    offset += len(data)
                    if unread:
                        yield unread, offset - len(unread)
                self._check_unchanged(os.fstat(file.fileno()))
            is_whole = True
        finally:
            self._note(content, offset, is_whole)

    def _decompressed(self, read: Callable[[int], bytes], compression: Compression) -> Iterator[bytes]:
        try:
            yield from regrouped(decompressed(read, compression, str(self.path), READ_BYTES))
        except UserError:
            self._check_unchanged(self.path.stat())  # a file that is still being written looks damaged
            raise

    def _check_unchanged(self, now: os.stat_result) -> None:
        if (now.st_size, now.st_mtime_ns) != (self._stat.st_size, self._stat.st_mtime_ns):
            raise UserError(
                f"{self.path} was changed while it was read. Start again when it is complete",
                code="changed-while-read",
            )

    def _note(self, content: ContentHash, offset: int, is_whole: bool) -> None:
        self._facts = {"content_hash": content.hexdigest()}
        if self.compression is not None:
            self._facts["compression"] = self.compression.name
        if not is_whole and (self.compression is not None or offset < self._stat.st_size):
            self._facts["read_bytes"] = offset
        elif self.compression is not None:
            self._facts["text_bytes"] = offset

    def at(self, start: int, length: int) -> tuple[bytes, int]:
        with read_errors(self.path), open(self.path, "rb", buffering=0) as file:
            if self.compression is None:
                data = os.pread(file.fileno(), length, start)
                return data, len(data)
            found: list[bytes] = []
            # Small reads and large pieces, so that the bytes read are those that the text is made from.
            pieces = decompressed(
                lambda size: file.read(min(size, _BITE_BYTES)), self.compression, str(self.path), length
            )
            for piece in pieces:
                found.append(piece)
                if sum(map(len, found)) >= length:
                    break
            return b"".join(found), file.tell()

    def state(self) -> Any:
        return [self._resolved, self._stat.st_size, self._stat.st_mtime_ns]

    def facts(self) -> dict[str, Any]:
        """Facts of what was read. `read_bytes`: if that is not all. `text_bytes`: of a compressed file."""
        return {
            "path": self._resolved,
            "bytes": self._stat.st_size,
            "mtime_ns": self._stat.st_mtime_ns,
            **self._facts,
        }


def check_name(name: str) -> None:
    """Raise UserError unless a file name is UTF-8, in which manifests name files."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{os.fsencode(name)!r} is not UTF-8, and manifests name files in UTF-8: rename it (mv)",
            code="name-not-utf8",
        ) from None


def _aligned(read: Callable[[int], bytes], offset: int) -> Iterator[bytes]:
    """The rest of a file, in parts that end at multiples of READ_BYTES."""
    while data := read(READ_BYTES - offset % READ_BYTES):
        offset += len(data)
        yield data


def regrouped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in parts of READ_BYTES, the last one shorter."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        while size + len(piece) >= READ_BYTES:
            taken = READ_BYTES - size
            yield b"".join([*parts, piece[:taken]])
            piece, parts, size = piece[taken:], [], 0
        if piece:
            parts.append(piece)
            size += len(piece)
    if parts:
        yield b"".join(parts)


def content_hash_of(path: Path, read_bytes: int | None = None) -> str:
    """Content hash of a file's text, decompressed; of its first `read_bytes` only if given.

    Raises:
        UserError: it cannot be read.
    """
    content = ContentHash()
    for data, offset in ByteFile(path).read(0, content):
        if read_bytes is not None and offset + len(data) >= read_bytes:
            break
    return content.hexdigest()
