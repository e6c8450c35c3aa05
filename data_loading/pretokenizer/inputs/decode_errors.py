"""Bytes that are no text: how many there are, which tells a wrong encoding from a few stray ones."""

from __future__ import annotations

import codecs

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.sources.tables import TableFile
from data_loading.pretokenizer.sources.text_kinds import advice_for
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.text_io.chunks import HOW_ENCODED, Undecodable
from data_loading.text_io.single_stream import OfStream
from data_loading.text_io.source import Source
from experiment_utils.errors import UserError

_TABLES_ARE_UTF8 = "Tables hold UTF-8: write it again with this text decoded"
_START_BYTES = 1 << 16
MOST_BYTES = 1 << 30
"""How far a text is read for the count."""


def with_count(error: Undecodable, source: Source) -> UserError:
    """The error with the number of such bytes in its text, where that can be read again.

    Of a table, which no encoding can be named for: how else it is mended.
    """
    for part in map(unwrapped, source.parts if isinstance(source, Inputs) else [source]):
        if isinstance(part, TableFile) and str(error).startswith(f"{part.path}, row "):
            return UserError(str(error).replace(HOW_ENCODED, _TABLES_ARE_UTF8), code="undecodable")
        if (
            isinstance(part, OfStream)
            and part.can_continue
            and str(error).startswith(f"{part.stream_name}: ")
        ):
            bad, start = _told(part)
            advice = advice_for(start)
            return UserError(
                f"{error} {bad}" if advice is None else f"{_before_advice(error)}. {advice} {bad}",
                code="undecodable",
            )
    return error


def _before_advice(error: Undecodable) -> str:
    """The byte, without what can be done about a few of them or about another 8-bit encoding."""
    return str(error).partition(f". {HOW_ENCODED}")[0].partition("; --encoding")[0]


def _told(text: OfStream) -> tuple[str, bytes]:
    """(how many bytes are bad, the start of the text)"""
    bad = read = 0
    start = b""

    def count(error: UnicodeError) -> tuple[str, int]:
        nonlocal bad
        if not isinstance(error, UnicodeDecodeError):
            raise error
        bad += error.end - error.start
        return "", error.end

    codecs.register_error("highwater.count", count)
    decoder = codecs.getincrementaldecoder(text.encoding)("highwater.count")
    is_whole = True
    for data in text.raw():
        start = start or data[:_START_BYTES]
        decoder.decode(data)
        read += len(data)
        if read >= MOST_BYTES:
            is_whole = False
            break
    if is_whole:
        decoder.decode(b"", True)
    where = "the text" if is_whole else f"its first {read / 2**30:.1f} GB"
    return f"({bad:,} such byte{'s' * (bad != 1)} in {where})", start
