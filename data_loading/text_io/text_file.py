"""Where text comes from: a file, in any encoding, one document or many divided by a separator line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_loading.text_io.byte_files import SAMPLE_BYTES, ByteFile, ByteStream
from data_loading.text_io.chunks import Chunk, Mark, undecodable
from data_loading.text_io.content_hash import ContentHash
from data_loading.text_io.single_stream import OfStream
from data_loading.text_io.source import Pieces, Sample, numbered
from experiment_utils.errors import UserError

ERRORS = ("strict", "replace", "ignore")
BYTE_ORDER_MARK = "\ufeff".encode()
_WITHOUT_MARK = {"utf-8": "utf-8-sig", "utf-16-le": "utf-16", "utf-16-be": "utf-16"}
"""Encodings that keep a byte order mark as text, and those that leave it out."""


@dataclass
class TextFile(OfStream):
    """A text file, compressed or not.

    document_separator: a line that stands between two documents and belongs to neither; None: the
    file is one document. encoding, errors: as Python names them. stream: where the bytes come from,
    if not from the file at `path`.
    """

    path: Path
    encoding: str = "utf-8"
    errors: str = "strict"
    document_separator: str | None = None
    stream: ByteStream | None = None
    options: dict[str, Any] = field(init=False)
    _begins_with_mark: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.encoding = text_encoding(self.encoding)
        check_errors(self.errors)
        if self.document_separator is not None and re.search(r"[\r\n]", self.document_separator):
            raise UserError(
                "--document-separator: expected one line, without its line break",
                code="separator-not-one-line",
            )
        self._stream: ByteStream = self.stream or ByteFile(self.path)
        self.options = {
            "encoding": self.encoding,
            "errors": self.errors,
            "document_separator": self.document_separator,
        }

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        content = (pieces or Pieces()).content_hash(0)
        if self.encoding == "utf-8":
            first, at_line_start = (start["byte"], start["at_line_start"]) if start else (0, True)
            return self._documents(self._stream.read(first, content), first, at_line_start)
        # A decoder cannot start anywhere: the text is decoded again, which takes little of the time.
        text = transcoded(self._stream, self.encoding, self.errors, content)
        return numbered(self._documents(text, 0, True), start)

    def _documents(
        self, text: Iterator[tuple[bytes, int]], first: int, at_line_start: bool
    ) -> Iterator[Chunk]:
        name, end, text = self._stream.name, first, self._noting_mark(text)
        if self.document_separator is not None:
            separator = self.document_separator.encode()
            yield from divided(text, separator, name, at_line_start=at_line_start, first=first)
            return
        for data, offset in text:
            yield Chunk(data, name, offset, False, {"byte": offset, "at_line_start": False})
            end = offset + len(data)
        yield Chunk(b"", name, end, True, {"byte": end, "at_line_start": False})

    def _noting_mark(self, text: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        for data, offset in text:
            if offset == 0:
                self._begins_with_mark = data.startswith(BYTE_ORDER_MARK)
            yield data, offset

    def samples(self) -> list[bytes]:
        if self.encoding != "utf-8":
            return [transcoded_head(self._stream, self.encoding, self.errors)]
        return [_whole_characters(data) for data, _ in self._stream.parts()]

    @property
    def known_documents(self) -> int | None:
        return 1 if self.document_separator is None else None

    @property
    def sample_starts(self) -> Sequence[int] | None:
        return self._stream.starts if self.encoding == "utf-8" else (0,)

    def sample(self, start: int, length: int) -> Sample:
        text, size, is_end = sample_text(self._stream, self.encoding, self.errors, start, length)
        if self.document_separator is None:
            whole = _whole_characters(text)
            share = len(whole) / max(1, len(text))
            return Sample([whole], size * share)
        separator, texts, documents = self.document_separator.encode(), [b""], 0
        for chunk in divided(iter([(text, start)]), separator, "", at_line_start=start == 0):
            texts[-1] += _whole_characters(chunk.data)
            if chunk.ends_document and chunk.offset < start + len(text):
                documents += bool(texts[-1])
                texts.append(b"")
        return Sample(texts, size, documents + (is_end and bool(texts[-1])))

    def facts(self) -> list[dict[str, Any]]:
        mark = {"byte_order_mark": True} if self._begins_with_mark else {}
        return [{**self._stream.facts(), **mark}]


def transcoded(
    stream: ByteStream, encoding: str, errors: str, content: ContentHash | None = None
) -> Iterator[tuple[bytes, int]]:
    """The text as UTF-8; offsets are those of the bytes in the stream. Raises UserError."""
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    end = 0
    for data, offset in stream.read(0, content):
        yield _decode(decoder, data, stream.name, encoding, offset, final=False), offset
        end = offset + len(data)
    yield _decode(decoder, b"", stream.name, encoding, end, final=True), end


def _decode(
    decoder: codecs.IncrementalDecoder, data: bytes, name: str, encoding: str, offset: int, *, final: bool
) -> bytes:
    try:
        return decoder.decode(data, final).encode()
    except UnicodeDecodeError as error:
        held_back = len(error.object) - len(data)
        byte = error.object[error.start]
        raise undecodable(name, encoding, offset - held_back + error.start, byte) from None
    except UnicodeError as error:
        raise UserError(
            f"{name} is not {encoding}: {error}, near byte {offset:,}", code="undecodable"
        ) from None


def transcoded_head(stream: ByteStream, encoding: str, errors: str) -> bytes:
    """UTF-8 of the start of the text, for samples."""
    data, _ = stream.parts()[0]
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    return _decode(decoder, data, stream.name, encoding, 0, final=False)[: 3 * SAMPLE_BYTES]


def sample_text(
    stream: ByteStream, encoding: str, errors: str, start: int, length: int
) -> tuple[bytes, int, bool]:
    """(UTF-8 of a part of the text, bytes that it takes on disk, whether it goes to the end)."""
    data, size = stream.at(start, length)
    is_end = stream.total_bytes is not None and start + size >= stream.total_bytes
    if encoding != "utf-8":
        decoder = codecs.getincrementaldecoder(encoding)(errors)
        data = _decode(decoder, data, stream.name, encoding, 0, final=is_end)
    return data, size, is_end


def without_mark(encoding: str) -> str:
    """What a user gives to leave out a byte order mark that this encoding keeps as text."""
    return f"--encoding {_WITHOUT_MARK.get(encoding, 'utf-8-sig')}"


def check_errors(errors: str) -> None:
    """Raises UserError unless it is one of ERRORS."""
    if errors not in ERRORS:
        raise UserError(f"--errors {errors}: choices are {', '.join(ERRORS)}", code="errors-unknown")


def text_encoding(name: str) -> str:
    """Python's own name of the encoding."""
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


