"""Bytes that are no text: how many there are, which tells a wrong encoding from a few stray ones."""

from __future__ import annotations

import codecs

from conf import UserError
from data_loading.pretokenizer.blocks import HOW_ENCODED, Undecodable
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.of_stream import OfStream
from data_loading.pretokenizer.source import Source
from data_loading.pretokenizer.tables import TableFile
from data_loading.pretokenizer.wrapped import unwrapped

_TABLES_ARE_UTF8 = "Tables hold UTF-8: write it again with this text decoded"
MOST_BYTES = 1 << 30
"""How far a text is read for the count."""


def with_count(error: Undecodable, source: Source) -> UserError:
    """The error with the number of such bytes in its text, where that can be read again.

    Of a table, which no encoding can be named for: how else it is mended.
    """
    for part in map(unwrapped, source.parts if isinstance(source, Inputs) else [source]):
        if isinstance(part, TableFile) and str(error).startswith(f"{part.path}, row "):
            return UserError(str(error).replace(HOW_ENCODED, _TABLES_ARE_UTF8))
        if (
            isinstance(part, OfStream)
            and part.can_continue
            and str(error).startswith(f"{part.stream_name}: ")
        ):
            return UserError(f"{error} {_told(part)}")
    return error


def _told(text: OfStream) -> str:
    bad = read = 0

    def count(error: UnicodeError) -> tuple[str, int]:
        nonlocal bad
        assert isinstance(error, UnicodeDecodeError)
        bad += error.end - error.start
        return "", error.end

    codecs.register_error("highwater.count", count)
    decoder = codecs.getincrementaldecoder(text.encoding)("highwater.count")
    is_whole = True
    for data in text.raw():
        decoder.decode(data)
        read += len(data)
        if read >= MOST_BYTES:
            is_whole = False
            break
    if is_whole:
        decoder.decode(b"", True)
    where = "the text" if is_whole else f"its first {read / 2**30:.1f} GB"
    return f"({bad:,} such byte{'s' * (bad != 1)} in {where})"
