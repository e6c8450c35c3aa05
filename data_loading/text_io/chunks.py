"""Chunks of documents, and the error for bytes that are not text."""

from __future__ import annotations

from typing import Any, NamedTuple

from experiment_utils.errors import UserError

HOW_ENCODED = "Say how the text is encoded (--encoding latin-1, cp1252, utf-16, ...)"

Mark = dict[str, Any]
"""Start of a chunk in its source, as a JSON object whose keys only the source knows."""


class Chunk(NamedTuple):
    """A part of a document: UTF-8, any length.

    source: the file, for messages. offset: of its first byte there. ends_document: nothing of the
    document follows. mark: from which the source yields this chunk and all after it again.
    """

    data: bytes
    source: str
    offset: int
    ends_document: bool
    mark: Mark | None = None


class Undecodable(UserError):
    """A byte is no text."""

    code = "undecodable"


def undecodable(source: str, encoding: str, offset: int, byte: int) -> Undecodable:
    """The error for the first byte that is not text."""
    return Undecodable(
        f"{source}: byte {offset:,} (0x{byte:02x}) is not {encoding}. {HOW_ENCODED}, or what to do with such "
        "bytes (--errors replace or ignore)"
    )


def not_utf8(chunks: list[Chunk]) -> UserError:
    """The error for chunks of which one is not UTF-8."""
    for chunk in chunks:
        try:
            chunk.data.decode("utf-8")
        except UnicodeDecodeError as error:
            return undecodable(chunk.source, "utf-8", chunk.offset + error.start, chunk.data[error.start])
    raise AssertionError("all chunks are UTF-8")