def _whole_characters(data: bytes) -> bytes:
    """Valid UTF-8 out of a piece of a file that may begin and end inside a character."""
    return data.decode("utf-8", "ignore").encode()


def divided(
    text: Iterator[tuple[bytes, int]], separator: bytes, source: str, *, at_line_start: bool, first: int = 0
) -> Iterator[Chunk]:
    """Divide at lines equal to the separator; a line's end is LF or CRLF.

    Holds back only what may still become a separator line, so a line of any length passes.
    """
    rest, start = b"", first
    for data, offset in text:
        start = start if rest else offset
        rest = rest + data if rest else data
        # What follows the last line break may grow into a separator, unless it is too long for one.
        safe = rest.rfind(b"\n") + 1
        if len(rest) - safe > len(separator) + 1:
            safe = len(rest)
        yield from _divide(rest, safe, separator, at_line_start, source, start)
        if safe:
            at_line_start = rest[safe - 1 : safe] == b"\n"
        rest, start = rest[safe:], start + safe
    yield from _divide(rest, len(rest), separator, at_line_start, source, start)
    mark = {"byte": start + len(rest), "at_line_start": False}
    yield Chunk(b"", source, start + len(rest), True, mark)


def _divide(
    part: bytes, end: int, separator: bytes, at_line_start: bool, source: str, offset: int
) -> Iterator[Chunk]:
    """The chunks of `part[:end]`, which ends with a line, or at the end of the part."""
    done = 0
    for start, stop in lines_equal_to(separator, part, at_line_start=at_line_start):
        if start >= end:
            break
        mark = {"byte": offset + done, "at_line_start": at_line_start}
        yield Chunk(part[done:start], source, offset + done, True, mark)
        done, at_line_start = stop, True
    if done < end:
        mark = {"byte": offset + done, "at_line_start": at_line_start}
        yield Chunk(part[done:end], source, offset + done, False, mark)


def lines_equal_to(line: bytes, part: bytes, *, at_line_start: bool) -> Iterator[tuple[int, int]]:
    """(start, stop) of each line equal to `line`, with its end: LF, CRLF or the end of the part.

    The end of the part is no empty line. A search for bytes takes a tenth of that for the pattern of a line.
    """
    place = 0 if at_line_start and part.startswith(line) else part.find(b"\n" + line) + 1
    while place or (at_line_start and part.startswith(line)):
        stop = place + len(line)
        if part.startswith(b"\r", stop) and (part.startswith(b"\n", stop + 1) or stop + 1 == len(part)):
            stop += 1
        is_whole = part.startswith(b"\n", stop) or (stop == len(part) and stop > place)
        if is_whole:
            stop = min(stop + 1, len(part))
            yield place, stop
        at_line_start = False
        # The line break before the next one may be the end of this one.
        place = part.find(b"\n" + line, stop - 1 if is_whole else place) + 1
