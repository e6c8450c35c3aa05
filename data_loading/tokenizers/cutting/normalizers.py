"""Normalizers that keep a cut safe: each side is normalized alike alone and in the whole text."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import pairwise
from typing import Any

from data_loading.tokenizers.cutting.word_boundaries import letters

_LOCAL_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "BertNormalizer")
CHARACTER_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")
"""Normalizers that keep line feeds, the word mark and `letters`."""
WORD_MARK = "▁"


class NoRule(Exception):
    """No safe cut is known. The message is the reason."""


def check_as_normalized(definition: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    """An added token with `normalized` is looked for, as its normalized self, in the normalized text.

    There a printable ASCII character is no blank, and the space behind it a space or the word mark.
    """
    tokens = [t for t in definition.get("added_tokens") or [] if t.get("normalized")] if steps else []
    if not tokens:
        return
    for token in tokens:
        content = normalized(definition, token["content"])
        blank = [character.isspace() or character == WORD_MARK for character in content]
        spans = any(here and not there for there, here in pairwise(blank))
        looks_back = token.get("single_word") and any(blank[:1])
        if spans or looks_back:
            raise NoRule(f"the added token {token['content']!r} matches across a space once it is normalized")
        if any(step["type"] == "Precompiled" for step in steps):  # what it makes of " \u0301" is not known
            raise NoRule(f"the added token {token['content']!r} next to a Precompiled normalizer")


def normalized(definition: dict[str, Any], text: str) -> str:
    """The text as the normalizer of a parsed tokenizer.json makes it."""
    if definition.get("normalizer") is None:
        return text
    return _normalizer(json.dumps(definition["normalizer"])).normalize_str(text)


@lru_cache(maxsize=2)
def _normalizer(part: str) -> Any:
    from tokenizers import Tokenizer

    empty = '{"type": "BPE", "vocab": {}, "merges": []}'
    return Tokenizer.from_str(f'{{"version": "1.0", "normalizer": {part}, "model": {empty}}}').normalizer


def keeps_letters(steps: list[dict[str, Any]]) -> bool:
    """Whether no step turns one of `letters` into a blank, the word mark or nothing, or adds a blank."""
    return all(
        step["type"] in (*CHARACTER_NORMALIZERS, "Nmt", "Prepend", "Replace")
        or (step["type"] == "Precompiled" and _keeps_letters(step))
        for step in steps
    )


def _keeps_letters(step: dict[str, Any]) -> bool:
    """A table of SentencePiece: it works on each character alone between two spaces."""
    changed = precompiled(step).normalize_str(" ".join(map(chr, letters())))
    parts = changed.split(" ")
    return len(parts) == len(letters()) and changed.split() == parts and WORD_MARK not in changed


def precompiled(step: dict[str, Any]) -> Any:
    """The normalizer with a table of SentencePiece. Raises Exception for a bad table."""
    from base64 import b64decode

    from tokenizers.normalizers import Precompiled

    return Precompiled(b64decode(step["precompiled_charsmap"], validate=True))


def check_normalizer(steps: list[dict[str, Any]], splitter: dict[str, Any] | None) -> bool:
    """Whether it prepends the word mark to a text. Raises NoRule if it can look across a cut."""
    kinds = [step["type"] for step in steps]
    for step in steps:
        if step["type"] == "Replace":
            _check_replace(step, splitter)
        elif step["type"] == "Precompiled":
            _check_precompiled(step)
        elif step["type"] not in (*_LOCAL_NORMALIZERS, "Prepend"):
            raise NoRule(f"the normalizer {step['type']}")
    if "Prepend" not in kinds:
        return False
    known = kinds == ["Prepend", "Replace"] and marks_each_space(steps[1]) and splitter is None
    if not known or steps[0].get("prepend") != WORD_MARK:
        raise NoRule("a Prepend normalizer among other steps")
    return True


def _check_replace(step: dict[str, Any], splitter: dict[str, Any] | None) -> None:
    """Known: space to word mark, a run of spaces to one of them, and ALBERT's quotation marks."""
    pattern, content = step.get("pattern"), step.get("content")
    if pattern in ({"String": "``"}, {"String": "''"}) and content == '"':
        return
    if pattern == {"Regex": " {2,}"} and content == " ":
        return
    marks_spaces = pattern in ({"String": " "}, {"Regex": " {2,}"}) and content == WORD_MARK
    if not (marks_spaces and (splitter is None or splitter.get("replacement") == WORD_MARK)):
        raise NoRule("a Replace normalizer that is not known")


def marks_each_space(step: dict[str, Any]) -> bool:
    marks = step.get("pattern") == {"String": " "} and step.get("content") == WORD_MARK
    return step["type"] == "Replace" and marks


def leaves_spaces_marked(steps: list[dict[str, Any]]) -> bool:
    """One step marks each space, and none after it takes the mark for a blank (as Nmt does)."""
    marked = False
    for step in steps:
        marked = marks_each_space(step) or (marked and step["type"] in CHARACTER_NORMALIZERS)
    return marked


def _check_precompiled(step: dict[str, Any]) -> None:
    """Raise NoRule if a table of SentencePiece, which works on single characters, changes blanks."""
    table = precompiled(step)
    for character in map(chr, range(0x20, 0x7F)):
        changed = table.normalize_str(character)
        blank = changed.split() != [changed] or WORD_MARK in changed
        if changed != character and (character == " " or blank):
            raise NoRule(f"a Precompiled normalizer that turns {character!r} into {changed!r}")
