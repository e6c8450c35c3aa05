"""Where text comes from: a file, in any encoding, one document or many divided by a separator line."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conf import UserError
from data_loading.checked import text_difference
from data_loading.content_hash import ContentHash
from data_loading.pretokenizer.blocks import Chunk, Mark, undecodable
from data_loading.pretokenizer.source import Pieces, numbered, sample_places
from data_loading.set_files import SetFiles

READ_BYTES = 1 << 20
SAMPLE_BYTES = 1 << 18
ERRORS = ("strict", "replace", "ignore")


@dataclass
class TextFile:
    """A text file.

    document_separator: a line that stands between two documents and belongs to neither; None: the
    file is one document. encoding, errors: as Python names them.
    """

    path: Path
    encoding: str = "utf-8"
    errors: str = "strict"
    document_separator: str | None = None
    total_bytes: int = field(init=False)
    done_bytes: int = field(init=False, default=0)
    options: dict[str, Any] = field(init=False)
    can_continue: bool = field(init=False, default=True)
    _content_hash: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.encoding = text_encoding(self.encoding)
        if self.errors not in ERRORS:
            raise UserError(f"--errors {self.errors}: choices are {', '.join(ERRORS)}")
        if self.document_separator is not None and re.search(r"[\r\n]", self.document_separator):
            raise UserError("--document-separator: expected one line, without its line break")
        try:
            self._stat = self.path.stat()
            if self.path.is_dir():
                raise UserError(f"{self.path} is a folder; expected a text file")
            if not self.path.is_file():
                raise UserError(
                    f"{self.path} is a pipe or a device; expected a text file, which is read twice"
                )
            self.path.open("rb").close()
        except FileNotFoundError:
            raise UserError(f"{self.path}: no such text file") from None
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror}") from error
        self.total_bytes = self._stat.st_size
        if self.total_bytes == 0:
            raise UserError(f"{self.path} is empty: there is nothing to tokenize")
        self.options = {
            "encoding": self.encoding,
            "errors": self.errors,
            "document_separator": self.document_separator,
        }

    @property
    def what(self) -> str:
        return str(self.path)

    @property
    def argument(self) -> str:
        return str(self.path)

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        content = (pieces or Pieces()).content_hash(0)
        if self.encoding == "utf-8":
            first, at_line_start = (start["byte"], start["at_line_start"]) if start else (0, True)
            return self._documents(self._raw(content, first), at_line_start)
        # A decoder cannot start anywhere: the text is decoded again, which takes little of the time.
        return numbered(self._documents(self._transcoded(content), True), start)

    def _documents(self, text: Iterator[tuple[bytes, int]], at_line_start: bool) -> Iterator[Chunk]:
        if self.document_separator is not None:
            separator = self.document_separator.encode()
            yield from _divided(text, separator, str(self.path), at_line_start=at_line_start)
            return
        for data, offset in text:
            yield Chunk(data, str(self.path), offset, False, {"byte": offset, "at_line_start": False})
        mark = {"byte": self.total_bytes, "at_line_start": False}
        yield Chunk(b"", str(self.path), self.total_bytes, True, mark)

    def _raw(self, content: ContentHash, first: int = 0) -> Iterator[tuple[bytes, int]]:
        """(bytes, offset) from `first` to the end of the file, which must stay as it was when it was opened.

        Reads end at multiples of READ_BYTES, wherever they begin.
        """
        try:
            with open(self.path, "rb", buffering=0) as file:
                offset = min(first, content.known_bytes)
                content.skip_to(offset)
                file.seek(offset)
                while data := file.read(READ_BYTES - offset % READ_BYTES):
                    content.update(data)
                    self.done_bytes = offset + len(data)
                    unread = data[max(0, first - offset) :]
                    if unread:
                        yield unread, self.done_bytes - len(unread)
                    offset = self.done_bytes
                after = os.fstat(file.fileno())
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror}") from error
        if (after.st_size, after.st_mtime_ns) != (self._stat.st_size, self._stat.st_mtime_ns):
            raise UserError(f"{self.path} was changed while it was read. Start again when it is complete")
        self._content_hash = content.hexdigest()

    def _transcoded(self, content: ContentHash) -> Iterator[tuple[bytes, int]]:
        """The text as UTF-8; offsets are those of the bytes in the file."""
        decoder = codecs.getincrementaldecoder(self.encoding)(self.errors)
        end = 0
        for data, offset in self._raw(content):
            yield self._decode(decoder, data, offset, final=False), offset
            end = offset + len(data)
        yield self._decode(decoder, b"", end, final=True), end

    def _decode(self, decoder: codecs.IncrementalDecoder, data: bytes, offset: int, *, final: bool) -> bytes:
        try:
            return decoder.decode(data, final).encode()
        except UnicodeDecodeError as error:
            held_back = len(error.object) - len(data)
            byte = error.object[error.start]
            raise undecodable(str(self.path), self.encoding, offset - held_back + error.start, byte) from None
        except UnicodeError as error:
            raise UserError(f"{self.path} is not {self.encoding}: {error}, near byte {offset:,}") from None

    def samples(self) -> list[bytes]:
        if self.encoding != "utf-8":
            found = b""
            for data, _ in self._transcoded(ContentHash()):
                found += data
                if len(found) >= 3 * SAMPLE_BYTES:
                    break
            return [found[: 3 * SAMPLE_BYTES].decode("utf-8", "ignore").encode()]
        places = sample_places(self.total_bytes, SAMPLE_BYTES)
        length = SAMPLE_BYTES if len(places) > 1 else self.total_bytes
        with open(self.path, "rb") as file:
            return [_whole_characters(os.pread(file.fileno(), length, place)) for place in places]

    def state(self) -> Any:
        return [str(self.path.resolve()), self.total_bytes, self._stat.st_mtime_ns]

    def facts(self) -> list[dict[str, Any]]:
        return [
            {
                "path": str(self.path.resolve()),
                "bytes": self.total_bytes,
                "mtime_ns": self._stat.st_mtime_ns,
                "content_hash": self._content_hash,
            }
        ]

    def differs(self, facts: list[dict[str, Any]], files: SetFiles) -> str | None:
        return text_difference(self.path, facts[0] if len(facts) == 1 else {}, files)


def text_encoding(name: str) -> str:
    """Python's own name of the encoding."""
    try:
        found = codecs.lookup(name)
    except LookupError:
        raise UserError(
            f"--encoding {name}: no such encoding. Usual ones: utf-8, utf-8-sig, utf-16, latin-1, cp1252, "
            "shift_jis, gb18030, euc-kr, koi8-r"
        ) from None
    if not getattr(found, "_is_text_encoding", True) or found.incrementaldecoder is None:
        raise UserError(f"--encoding {name}: not an encoding of text")
    return found.name


