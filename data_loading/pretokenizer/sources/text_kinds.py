"""Refusal of inputs that are no text, by their first bytes."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from pathlib import Path

from data_loading.pretokenizer.sources.stdin import ARGUMENT as STANDARD_INPUT
from data_loading.text_io.byte_files import ByteStream
from experiment_utils.errors import UserError
from memory.files.file_kinds import HEAD_BYTES, PAGES, WIDE_TEXTS, controls_in, kind_of

_TEXT = "a text, lines of JSON or a table"
_PAGE_SUFFIXES = (".html", ".htm", ".xhtml", ".xml", ".php")
_LARGEST_ERROR_PAGE_BYTES = 1 << 20
_TEXT_BYTES_PER_CONTROL = 500
"""A text has fewer control characters; random bytes have one in ten."""
_NOT_IN_TEXT = ("Cc", "Cn", "Co", "Cs")


def refuse_no_text(path: Path, stream: ByteStream, encoding: str, *, may_be_pages: bool) -> None:
    """Raise UserError if the first bytes show another kind of file than a text of this encoding.

    Args:
        stream: the bytes of `path`.
        may_be_pages: a text can begin with an HTML page, as documents with a separator do.
    """
    allowed: set[str] = set()
    is_large = stream.total_bytes is None or stream.total_bytes > _LARGEST_ERROR_PAGE_BYTES
    if may_be_pages or is_large or path.suffix.lower() in _PAGE_SUFFIXES:
        allowed |= PAGES
    if encoding.lower().replace("_", "-").startswith(("utf-16", "utf16", "utf-32", "utf32")):
        allowed |= WIDE_TEXTS
    try:
        head = stream.at(0, HEAD_BYTES)[0]
    except UserError:
        if stream.can_continue:  # a damaged compressed file, which its reader reports
            return
        raise
    refuse_other_kind(path, _TEXT, head, allowed)


def refuse_other_kind(path: Path, expected: str, head: bytes, allowed: Collection[str] = ()) -> None:
    """Raise UserError if the first bytes are those of a kind that is not allowed."""
    kind = kind_of(head)
    if kind is None or kind.id in allowed:
        return
    if kind.id in WIDE_TEXTS and expected == _TEXT:
        raise UserError(
            f"{path} is {kind.name}. Say so: --encoding {kind.id} (in a configuration "
            f"dataset.encoding={kind.id})",
            code="encoding-not-given",
        )
    if path == Path(STANDARD_INPUT):
        raise UserError(
            f"standard input is {kind.name}; expected {expected}. Save it as FILE. {kind.advice_for('FILE')}",
            code="other-kind-of-file",
        )
    page = ". A page that is meant as text is called .html" if kind.id in PAGES and expected == _TEXT else ""
    raise UserError(
        f"{path} is {kind.name}; expected {expected}. {kind.advice_for(path)}{page}",
        code="other-kind-of-file",
    )


def advice_for(data: bytes) -> str | None:
    """Advice about bytes that are not UTF-8; None if naming an 8-bit encoding can help."""
    if controls_in(data) <= len(data) // _TEXT_BYTES_PER_CONTROL:
        return None
    for encoding in ("utf-16-le", "utf-16-be"):
        text = data.decode(encoding, "replace")
        odd = sum(unicodedata.category(c) in _NOT_IN_TEXT and c not in "\t\n\r" for c in text)
        if odd <= len(text) // _TEXT_BYTES_PER_CONTROL:
            return f"It looks like text in UTF-16: --encoding {encoding}"
    return "It holds control characters, so it is no text in any encoding. Leave it out"
