"""Where the share of a task begins: places at which inputs may be cut without changing one id.

Borders divide the bytes of all inputs evenly. Inside a file that can be entered there, a border lies at a
border of the pieces that its content hash is made of, so that each task hashes whole pieces; the text of
a share begins at the first place at or behind it where a document begins, or where the tokenizer's rules
allow a cut. Any other file belongs to one task alone.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from data_loading import content_hash
from data_loading.pretokenizer.byte_files import READ_BYTES, ByteFile
from data_loading.pretokenizer.cuts import CutRule, first_cut
from data_loading.pretokenizer.json_lines import JsonLines
from data_loading.pretokenizer.source import Source
from data_loading.pretokenizer.tables import TableFile
from data_loading.pretokenizer.texts import TextFile, divided
from experiment_utils.errors import UserError

Border = tuple[int, int]
"""(number of the file, byte in it)."""


def border(parts: Sequence[Source], rule: CutRule, number: int, tasks: int) -> Border:
    """Where the share of the task `number` begins, and the one before it ends."""
    sizes = [part.total_bytes or 1 for part in parts]
    place = sum(sizes) * number // tasks
    for file, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if place < size:
            piece = content_hash.PIECE_BYTES if may_be_divided(part, rule) else size
            before = place // piece * piece
            behind = min(before + piece, size)
            nearest = before if place - before < behind - place else behind
            return (file, nearest) if nearest < size else (file + 1, 0)
        place -= size
    return len(parts), 0


def may_be_divided(part: Source, rule: CutRule) -> bool:
    """Whether a share may begin inside this input."""
    if isinstance(part, TableFile):
        return len(part.part_starts) > 1
    if not isinstance(part, TextFile | JsonLines) or part.plain_file is None:
        return False
    # Bytes that are left out may be all there is before a cut, and then no document would begin there.
    return (
        isinstance(part, JsonLines) or not is_one_document(part) or (rule.exists and part.errors != "ignore")
    )


_SEEN_BYTES = 4
"""Beside a cut: the longest character of UTF-8 on either side is looked at."""


def is_one_document(part: Source) -> bool:
    return isinstance(part, TextFile) and part.document_separator is None


def place_in_text(part: TextFile | JsonLines, file: ByteFile, rule: CutRule, byte: int) -> int:
    """The first byte at or behind `byte`, inside the file, before which it may be cut; its length where
    there is none.

    Raises:
        UserError: the file cannot be read.
    """
    if byte in (0, file.total_bytes):
        return byte
    try:
        if isinstance(part, JsonLines):
            return _next_line(file, byte)
        if part.document_separator is None:
            return _next_safe_cut(file, rule, byte)
        return _next_document(file, part.document_separator.encode(), byte)
    except OSError as error:
        raise UserError(f"{file.path} cannot be read: {error.strerror}", code="file-unreadable") from error


def place_in_table(part: TableFile, byte: int) -> int:
    """The first part (row group or batch) that begins at or behind the byte."""
    return bisect_left(part.part_starts, byte)


def _next_line(file: ByteFile, byte: int) -> int:
    for data, offset in _read_from(file, byte - 1):
        found = data.find(b"\n")
        if found >= 0:
            return offset + found + 1
    return file.total_bytes


def _next_safe_cut(file: ByteFile, rule: CutRule, byte: int) -> int:
    held, start = b"", max(0, byte - _SEEN_BYTES)
    for data, offset in _read_from(file, start):
        first = offset - len(held)
        held += data
        found = first_cut(held, rule, max(0, byte - 1 - first))
        if found is not None:
            return first + found
        held = held[-2 * _SEEN_BYTES :]  # the next candidates, and what is beside them
    return file.total_bytes


def _next_document(file: ByteFile, separator: bytes, byte: int) -> int:
    # A separator that ends at `byte` begins, with a line break before it, behind this.
    start = max(0, byte - len(separator) - 3)
    at_line_start = start == 0 or next(_read_from(file, start - 1))[0][:1] == b"\n"
    has_ended = False
    text = _read_from(file, start)
    for chunk in divided(text, separator, "", at_line_start=at_line_start, first=start):
        if has_ended and chunk.offset >= byte:
            return chunk.offset
        has_ended = chunk.ends_document
    return file.total_bytes


def _read_from(file: ByteFile, byte: int) -> Iterator[tuple[bytes, int]]:
    with open(file.path, "rb", buffering=0) as opened:
        while data := os.pread(opened.fileno(), READ_BYTES, byte):
            yield data, byte
            byte += len(data)
