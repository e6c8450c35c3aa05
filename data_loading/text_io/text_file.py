"""A text file in any encoding: one document, or several divided by a separator line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_loading.text_io.byte_files import ByteStream
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.single_stream import BYTE_ORDER_MARK, OneStream
from data_loading.text_io.source import Pieces, Sample, numbered, whole_characters
from experiment_utils.errors import UserError


class TextFile(OneStream):
    """A text file, compressed or not.

    Args:
        document_separator: A line between two documents that belongs to neither; None: the file is one
            document.
    """

    def __init__(
        self,
        path: Path,
        encoding: str = "utf-8",
        errors: str = "strict",
        document_separator: str | None = None,
        stream: ByteStream | None = None,
    ) -> None:
        super().__init__(path, encoding, errors, stream)
        if document_separator is not None and re.search(r"[\r\n]", document_separator):
            raise UserError(
                "--document-separator: expected one line, without its line break. For one document a line, "
                "write lines of JSON: jq -Rc '{text: .}' FILE.txt > FILE.jsonl",
                code="separator-not-one-line",
            )
        self.options["document_separator"] = document_separator
        self.document_separator = document_separator
        self.is_one_document = document_separator is None
        self._begins_with_mark = False

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        content = (pieces or Pieces()).content_hash(0)
        if self.encoding == "utf-8":
            first, at_line_start = (start["byte"], start["at_line_start"]) if start else (0, True)
            return self._documents(self.decoded(content, first), first, at_line_start)
        # A decoder cannot start anywhere: the text is decoded again, which takes little of the time.
        return numbered(self._documents(self.decoded(content), 0, True), start)

    def _documents(
        self, text: Iterator[tuple[bytes, int]], first: int, at_line_start: bool
    ) -> Iterator[Chunk]:
        name, end, text = self.stream.name, first, self._noting_mark(text)
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

    def sample(self, start: int, length: int) -> Sample:
        text, size, is_end = self.sample_text(start, length)
        if self.document_separator is None:
            whole = whole_characters(text)
            share = len(whole) / max(1, len(text))
            return Sample([whole], size * share)
        separator, texts, documents = self.document_separator.encode(), [b""], 0
        for chunk in divided(iter([(text, start)]), separator, "", at_line_start=start == 0):
            texts[-1] += whole_characters(chunk.data)
            if chunk.ends_document and chunk.offset < start + len(text):
                documents += bool(texts[-1])
                texts.append(b"")
        return Sample(texts, size, documents + (is_end and bool(texts[-1])))

    def facts(self) -> list[dict[str, Any]]:
        mark = {"byte_order_mark": True} if self._begins_with_mark else {}
        return [{**self.stream.facts(), **mark}]


def divided(
    text: Iterator[tuple[bytes, int]], separator: bytes, source: str, *, at_line_start: bool, first: int = 0
) -> Iterator[Chunk]:
    """Divide at lines equal to the separator; the end of a line is LF or CRLF.

    Only what can still become a separator line is held back, so a line can have any length.
    """
    rest, start = b"", first
    for data, offset in text:
        start = start if rest else offset
        rest = rest + data if rest else data
        # The text after the last line break can grow into a separator, unless it is too long for one.
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
        # The line break before the next one can be the end of this one.
        place = part.find(b"\n" + line, stop - 1 if is_whole else place) + 1
