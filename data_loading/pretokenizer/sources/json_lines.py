"""Lines of JSON: one document a line, the text in one field of an object."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from data_loading.text_io.byte_files import SAMPLE_BYTES, ByteFile, ByteStream
from data_loading.text_io.chunks import Chunk, Mark, Undecodable
from data_loading.text_io.content_hash import ContentHash
from data_loading.text_io.single_stream import OfStream
from data_loading.text_io.size_limits import LONGEST_BYTES, LineTooLong, too_long
from data_loading.text_io.source import Pieces, Sample, numbered
from data_loading.text_io.text_file import (
    BYTE_ORDER_MARK,
    check_errors,
    sample_text,
    text_encoding,
    transcoded,
    transcoded_head,
    without_mark,
)
from experiment_utils.errors import UserError

TEXT_FIELD = "text"
_SHOWN_FIELDS = 20
_LONGEST_SAMPLED_BYTES = 4 << 20
_SEARCHED_BYTES = 64 << 20
"""How far samples are looked for where the usual places have no text."""


class BadLine(ValueError):
    """Why a line is no document."""


class NoText(BadLine):
    """It has bytes that its encoding has not."""


@dataclass
class Tolerance:
    """How many lines may be left out because they are no documents, over all inputs of a set."""

    allowed: int = 0
    found: int = 0

    def refuse(self, problem: str) -> None:
        """One more. Raises UserError when it is one too many."""
        self.found += 1
        if self.found > self.allowed:
            before = f" {self.found - 1:,} bad lines before it were left out." if self.allowed else ""
            raise UserError(
                f"{problem}.{before} To leave such lines out: --skip-bad N (at most N of them)",
                code="bad-line",
            )


@dataclass
class JsonLines(OfStream):
    """A file of JSON lines, compressed or not; empty lines are passed over.

    text_field: of each line's object, a string. encoding, errors: as in TextFile. stream: where the
    bytes come from, if not from the file at `path`. longest_bytes: a longer line is an error.
    """

    path: Path
    text_field: str = TEXT_FIELD
    encoding: str = "utf-8"
    errors: str = "strict"
    tolerance: Tolerance = field(default_factory=Tolerance)
    stream: ByteStream | None = None
    longest_bytes: int = LONGEST_BYTES
    options: dict[str, Any] = field(init=False)
    _skipped: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.encoding = text_encoding(self.encoding)
        check_errors(self.errors)
        self._stream: ByteStream = self.stream or ByteFile(self.path)
        self.options = {"encoding": self.encoding, "errors": self.errors, "text_field": self.text_field}

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        content = (pieces or Pieces()).content_hash(0)
        self._skipped = 0
        if self.encoding != "utf-8":
            return numbered(self._documents(self._text(content), 1), start)
        if start is None:
            return self._documents(self._stream.read(0, content), 1)
        self._skipped = start["skipped"]
        self.tolerance.found += self._skipped
        return self._documents(self._stream.read(start["byte"], content), start["line"])

    def _text(self, content: ContentHash) -> Iterator[tuple[bytes, int]]:
        return transcoded(self._stream, self.encoding, self.errors, content)

    def _documents(self, text: Iterator[tuple[bytes, int]], first: int) -> Iterator[Chunk]:
        name = self._stream.name
        for number, (line, offset) in enumerate(self._lines(text, first), first):
            mark = {"byte": offset, "line": number, "skipped": self._skipped}
            try:
                document = self._document(line)
            except BadLine as why:
                if offset == 0 and line.startswith(BYTE_ORDER_MARK):
                    raise UserError(
                        f"{name} begins with a byte order mark, which is not JSON. "
                        f"{without_mark(self.encoding)} leaves it out, of files without one too",
                        code="byte-order-mark",
                    ) from None
                if offset == 0 and not self.tolerance.allowed and (other := not_lines(line)) is not None:
                    raise UserError(f"{name} {other}", code="not-json-lines") from None
                try:
                    self.tolerance.refuse(f"{name}: {_place(number, offset)} {why}")
                except UserError as error:
                    raise (Undecodable(str(error)) if isinstance(why, NoText) else error) from None
                self._skipped += 1
                continue
            if document:
                yield Chunk(document, name, offset, True, mark)

    def _lines(self, text: Iterator[tuple[bytes, int]], first: int) -> Iterator[tuple[bytes, int]]:
        number = first
        try:
            for found in lines(text, self.longest_bytes):
                yield found
                number += 1
        except LineTooLong as line:
            where = f"{self._stream.name}: {_place(number, line.offset)}"
            raise too_long(where, self.longest_bytes) from None

    def _document(self, line: bytes) -> bytes:
        """The text of a line, UTF-8. Raises BadLine."""
        if self.errors != "strict":
            line = line.decode("utf-8", self.errors).encode()
        found = parse_line(line)
        if found is None:
            return b""
        if not isinstance(found, dict):
            raise BadLine(f"is no JSON object, but {_kind(found)}")
        return text_of(found, self.text_field)

    def samples(self) -> list[bytes]:
        if self.encoding != "utf-8":
            parts = [(transcoded_head(self._stream, self.encoding, "replace"), 0)]
        else:
            parts = self._stream.parts()
        found = [self._sample(data) for data, _ in parts]
        return found if any(found) or not self.can_continue else [self._first_texts()]

    def _sample(self, data: bytes) -> bytes:
        """Texts of the lines of a part; one that is not whole is no JSON, and what is wrong is told later."""
        parts = data.split(b"\n")
        return b"".join(map(self._tolerated, parts))

    def _first_texts(self) -> bytes:
        """For samples, where those places have none: the first texts that there are."""
        found, read = b"", 0
        text = self._text(ContentHash()) if self.encoding != "utf-8" else self._stream.read()
        with closing(cast("Generator[tuple[bytes, int]]", text)), suppress(LineTooLong):
            for line, _ in lines(text, self.longest_bytes):
                found, read = found + self._tolerated(line), read + len(line) + 1
                if len(found) >= SAMPLE_BYTES or read >= _SEARCHED_BYTES:
                    break
        return found[: 3 * SAMPLE_BYTES].decode("utf-8", "ignore").encode()

    @property
    def known_documents(self) -> None:
        return None

    @property
    def sample_starts(self) -> Sequence[int] | None:
        return self._stream.starts if self.encoding == "utf-8" else (0,)

    def sample(self, start: int, length: int) -> Sample:
        """Of the lines that begin there: so each line of the file has the same chance."""
        # One byte more, which tells whether a line begins at `start`.
        first = max(0, start - 1)
        text, size, is_end = sample_text(
            self._stream, self.encoding, "replace", first, length + start - first
        )
        begin = text.find(b"\n") + 1 if start else 0
        whole = text[begin:] if begin or not start else b""
        if self.sample_starts is None and not is_end and whole and not whole.endswith(b"\n"):
            whole += self._rest_of_line(first + len(text))
        if not is_end:
            whole = whole[: whole.rfind(b"\n") + 1]
        texts = list(filter(None, map(self._tolerated, whole.split(b"\n"))))
        return Sample(texts, size * len(whole) / max(1, len(text)), len(texts))

    def _rest_of_line(self, start: int) -> bytes:
        """To its end; nothing of a line that is too long for a sample."""
        length = 1 << 16
        while True:
            data, _ = self._stream.at(start, length)
            end = data.find(b"\n")
            if end >= 0:
                return data[: end + 1]
            if len(data) < length:
                return data + b"\n"
            if length >= _LONGEST_SAMPLED_BYTES:
                return b""
            length *= 4

    def _tolerated(self, line: bytes) -> bytes:
        try:
            return self._document(line)
        except BadLine:
            return b""

    def facts(self) -> list[dict[str, Any]]:
        return [{**self._stream.facts(), "skipped": self._skipped}]


def text_of(found: dict[str, Any], text_field: str) -> bytes:
    """The text of an object, UTF-8. Raises BadLine."""
    text = found.get(text_field)
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise BadLine(
                f"has half a surrogate pair (\\u{ord(text[error.start]):04x}) in {text_field!r}, which "
                "stands for no character"
            ) from None
    if text_field not in found and (field := ids_field(found)) is not None:
        raise BadLine(holds_ids(field, "json"))
    if text_field not in found:
        raise BadLine(f"has no field {text_field!r}; fields: {_names(found)} (--text-field NAME)")
    raise BadLine(f"has {_kind(text)} in {text_field!r}; expected a string")


def not_lines(first: bytes) -> str | None:
    """What a file of JSON is that does not have one object a line, by its first line; None where it may."""
    line = first.strip()
    if line.startswith(b"["):
        return (
            "holds one JSON array; expected one object a line. Write it so: python -c 'import json, sys; "
            "[print(json.dumps(row)) for row in json.load(sys.stdin)]' < FILE > OUT.jsonl"
        )
    if line == b"{":
        return (
            "holds JSON over several lines; expected one object a line. Write it so: jq -c . FILE > OUT.jsonl"
        )
    return None


def ids_field(found: dict[str, Any]) -> str | None:
    """The field of an object that holds a list of token ids; None where none does."""
    return next(
        (
            name
            for name in ("input_ids", "tokens", "token_ids", "ids")
            if isinstance(found.get(name), list) and all(type(value) is int for value in found[name][:100])
        ),
        None,
    )


def holds_ids(field: str, kind: str) -> str:
    """What a file of token ids is, and how to train on them. kind: what `load_dataset` calls it."""
    renamed = "" if field == "input_ids" else f".rename_column({field!r}, 'input_ids')"
    return (
        f"holds token ids in {field!r} and no text. They need not be tokenized: "
        f"datasets.load_dataset({kind!r}, data_files=FILE, split='train'){renamed}.save_to_disk(OUT), then "
        "dataset.path=OUT with the tokenizer that made them"
    )


def lines(
    text: Iterator[tuple[bytes, int]], longest_bytes: int = LONGEST_BYTES
) -> Iterator[tuple[bytes, int]]:
    """(line without its line feed, offset of its first byte); a line is held whole.

    Raises:
        LineTooLong: one in several parts of the text has more bytes.
    """
    begun: list[bytes] = []
    start, held = None, 0
    for data, offset in text:
        start = offset if start is None else start
        first, *others = data.split(b"\n")
        begun.append(first)
        held += len(first)
        if held > longest_bytes:
            raise LineTooLong(start)
        if not others:
            continue
        yield b"".join(begun), start
        at = offset + len(first) + 1
        for line in others[:-1]:
            yield line, at
            at += len(line) + 1
        begun, start, held = [others[-1]], at, len(others[-1])
    if start is not None:
        yield b"".join(begun), start


def parse_line(line: bytes) -> Any:
    """The value of a line of JSON; None for an empty line. Raises BadLine.

    orjson is nearly twice as fast; what it refuses is decided by Python's own parser (NaN is none of
    JSON, but written by it).
    """
    import orjson

    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    if not line.strip():
        return None
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise NoText(
            f"is not utf-8 at its byte {error.start:,} (0x{line[error.start]:02x}); --encoding and --errors "
            "say how to read it"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadLine(f"is broken JSON ({error})") from None


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _names(found: dict[str, Any]) -> str:
    names = [repr(name) for name in found]
    more = f" and {len(names) - _SHOWN_FIELDS} more" if len(names) > _SHOWN_FIELDS else ""
    return (", ".join(names[:_SHOWN_FIELDS]) or "none") + more


def _place(number: int, offset: int) -> str:
    return f"line {number:,} (from byte {offset:,} on)"