def _whole_characters(data: bytes) -> bytes:
    """Valid UTF-8 out of a piece of a file that may begin and end inside a character."""
    return data.decode("utf-8", "ignore").encode()


def _divided(
    text: Iterator[tuple[bytes, int]], separator: bytes, source: str, *, at_line_start: bool
) -> Iterator[Chunk]:
    """Divide at lines equal to the separator; a line's end is LF or CRLF.

    Holds back only what may still become a separator line, so a line of any length passes.
    """
    line = re.compile(rb"^" + re.escape(separator) + rb"\r?(?:\n|\Z)", re.MULTILINE)
    rest, start = b"", 0
    for data, offset in text:
        start = start if rest else offset
        rest += data
        # What follows the last line break may grow into a separator, unless it is too long for one.
        safe = rest.rfind(b"\n") + 1
        if len(rest) - safe > len(separator) + 1:
            safe = len(rest)
        yield from _divide(rest[:safe], line, at_line_start, source, start)
        if safe:
            at_line_start = rest[safe - 1 : safe] == b"\n"
        rest, start = rest[safe:], start + safe
    yield from _divide(rest, line, at_line_start, source, start)
    mark = {"byte": start + len(rest), "at_line_start": False}
    yield Chunk(b"", source, start + len(rest), True, mark)


def _divide(
    part: bytes, line: re.Pattern[bytes], at_line_start: bool, source: str, offset: int
) -> Iterator[Chunk]:
    done = 0

    def chunk(until: int, *, ends_document: bool) -> Chunk:
        mark = {"byte": offset + done, "at_line_start": at_line_start if done == 0 else True}
        return Chunk(part[done:until], source, offset + done, ends_document, mark)

    for match in line.finditer(part):
        if match.start() == 0 and not at_line_start:
            continue
        if match.end() == len(part) and not match.group().endswith(b"\n") and not match.group():
            continue
        yield chunk(match.start(), ends_document=True)
        done = match.end()
    if done < len(part):
        yield chunk(len(part), ends_document=False)
