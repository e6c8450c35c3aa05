"""Count of bytes that are no text, which distinguishes a wrong encoding from a few stray bytes."""

from __future__ import annotations

import codecs

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.sources.tables import TableFile
from data_loading.pretokenizer.sources.text_kinds import advice_for
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.text_io.chunks import HOW_ENCODED, Undecodable
from data_loading.text_io.single_stream import OneStream
from experiment_utils.errors import UserError

_TABLES_ARE_UTF8 = "Tables hold UTF-8: write it again with this text decoded"
_START_BYTES = 1 << 16
MOST_BYTES = 1 << 30
"""Text that is read for the count, at most."""


def with_count(error: Undecodable, inputs: Inputs) -> UserError:
    """The error with the number of such bytes in its text if that can be read again, and advice that fits."""
    message = str(error)
    for part in map(unwrapped, inputs.parts):
        if isinstance(part, TableFile) and message.startswith(f"{part.path}, row "):
            return UserError(message.replace(HOW_ENCODED, _TABLES_ARE_UTF8), code="undecodable")
        if isinstance(part, OneStream) and part.can_continue and message.startswith(f"{part.stream.name}: "):
            try:
                count, start = _count(part)
            except UnicodeError:  # UTF-32 without a byte order mark: no byte can be left out
                return error
            advice = advice_for(start)
            if advice is not None:
                message = f"{message.partition(f'. {HOW_ENCODED}')[0].partition('; --encoding')[0]}. {advice}"
            return UserError(f"{message} {count}", code="undecodable")
    return error


def _count(text: OneStream) -> tuple[str, bytes]:
    """(number of bad bytes as text, the start of the text)."""
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
    where = "the text"
    for data, _ in text.stream.read():
        start = start or data[:_START_BYTES]
        decoder.decode(data)
        read += len(data)
        if read >= MOST_BYTES:
            where = f"its first {read / 2**30:.1f} GB"
            break
    else:
        decoder.decode(b"", True)
    return f"({bad:,} such byte{'s' * (bad != 1)} in {where})", start
