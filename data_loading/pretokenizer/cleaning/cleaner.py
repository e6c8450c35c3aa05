"""Cleaning of text, in pieces of any size: Unicode NFC, control characters, runs of blanks.

In this order, each over the whole document, so that cleaning what is clean changes nothing:

1. Control characters (category Cc) are dropped, except tab, LF and CR; VT, FF and NEL, which end a
   line, become LF. Byte order marks (U+FEFF) at the start of a document are dropped.
2. NFC (Unicode Standard Annex 15, as `unicodedata` has it).
3. A run of spaces and tabs becomes one space; at the end of a line and of the document it is dropped.
4. Of more than two line breaks in a row (CRLF, LF or CR, each kept as it is) the first two stay.

Other blanks, such as U+00A0 and U+3000, are characters like any other.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

MOST_MARKS = 1 << 12
"""Most combining characters in a row. They are held until the run ends and put in order in quadratic time; no
text has as many (Unicode's own limit for streams is 30)."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ASCII_CONTROL = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_LINE_END = re.compile("[\x0b\x0c\x85]")
_BYTE_ORDER_MARK = "\ufeff"
# Possessive: a CRLF is never taken for two line breaks.
_BREAKS = re.compile(r"((?:\r\n?+|\n){2})(?:\r\n?+|\n)+")
_HANGUL_VOWELS_AND_FINALS = range(0x1161, 0x11C3)


class RunTooLong(ValueError):
    """More than MOST_MARKS combining characters in a row."""


@dataclass
class Cleaner:
    """Cleans one document; `finish` makes it ready for the next one.

    held: the end of the text so far, whose NFC depends on what follows. begun: text came after
    the byte order marks. blank: a run of blanks is pending. breaks: line breaks that the text so far
    ends with. control_characters, blanks: how many characters were dropped, over all documents.
    """

    held: str = ""
    begun: bool = False
    blank: bool = False
    breaks: str = ""
    control_characters: int = 0
    blanks: int = 0

    def feed(self, text: str) -> str:
        """Return the cleaned text that no later piece can change. Raises RunTooLong."""
        text = self.held + self._without_controls(text)
        _refuse_long_runs(text)
        cut = _last_boundary(text)
        self.held = text[cut:]
        return self._without_blanks(unicodedata.normalize("NFC", text[:cut]))

    def finish(self) -> str:
        """Return the rest of the document."""
        rest = self._without_blanks(unicodedata.normalize("NFC", self.held))
        self.blanks += self.blank
        self.held, self.begun, self.blank, self.breaks = "", False, False, ""
        return rest

    def state(self) -> dict[str, str | bool | int]:
        """The state as JSON: `Cleaner(**state)` continues from it."""
        return dict(vars(self))

    def _without_controls(self, text: str) -> str:
        if _has_controls(text):
            text, dropped = _CONTROL.subn("", _LINE_END.sub("\n", text))
            self.control_characters += dropped
        if not self.begun and text:
            begun = text.lstrip(_BYTE_ORDER_MARK)
            self.control_characters += len(text) - len(begun)
            text, self.begun = begun, bool(begun)
        return text

    def _without_blanks(self, text: str) -> str:
        """Shorten runs. The line breaks before the text are included: a run is one wherever it is cut."""
        text = self.breaks + " " * self.blank + text
        found = text.replace("\t", " ")
        while "  " in found:
            found = found.replace("  ", " ")
        self.blank = found.endswith(" ")
        found = found.removesuffix(" ").replace(" \n", "\n").replace(" \r", "\r")
        found = _two_breaks_at_most(found)
        self.blanks += len(text) - len(found) - self.blank
        before, self.breaks = len(self.breaks), found[len(found.rstrip("\r\n")) :]
        return found[before:]


def _has_controls(text: str) -> bool:
    if text.isascii():  # several times as fast as looking for them
        return len(text.encode().translate(None, _ASCII_CONTROL)) < len(text)
    return _CONTROL.search(text) is not None


def _two_breaks_at_most(text: str) -> str:
    """A text with line breaks of one kind, which most have, takes a tenth of the time."""
    if "\r" not in text:
        line_break = "\n"
    elif text.count("\r\n") == text.count("\r") == text.count("\n"):
        line_break = "\r\n"
    else:
        return _BREAKS.sub(r"\1", text)
    while line_break * 3 in text:
        text = text.replace(line_break * 3, line_break * 2)
    return text


def _refuse_long_runs(text: str) -> None:
    """Raise RunTooLong. Every MOST_MARKS-th character is checked, so that no longer run is missed."""
    if text.isascii():
        return
    combining = _combining()
    for place in range(MOST_MARKS, len(text), MOST_MARKS):
        begin = end = place
        while begin > 0 and text[begin - 1] in combining and place - begin <= MOST_MARKS:
            begin -= 1
        while end < len(text) and text[end] in combining and end - place <= MOST_MARKS:
            end += 1
        if end > place and end - begin > MOST_MARKS:
            raise RunTooLong


def _last_boundary(text: str) -> int:
    """The last place where the text after it does not change the text before it; 0 if there is none."""
    if text.endswith((" ", "\n", "\r")):  # nothing combines with them
        return len(text)
    combining = _combining()
    for place in range(len(text) - 1, -1, -1):
        if text[place] not in combining:
            return place
    return 0


@cache
def _combining() -> frozenset[str]:
    """Characters that can change with those before them: reordered, or composed with them.

    Their decomposition begins with a mark, or with the second half of some composition
    (UAX 15, 9.1: all others are boundaries).
    """
    halves = {chr(code) for code in _HANGUL_VOWELS_AND_FINALS}
    first = {}
    for code in range(0x300, 0x110000):
        character = chr(code)
        decomposition = unicodedata.decomposition(character)
        if decomposition and not decomposition.startswith("<"):
            halves |= {chr(int(part, 16)) for part in decomposition.split()[1:]}
            first[character] = unicodedata.normalize("NFD", character)[0]
        elif unicodedata.combining(character):
            first[character] = character
    marks = {mark for mark, begin in first.items() if unicodedata.combining(begin) or begin in halves}
    return frozenset(marks | halves)
