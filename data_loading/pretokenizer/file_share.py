"""A part of a plain file: the text in it, and the pieces of the file that are hashed with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from data_loading.content_hash import ContentHash
from data_loading.pretokenizer.byte_files import READ_BYTES, SAMPLE_BYTES, ByteFile, sample_places
from experiment_utils.errors import UserError


class FileShare(ByteFile):
    """A stream of the bytes `text` of a file that is not compressed.

    hashed: bytes whose pieces are digested; begins at a piece's border and not behind the text, ends at one
    or with the file. Places are told as bytes of the whole file, except to `at`.
    """

    def __init__(self, file: ByteFile, text: range, hashed: range) -> None:
        self.path, self.head, self.compression, self._stat = file.path, file.head, None, file._stat
        self.file_bytes, self.text, self.hashed = file.total_bytes, text, hashed
        self.total_bytes, self.done_bytes, self.can_continue = len(text), 0, True
        self._facts = {}

    def read(self, first: int = 0, content: ContentHash | None = None) -> Iterator[tuple[bytes, int]]:
        """As of the whole file. content: of the pieces of `hashed`, as if the file began there."""
        content = content or ContentHash()
        first = max(first, self.text.start)
        offset = min(first, self.hashed.start + content.known_bytes)
        stop = max(self.text.stop, self.hashed.stop) if self.text else self.hashed.stop
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(offset)
                content.skip_to(offset - self.hashed.start)
                while offset < stop:
                    data = file.read(min(READ_BYTES - offset % READ_BYTES, stop - offset))
                    if not data:
                        break
                    content.update(data[: max(0, self.hashed.stop - offset)])
                    here = range(max(first, offset), min(offset + len(data), self.text.stop))
                    self.done_bytes = min(max(0, here.stop - self.text.start), len(self.text))
                    if here:
                        yield data[here.start - offset : here.stop - offset], here.start
                    offset += len(data)
                self._check(os.fstat(file.fileno()))
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be read: {error.strerror}", code="file-unreadable"
            ) from error
        finally:
            self._facts = {"pieces": content.digests}

    def parts(self) -> list[tuple[bytes, int]]:
        if not self.text:
            return []
        places = sample_places(len(self.text), SAMPLE_BYTES)
        length = SAMPLE_BYTES if len(places) > 1 else len(self.text)
        return [(self.at(place, length)[0], self.text.start + place) for place in places]

    @property
    def starts(self) -> Sequence[int] | None:
        return None

    def at(self, start: int, length: int) -> tuple[bytes, int]:
        """start: counted from the first byte of the text."""
        try:
            with open(self.path, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), min(length, len(self.text) - start), self.text.start + start)
                return data, len(data)
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be read: {error.strerror}", code="file-unreadable"
            ) from error

    def facts(self) -> dict[str, Any]:
        """Of the file. pieces: digests of those of `hashed`, instead of the content hash of all."""
        return {
            "path": str(self.path.resolve()),
            "bytes": self.file_bytes,
            "mtime_ns": self._stat.st_mtime_ns,
            **self._facts,
        }
