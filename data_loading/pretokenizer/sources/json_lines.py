"""Lines of JSON: one document a line, the text in one field of an object."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from data_loading.text_io.byte_files import SAMPLE_BYTES, ByteStream
from data_loading.text_io.chunks import Chunk, Mark, Undecodable
from data_loading.text_io.single_stream import BYTE_ORDER_MARK, OneStream, without_mark
from data_loading.text_io.size_limits import LONGEST_BYTES, TooLong, too_long
from data_loading.text_io.source import Pieces, Sample, numbered, whole_characters
from experiment_utils.errors import UserError

TEXT_FIELD = "text"
IDS_FIELDS = ("input_ids", "tokens", "token_ids", "ids")
"""Usual names of fields of token ids."""
_SHOWN_FIELDS = 20
_LONGEST_SAMPLED_BYTES = 4 << 20
_SEARCHED_BYTES = 64 << 20
"""Text that is searched for samples if the usual places have none."""


class BadLine(ValueError):
    """The reason why a line is no document."""


class NoText(BadLine):
    """It has bytes that are not UTF-8."""


@dataclass
class Tolerance:
    """Number of lines that can be left out because they are no documents, over all inputs of a set."""

    allowed: int = 0
    found: int = 0

    def refuse(self, problem: str) -> None:
        """Count one more. Raises UserError if it is one too many."""
        self.found += 1
        if self.found > self.allowed:
            before = f" {self.found - 1:,} bad lines before it were left out." if self.allowed else ""
            raise UserError(
                f"{problem}.{before} To leave such lines out: --skip-bad N (at most N of them)",
                code="bad-line",
            )


class JsonLines(OneStream):
    """A file of JSON lines, compressed or not. Empty lines are skipped.

    Args:
        text_field: Field of each line's object that holds the text; `a.b` for field b of object a.
        tolerance: Shared by the inputs of a set.
        longest_bytes: A longer line is an error.
    """

    def __init__(
        self,
        path: Path,
        text_field: str = TEXT_FIELD,
        encoding: str = "utf-8",
        errors: str = "strict",
        tolerance: Tolerance | None = None,
        stream: ByteStream | None = None,
        longest_bytes: int = LONGEST_BYTES,
    ) -> None:
        super().__init__(path, encoding, errors, stream)
        self.options["text_field"] = self.text_field = text_field
        self.tolerance, self.longest_bytes = tolerance or Tolerance(), longest_bytes
        self._skipped = 0

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        content = (pieces or Pieces()).content_hash(0)
        self._skipped = 0
        if self.encoding != "utf-8":
            return numbered(self._documents(self.decoded(content), 1), start)
        if start is None:
            return self._documents(self.decoded(content), 1)
        self._skipped = start["skipped"]
        self.tolerance.found += self._skipped
        return self._documents(self.decoded(content, start["byte"]), start["line"])

    def _documents(self, text: Iterator[tuple[bytes, int]], first: int) -> Iterator[Chunk]:
        name = self.stream.name
        for number, (line, offset) in enumerate(self._lines(text, first), first):
            mark = {"byte": offset, "line": number, "skipped": self._skipped}
            try:
                document = self._document(line)
            except BadLine as why:
                self._refuse_other_file(line, offset)
                try:
                    self.tolerance.refuse(f"{name}: {_place(number, offset)} {why}")
                except UserError as error:
                    raise (Undecodable(str(error)) if isinstance(why, NoText) else error) from None
                self._skipped += 1
                continue
            if document:
                yield Chunk(document, name, offset, True, mark)

    def _refuse_other_file(self, line: bytes, offset: int) -> None:
        """Raise UserError if the bad first line shows that the file is not in this format."""
        if offset == 0 and line.startswith(BYTE_ORDER_MARK):
            raise UserError(
                f"{self.stream.name} begins with a byte order mark, which is not JSON. "
                f"{without_mark(self.encoding)} leaves it out, of files without one too",
                code="byte-order-mark",
            ) from None
        if offset == 0 and not self.tolerance.allowed and (other := not_lines(line)) is not None:
            raise UserError(f"{self.stream.name} {other}", code="not-json-lines") from None

    def _lines(self, text: Iterator[tuple[bytes, int]], first: int) -> Iterator[tuple[bytes, int]]:
        number = first
        try:
            for found in lines(text, self.longest_bytes):
                yield found
                number += 1
        except TooLong as line:
            where = f"{self.stream.name}: {_place(number, line.place)}"
            raise too_long(where, self.longest_bytes) from None

    def _document(self, line: bytes) -> bytes:
        """Text of a line, UTF-8. Raises BadLine."""
        if self.errors != "strict":
            line = line.decode("utf-8", self.errors).encode()
        found = parse_line(line)
        if found is None:
            return b""
        if not isinstance(found, dict):
            raise BadLine(f"is no JSON object, but {_kind(found)}")
        return text_of(found, self.text_field)

    def _text_or_none(self, line: bytes) -> bytes:
        """Text of a line; empty if it is none, which is reported when it is tokenized."""
        try:
            return self._document(line)
        except BadLine:
            return b""

    def samples(self) -> list[bytes]:
        found = super().samples()
        return found if any(found) or not self.can_continue else [self._first_texts()]

    def _first_texts(self) -> bytes:
        """The first texts of the file, for samples if the usual places have none."""
        found, read = b"", 0
        text = cast("Generator[tuple[bytes, int]]", self.decoded())
        with closing(text), suppress(TooLong):
            for line, _ in lines(text, self.longest_bytes):
                found, read = found + self._text_or_none(line), read + len(line) + 1
                if len(found) >= SAMPLE_BYTES or read >= _SEARCHED_BYTES:
                    break
        return whole_characters(found[: 3 * SAMPLE_BYTES])

    def sample(self, start: int, length: int) -> Sample:
        """Texts of the lines that begin there, so that each line of the file has the same chance."""
        first = max(0, start - 1)  # one byte more shows whether a line begins at `start`
        text, size, is_end = self.sample_text(first, length + start - first)
        begin = text.find(b"\n") + 1 if start else 0
        whole = text[begin:] if begin or not start else b""
        if self.sample_starts is None and not is_end and whole and not whole.endswith(b"\n"):
            whole += self._rest_of_line(first + len(text))
        if not is_end:
            whole = whole[: whole.rfind(b"\n") + 1]
        texts = list(filter(None, map(self._text_or_none, whole.split(b"\n"))))
        return Sample(texts, size * len(whole) / max(1, len(text)), len(texts))

    def _rest_of_line(self, start: int) -> bytes:
        """The line from `start` on; nothing if it is too long for a sample."""
        length = 1 << 16
        while True:
            data, _ = self.stream.at(start, length)
            end = data.find(b"\n")
            if end >= 0:
                return data[: end + 1]
            if len(data) < length:
                return data + b"\n"
            if length >= _LONGEST_SAMPLED_BYTES:
                return b""
            length *= 4

    def facts(self) -> list[dict[str, Any]]:
        return [{**self.stream.facts(), "skipped": self._skipped}]


def text_of(found: dict[str, Any], text_field: str) -> bytes:
    """Text of an object, UTF-8. `a.b`: field b of object a. Raises BadLine."""
    text = field_of(found, text_field)
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise BadLine(
                f"has half a surrogate pair (\\u{ord(text[error.start]):04x}) in {text_field!r}, which "
                "is no character"
            ) from None
    if text is not MISSING:
        raise BadLine(f"has {_kind(text)} in {text_field!r}; expected a string")
    ids = (name for name in IDS_FIELDS if _are_ids(found.get(name)))
    if (field := next(ids, None)) is not None:
        raise BadLine(holds_ids(field, "json"))
    raise BadLine(f"has no field {text_field!r}; fields: {field_names(found)} (--text-field NAME)")


MISSING = object()
"""Value of a field that an object does not have."""


def field_of(found: Any, field: str) -> Any:
    """Value of a field, MISSING if there is none. `a.b`: field b of object a, unless it is a field's name."""
    if not isinstance(found, dict):
        return MISSING
    if field in found:
        return found[field]
    at = field.find(".")
    while at >= 0:  # a name can hold dots
        if field[:at] in found and (value := field_of(found[field[:at]], field[at + 1 :])) is not MISSING:
            return value
        at = field.find(".", at + 1)
    return MISSING


