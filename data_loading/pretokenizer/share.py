"""The inputs of one task: those files, and parts of files, that are its share of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from data_loading import content_hash
from data_loading.pretokenizer.block_range import FLAG, BlockRange
from data_loading.pretokenizer.blocks import Chunk, Mark
from data_loading.pretokenizer.cuts import CutRule
from data_loading.pretokenizer.division import border, is_one_document, place_in_table, place_in_text
from data_loading.pretokenizer.file_share import FileShare
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.json_lines import JsonLines
from data_loading.pretokenizer.source import Pieces, Source
from data_loading.pretokenizer.table_parts import Parts
from data_loading.pretokenizer.tables import TableFile
from data_loading.pretokenizer.texts import TextFile


class Share(Inputs):
    """What a task reads. whole: the inputs of all tasks. begins_inside: its first document began before.

    numbers: of its files among those of `whole`. A share may have no text, or no files at all.
    """

    def __init__(
        self, whole: Inputs, block_range: BlockRange, parts: list[tuple[int, Source]], begins_inside: bool
    ) -> None:
        super().__init__([part for _, part in parts], tolerance=whole.tolerance, notes=whole.notes)
        self.whole, self.block_range, self.begins_inside = whole, block_range, begins_inside
        self.numbers = [number for number, _ in parts]

    @property
    def done_bytes(self) -> int:
        return super().done_bytes if self.parts else 0

    @property
    def options(self) -> dict[str, Any]:
        return self.whole.options

    @property
    def what(self) -> str:
        return f"{self.block_range.name} of {self.whole.what}"

    @property
    def arguments(self) -> list[str]:
        return [*self.whole.arguments, FLAG, str(self.block_range)]

    def samples(self) -> list[bytes]:
        """Where there is no text, something to load an engine with."""
        return (super().samples() if self.parts else []) or [b"\n"]

    def state(self) -> Any:
        """Of all inputs: what is in one of them decides where a share of another begins."""
        here = {"task": self.block_range.task, "tasks": self.block_range.tasks}
        return [self.whole.state(), here, content_hash.PIECE_BYTES]

    def facts(self) -> list[dict[str, Any]]:
        """With the number of each file; `pieces` instead of `content_hash` where it is a part of one."""
        return [{"file": number, **fact} for number, fact in zip(self.numbers, super().facts(), strict=True)]


def share_of(whole: Inputs, rule: CutRule, block_range: BlockRange) -> Share:
    """The share of a task; those of all tasks, one after another, are the whole text.

    Reads no more than the text between a border and the place where the share begins. rule: of the
    tokenizer.

    Raises:
        UserError: an input cannot be read.
    """
    first, last = (
        border(whole.parts, rule, number, block_range.tasks)
        for number in (block_range.task, block_range.task + 1)
    )
    parts: list[tuple[int, Source]] = []
    for number, part in enumerate(whole.parts):
        size = part.total_bytes or 1
        begin = 0 if number > first[0] else first[1] if number == first[0] else size
        end = size if number < last[0] else last[1] if number == last[0] else 0
        if begin < end:
            bytes_ = range(begin, end)
            parts.append((number, part if len(bytes_) == size else _part_of(part, rule, bytes_)))
    return Share(whole, block_range, parts, bool(parts) and _begins_inside(parts[0][1]))


def _part_of(part: Source, rule: CutRule, bytes_: range) -> Source:
    """What of an input lies between two borders."""
    if isinstance(part, TableFile):
        borders = (place_in_table(part, byte) for byte in (bytes_.start, bytes_.stop))
        first, last = borders
        parts = range(first, last)
        return TableShare(
            part.path, part.text_field, part.errors, part.longest_bytes, asked=parts, hashed=bytes_
        )
    assert isinstance(part, TextFile | JsonLines)
    file = part.plain_file
    assert file is not None
    begin, end = (place_in_text(part, file, rule, byte) for byte in (bytes_.start, bytes_.stop))
    if isinstance(part, JsonLines):
        stream = FileShare(file, range(begin, end), bytes_)
        encoding, tolerance = part.encoding, part.tolerance
        return JsonShare(
            part.path, part.text_field, encoding, part.errors, tolerance, stream, part.longest_bytes
        )
    if is_one_document(part) and begin and rule.drop_space:
        begin = min(begin + 1, end)
    stream = FileShare(file, range(begin, end), bytes_)
    goes_on = is_one_document(part) and end < file.total_bytes
    return TextShare(part.path, part.encoding, part.errors, part.document_separator, stream, goes_on)


def _begins_inside(part: Source) -> bool:
    return (
        isinstance(part, TextShare)
        and is_one_document(part)
        and isinstance(part.stream, FileShare)
        and part.stream.text.start > 0
        and len(part.stream.text) > 0
    )


@dataclass
class TextShare(TextFile):
    """A part of a text. goes_on: the text of its last document goes on behind it."""

    goes_on: bool = False

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        for chunk in super().chunks(start, pieces):
            if not (self.goes_on and chunk.ends_document):
                yield chunk


@dataclass
class JsonShare(JsonLines):
    """Some of the lines of a file. How many there are before them is not known."""

    def _place(self, number: int, offset: int) -> str:
        return f"the line from byte {offset:,} on"


@dataclass
class TableShare(TableFile):
    """Some parts (row groups or batches) of a table. hashed: bytes of the file, as of a FileShare."""

    asked: range = field(default_factory=lambda: range(0))
    hashed: range = field(default_factory=lambda: range(0))

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = self._open()
        self.total_bytes = self._file.total_bytes * len(self._rows(parts)) // max(1, parts.rows)

    def _range(self, parts: Parts) -> range:
        return self.asked

    def facts(self) -> list[dict[str, Any]]:
        stream = FileShare(self._file, range(self.hashed.stop, self.hashed.stop), self.hashed)
        for _ in stream.read():
            pass
        return [{**stream.facts(), "nulls": self._nulls}]
