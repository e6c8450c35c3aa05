"""Base of sources that read one stream of bytes in some encoding."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_loading.text_io.byte_files import ByteFile, ByteStream
from data_loading.text_io.chunks import undecodable
from data_loading.text_io.content_hash import ContentHash
from data_loading.text_io.source import Compare, Source
from experiment_utils.errors import UserError

ERRORS = ("strict", "replace", "ignore")
BYTE_ORDER_MARK = "\ufeff".encode()
_WITHOUT_MARK = {"utf-8": "utf-8-sig", "utf-16-le": "utf-16", "utf-16-be": "utf-16"}
"""Encodings that keep a byte order mark as text, and those that leave it out."""


class OneStream(Source):
    """A source that reads one stream. Size, position and state are those of the stream.

    Args:
        path: The file.
        encoding: As Python names it.
        errors: How bytes that are not of the encoding are treated, one of ERRORS.
        stream: Source of the bytes, if that is not the file.
    """

    def __init__(self, path: Path, encoding: str, errors: str, stream: ByteStream | None) -> None:
        self.path, self.errors, self.encoding = path, errors, text_encoding(encoding)
        check_errors(errors)
        self.stream = stream or ByteFile(path)
        self.what = self.argument = self.stream.argument
        self.options = {"encoding": self.encoding, "errors": errors}
        self.sample_starts = self.stream.starts if self.encoding == "utf-8" else (0,)

    def __getattr__(self, name: str) -> Any:
        """total_bytes, done_bytes and can_continue of the stream."""
        if name == "stream":
            raise AttributeError(name)
        return getattr(self.stream, name)

    def decoded(self, content: ContentHash | None = None, first: int = 0) -> Iterator[tuple[bytes, int]]:
        """Yield (UTF-8, offset in the stream) from the byte `first` on, which needs UTF-8 unless it is 0.

        UTF-8 itself is passed on unchecked: encoding it into ids checks it.

        Raises:
            UserError: a byte is not of the encoding.
        """
        if self.encoding == "utf-8":
            yield from self.stream.read(first, content)
            return
        decoder = codecs.getincrementaldecoder(self.encoding)(self.errors)
        end = 0
        for data, offset in self.stream.read(0, content):
            yield self._decode(decoder, data, offset, final=False), offset
            end = offset + len(data)
        yield self._decode(decoder, b"", end, final=True), end

    def sample_text(self, start: int, length: int) -> tuple[bytes, int, bool]:
        """(UTF-8 of a part, with replacements; its size on disk in bytes; whether it reaches the end).

        Raises UserError if the encoding cannot replace what is wrong, such as no byte order mark of UTF-16.
        """
        data, size = self.stream.at(start, length)
        is_end = len(data) < length or (self.total_bytes is not None and start + size >= self.total_bytes)
        if self.encoding != "utf-8":
            decoder = codecs.getincrementaldecoder(self.encoding)("replace")
            data = self._decode(decoder, data, start, final=is_end)
        return data, size, is_end

    def _decode(self, decoder: codecs.IncrementalDecoder, data: bytes, offset: int, *, final: bool) -> bytes:
        try:
            return decoder.decode(data, final).encode()
        except UnicodeDecodeError as error:
            held_back = len(error.object) - len(data)
            byte = error.object[error.start]
            raise undecodable(
                self.stream.name, self.encoding, offset - held_back + error.start, byte
            ) from None
        except UnicodeError as error:
            raise UserError(
                f"{self.stream.name} is not {self.encoding}: {error}, near byte {offset:,}",
                code="undecodable",
            ) from None

    def state(self) -> Any:
        return self.stream.state()

    def facts(self) -> list[dict[str, Any]]:
        return [self.stream.facts()]

    def differs(self, facts: list[dict[str, Any]], compare: Compare) -> str | None:
        if not self.can_continue:
            return f"{self.stream.name} is read only once, so it cannot be compared with that of the set"
        return compare(self.path, facts[0] if len(facts) == 1 else {})


def without_mark(encoding: str) -> str:
    """The flag that leaves out a byte order mark which this encoding keeps as text."""
    return f"--encoding {_WITHOUT_MARK.get(encoding, 'utf-8-sig')}"


def check_errors(errors: str) -> None:
    """Raise UserError unless it is one of ERRORS."""
    if errors not in ERRORS:
        raise UserError(f"--errors {errors}: choices are {', '.join(ERRORS)}", code="errors-unknown")


def text_encoding(name: str) -> str:
    """Python's own name of an encoding of text. Raises UserError."""
    try:
        found = codecs.lookup(name)
    except LookupError:
        raise UserError(
            f"--encoding {name}: no such encoding. Usual ones: utf-8, utf-8-sig, utf-16, latin-1, cp1252, "
            "shift_jis, gb18030, euc-kr, koi8-r",
            code="encoding-unknown",
        ) from None
    if not getattr(found, "_is_text_encoding", True) or found.incrementaldecoder is None:
        raise UserError(f"--encoding {name}: not an encoding of text", code="encoding-not-of-text")
    return found.name
