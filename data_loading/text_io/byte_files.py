"""The bytes of a file, decompressed where it is compressed, with their content hash, from any byte on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
from memory.file_kinds import HEAD_BYTES

READ_BYTES = 1 << 20
SAMPLE_BYTES = 360 << 10
_BITE_BYTES = 512


class ByteStream(Protocol):
    """Where the bytes of a text come from. `name` is for messages about bytes that `read` gave."""

    @property
    def argument(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def total_bytes(self) -> int | None: ...

    @property
    def done_bytes(self) -> int: ...

    @property
    def can_continue(self) -> bool: ...

    def read(self, first: int = 0, content: ContentHash | None = None) -> Iterator[tuple[bytes, int]]:
        """(bytes, offset) from the byte `first` on, the parts the same whatever `first` is."""
        ...

    def parts(self) -> list[tuple[bytes, int]]:
        """(bytes, offset) of start, middle and end, or of the start alone, for samples."""
        ...

    @property
    def starts(self) -> Sequence[int] | None:
        """From where `at` can read; None: from any byte."""
        ...

    def at(self, start: int, length: int) -> tuple[bytes, int]:
        """(about so many bytes from there, how many they are on disk); all there are where fewer follow."""
        ...

    def state(self) -> Any: ...

    def facts(self) -> dict[str, Any]: ...


@dataclass
class ByteFile:
    """A file on disk. `compression`: by content, whatever the name says."""

    path: Path
    total_bytes: int = field(init=False)
    done_bytes: int = field(init=False, default=0)
    can_continue: bool = field(init=False, default=True)
    compression: Compression | None = field(init=False)
    _facts: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self._resolved = str(self.path.resolve())
            check_name(self._resolved)
        except RuntimeError:  # what pathlib makes of it before Python 3.13
            raise UserError(
                f"{self.path} is a link that leads back to itself: remove it (rm)", code="input-link-loop"
            ) from None
        try:
            self._stat = self.path.stat()
            if self.path.is_dir():
                raise UserError(f"{self.path} is a folder; expected a text file", code="input-is-folder")
            if not self.path.is_file():
                raise UserError(
                    f"{self.path} is a pipe or a device; expected a text file, which is read twice. What a "
                    "program writes is taken from standard input: PROGRAM | python pretokenize_dataset.py -",
                    code="input-is-pipe",
                )
            with open(self.path, "rb", buffering=0) as file:
                self.head = file.read(HEAD_BYTES)
        except FileNotFoundError:
            raise UserError(f"{self.path}: no such text file", code="input-missing") from None
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be read: {error.strerror}", code="file-unreadable"
            ) from error
        self.total_bytes = self._stat.st_size
        self.compression = compression_of(self.head)
        if self.total_bytes == 0:
            raise UserError(f"{self.path} is empty: there is nothing to tokenize", code="input-empty")
        if is_cut_short(self.head, self.path.suffix.lower()):
            raise UserError(
                f"{self.path} is cut short: it ends after {self.total_bytes} bytes. Copy or download it "
                "again",
                code="input-cut-short",
            )
        if self.compression is None and looks_damaged(self.head, self.path.suffix.lower()):
            raise UserError(
                f"{self.path} is compressed by its name, but begins with {self.head[:6]!r}, neither so nor "
                "as a text: it is damaged. Copy or download it again; a text that is not compressed needs "
                "another name",
                code="input-not-compressed",
            )

    @property
    def argument(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return str(self.path) if self.compression is None else f"{self.path} (decompressed)"

    def read(self, first: int = 0, content: ContentHash | None = None) -> Iterator[tuple[bytes, int]]:
        """Parts end at multiples of READ_BYTES, wherever they begin.

        content: gets all bytes that it does not know yet. Left before the end, `facts` tell of the bytes
        up to there.

        Raises:
            UserError: the file cannot be read, is damaged, or was changed since it was opened.
        """
        content = content or ContentHash()
        offset, is_whole = min(first, content.known_bytes), False
        try:
            with open(self.path, "rb", buffering=0) as file:
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
                self._check(os.fstat(file.fileno()))
            is_whole = True
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be read: {error.strerror}", code="file-unreadable"
            ) from error
        finally:
            self._note(content, offset, is_whole)

    def _decompressed(self, read: Callable[[int], bytes], compression: Compression) -> Iterator[bytes]:
        pieces = decompressed(read, compression, str(self.path), READ_BYTES)
        try:
            yield from regrouped(pieces)
        except UserError:
            self._check(self.path.stat())  # a file that is still being written looks damaged
            raise

    def _check(self, now: os.stat_result) -> None:
        if (now.st_size, now.st_mtime_ns) != (self._stat.st_size, self._stat.st_mtime_ns):
            raise UserError(
                f"{self.path} was changed while it was read. Start again when it is complete",
                code="changed-while-read",
            )

    def _note(self, content: ContentHash, offset: int, is_whole: bool) -> None:
        self._facts = {"content_hash": content.hexdigest()}
        if self.compression is not None:
            self._facts["compression"] = self.compression.name
        if not is_whole and (self.compression is not None or offset < self.total_bytes):
            self._facts["read_bytes"] = offset
        elif self.compression is not None:
            self._facts["text_bytes"] = offset

    def parts(self) -> list[tuple[bytes, int]]:
        if self.compression is not None:
            return [(self._head(3 * SAMPLE_BYTES), 0)]
        places = sample_places(self.total_bytes, SAMPLE_BYTES)
        length = SAMPLE_BYTES if len(places) > 1 else self.total_bytes
        with open(self.path, "rb") as file:
            return [(os.pread(file.fileno(), length, place), place) for place in places]

    @property
    def starts(self) -> Sequence[int] | None:
        return None if self.compression is None else (0,)

    def at(self, start: int, length: int) -> tuple[bytes, int]:
        try:
            with open(self.path, "rb", buffering=0) as file:
                if self.compression is None:
                    data = os.pread(file.fileno(), length, start)
                    return data, len(data)
                found: list[bytes] = []
                # In small bites and large pieces, so that what was read is what it was made from.
                pieces = decompressed(
                    lambda size: file.read(min(size, _BITE_BYTES)), self.compression, str(self.path), length
                )
                for piece in pieces:
                    found.append(piece)
                    if sum(map(len, found)) >= length:
                        break
                return b"".join(found), file.tell()
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be read: {error.strerror}", code="file-unreadable"
            ) from error

    def _head(self, length: int) -> bytes:
        found = b""
        for data, _ in self.read():
            found += data
            if len(found) >= length:
                break
        self.done_bytes = 0
        return found[:length]

    def state(self) -> Any:
        return [self._resolved, self.total_bytes, self._stat.st_mtime_ns]

    def facts(self) -> dict[str, Any]:
        """Of what was read; `read_bytes`: where that is not all. `text_bytes`: of a compressed file."""
        return {
            "path": self._resolved,
            "bytes": self.total_bytes,
            "mtime_ns": self._stat.st_mtime_ns,
            **self._facts,
        }


def check_name(name: str) -> None:
    """Raises UserError where it is not UTF-8: what is made of the file has to name it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{os.fsencode(name)!r} is not UTF-8, and manifests name files in UTF-8: rename it (mv)",
            code="name-not-utf8",
        ) from None


def _aligned(read: Callable[[int], bytes], offset: int) -> Iterator[bytes]:
    """All that is to be read, in parts that end at multiples of READ_BYTES."""
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


def sample_places(total_bytes: int, sample_bytes: int) -> list[int]:
    """Where samples of a text of this size begin: start, middle and end; one place when it is short."""
    if total_bytes <= 3 * sample_bytes:
        return [0]
    return [0, total_bytes // 2, total_bytes - sample_bytes]


def content_hash_of(path: Path, read_bytes: int | None = None) -> str:
    """The content hash of what the file holds, decompressed; of its first `read_bytes` alone.

    Raises:
        UserError: it cannot be read.
    """
    content = ContentHash()
    for data, offset in ByteFile(path).read(0, content):
        if read_bytes is not None and offset + len(data) >= read_bytes:
            break
    return content.hexdigest()