def field_names(found: dict[str, Any]) -> str:
    """Names of fields for a message, those of objects inside as `a.b`."""
    names = list[str]()
    for name, value in found.items():
        names += [f"{name}.{inner}" for inner in value] if isinstance(value, dict) and value else [name]
    more = f" and {len(names) - _SHOWN_FIELDS} more" if len(names) > _SHOWN_FIELDS else ""
    return (", ".join(map(repr, names[:_SHOWN_FIELDS])) or "none") + more


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int for one in value[:100])


def holds_ids(field: str, kind: str) -> str:
    """Message about a file of token ids. kind: name of the format for `load_dataset`."""
    renamed = "" if field == "input_ids" else f".rename_column({field!r}, 'input_ids')"
    return (
        f"holds token ids in {field!r} and no text. They need not be tokenized: "
        f"datasets.load_dataset({kind!r}, data_files=FILE, split='train'){renamed}.save_to_disk(OUT), then "
        "dataset.path=OUT with the tokenizer that made them"
    )


def not_lines(first: bytes) -> str | None:
    """Message about a JSON file that does not have one object a line, by its first line; None if it can."""
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


def lines(
    text: Iterator[tuple[bytes, int]], longest_bytes: int = LONGEST_BYTES
) -> Iterator[tuple[bytes, int]]:
    """Yield (line without its line feed, offset of its first byte); a line is held whole.

    Raises:
        TooLong: a line that is in several parts of the text has more bytes.
    """
    begun: list[bytes] = []
    start, held = None, 0
    for data, offset in text:
        start = offset if start is None else start
        first, *others = data.split(b"\n")
        begun.append(first)
        held += len(first)
        if held > longest_bytes:
            raise TooLong(start)
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
    """Value of a line of JSON; None for an empty line. Raises BadLine.

    orjson is nearly twice as fast. Python's own parser decides on lines that orjson refuses: NaN is not JSON,
    but many programs write it.
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


def _place(number: int, offset: int) -> str:
    return f"line {number:,} (from byte {offset:,} on)"
