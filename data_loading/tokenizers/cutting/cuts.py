"""Safe cuts: places to cut a text into blocks without changing an id, from the tokenizer's own rules.

A cut is a place in UTF-8 bytes: before a space (0x20) that follows a printable ASCII character
(0x21-0x7E), or a letter of a script without spaces, of which no normalizer makes a blank. Where a known
pattern splits the text as it is (no normalizer, or NFC), the character can be any that is no whitespace:
a pattern treats all of them alike there, and NFC neither looks across a space nor adds or removes one.
Line feeds: see `line_feeds`. A cut is safe when

1. no added token can match across it, as written or normalized, nor remove the space after itself
   (`rstrip`);
2. the normalizer works on each side as on the whole;
3. the pre-tokenizer always puts a border there and looks at neither side from the other, or
   there is no pre-tokenizer, but no token of a BPE vocabulary spans the border, so that no merge
   ever does.

Anything that is not listed here as safe has no rule: such documents are encoded whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from data_loading.tokenizers.cutting.line_feeds import (
    SPLIT_AT_WHITESPACE,
    splits_at_line_feed,
    splits_behind_line_feed,
)
from data_loading.tokenizers.cutting.normalizers import (
    CHARACTER_NORMALIZERS,
    WORD_MARK,
    NoRule,
    check_as_normalized,
    check_normalizer,
    keeps_letters,
    leaves_spaces_marked,
)
from data_loading.tokenizers.cutting.split_patterns import isolates, splits_by_known_pattern
from data_loading.tokenizers.cutting.split_proof import NoProof, ends_at_space
from data_loading.tokenizers.cutting.word_boundaries import is_word_ahead, is_word_behind

SPACE, LINE_FEED, SLASH = 0x20, 0x0A, 0x2F


@dataclass(frozen=True)
class CutRule:
    """The safe cuts of a tokenizer."""

    before: tuple[int, ...] = ()
    """Bytes before which a cut is safe after 0x21-0x7E; empty: no safe cut is known."""
    everywhere: bool = False
    """Each border of characters is safe (bytes tokenizer)."""
    drop_space: bool = False
    """The next block begins with a mark instead of the space at the cut (Llama 2's Prepend)."""
    why_none: str = ""
    """Part of the tokenizer that rules out a safe cut."""
    behind_words: bool = False
    """A cut is also safe after a character outside ASCII that is surely no whitespace."""
    at_lines: bool = False
    """A cut is also safe after a line feed, before a character that is surely no whitespace, and no "/"."""
    letters_only: bool = False
    """`behind_words` and `at_lines` count only `word_boundaries.letters` outside ASCII."""

    @property
    def exists(self) -> bool:
        return self.everywhere or bool(self.before)

    @property
    def where(self) -> str:
        """Description of the places for messages."""
        if self.everywhere:
            return "between any two characters"
        names = {SPACE: "a space", LINE_FEED: "a line feed"}
        behind = "a character that is no whitespace" if self.behind_words else "printable ASCII"
        if self.behind_words and self.letters_only:
            behind = "printable ASCII or a letter of Chinese, Japanese, Korean, Thai and the like"
        places = f"before {' or '.join(names[byte] for byte in self.before)} behind {behind}"
        return places + (", or at the start of a line that has no whitespace there" if self.at_lines else "")


EVERY_CHARACTER = CutRule(everywhere=True)


def cut_rule(definition: dict[str, Any]) -> CutRule:
    """The safe cuts of the tokenizer that a parsed tokenizer.json describes."""
    normalizer = steps_of(definition.get("normalizer"), "normalizers")
    steps = steps_of(definition.get("pre_tokenizer"), "pretokenizers")
    added = definition.get("added_tokens") or []
    try:
        splitter, marks_spaces, is_proved = _find_splitter(steps, is_marked=leaves_spaces_marked(normalizer))
        if is_proved and not {step["type"] for step in normalizer} <= {"NFC"}:
            raise NoRule("a Split pattern that is not known, behind a normalizer")
        prepends = check_normalizer(normalizer, splitter)
        if splitter is None:
            marks_spaces = marks_spaces or leaves_spaces_marked(normalizer)
            _check_vocabulary(definition["model"], marks_spaces)
            if any(step["type"] == "Precompiled" for step in normalizer):
                raise NoRule("a Precompiled normalizer without a pre-tokenizer that splits at spaces")
        line_feed_too = not is_proved and splits_at_line_feed(definition, splitter, steps, prepends=prepends)
        before: tuple[int, ...] = (SPACE, LINE_FEED) if line_feed_too else (SPACE,)
        for token in added:
            before = _check_added_token(token, before, prepends)
        check_as_normalized(definition, normalizer)
        kinds = {step["type"] for step in normalizer}
        by_pattern = splitter is not None and splitter["type"] in ("ByteLevel", "Split") and not is_proved
        # Blanks that BERT's normalizer puts next to a letter are dropped, if no token is looked for before.
        at_blanks = splitter is not None and splitter["type"] in SPLIT_AT_WHITESPACE
        at_blanks = at_blanks and not is_proved and not any(token.get("normalized") for token in added)
        any_word = by_pattern and kinds <= {"NFC"}
        lines = by_pattern and kinds <= set(CHARACTER_NORMALIZERS)
        return CutRule(
            before=before,
            drop_space=prepends,
            behind_words=any_word or at_blanks or keeps_letters(normalizer),
            letters_only=not any_word,
            at_lines=lines and splits_behind_line_feed(steps, added),
        )
    except NoRule as reason:
        return CutRule(why_none=str(reason))


def _check_added_token(token: dict[str, Any], before: tuple[int, ...], prepends: bool) -> tuple[int, ...]:
    """Bytes before which a cut stays safe. A special token is not matched, but hides others."""
    content = token["content"]
    for cut in before:
        inside = any(content[i] == chr(cut) and not content[i - 1].isspace() for i in range(1, len(content)))
        looks_back = content[:1] == chr(cut) and token.get("single_word")
        if inside or looks_back:
            if cut == SPACE:
                raise NoRule(f"the added token {content!r} matches across a space")
            before = tuple(b for b in before if b != cut)
    if token.get("special"):
        return before
    if token.get("rstrip"):
        raise NoRule(f"the added token {content!r} takes the spaces after it (rstrip)")
    if prepends:
        raise NoRule(f"the added token {content!r} next to a Prepend normalizer")
    return before


def _find_splitter(
    steps: list[dict[str, Any]], *, is_marked: bool
) -> tuple[dict[str, Any] | None, bool, bool]:
    """(the step that always puts a border at a space, whether one only marks spaces instead, is_proved).

    Steps after the splitter see its pieces one by one. Where there is none, a piece spans spaces, so that
    every step has to be known: one Metaspace that marks them, and what looks at one character. Raises
    NoRule for any other, before it or behind. is_marked: the normalizer has left no space. is_proved: a Split
    up to there is known by `split_proof` alone, which is about spaces behind ASCII and `letters`.
    """
    marks_spaces = is_proved = False
    for step in steps:
        kind = step["type"]
        if kind == "Digits" or (kind == "Punctuation" and step.get("behavior", "Isolated") == "Isolated"):
            continue  # looks at one character, and the word mark is neither
        if is_marked and kind == "Split" and step.get("pattern") == {"String": " "}:
            continue  # Gemma's, which finds nothing
        if kind == "Metaspace" and not step.get("split", True):
            if marks_spaces or step.get("replacement") != WORD_MARK:
                raise NoRule(f"the pre-tokenizer Metaspace with the mark {step.get('replacement')!r}")
            marks_spaces = True
        elif not marks_spaces and kind == "Split" and not splits_by_known_pattern(step):
            is_proved = True
            if _proved(step):
                return step, False, True
        elif not marks_spaces and _splits_at_space(step):
            return step, False, is_proved
        else:
            raise NoRule(f"the pre-tokenizer {kind}")
    if is_proved:
        raise NoRule("a Split pattern, and nothing that splits at spaces")
    return None, marks_spaces, False


def _proved(split: dict[str, Any]) -> bool:
    """Whether an unknown Split always puts a border at a space. Raises NoRule without a proof."""
    pattern = split.get("pattern", {})
    regex = pattern.get("Regex") or re.escape(pattern.get("String", ""))
    if not isolates(split):
        raise NoRule("a Split pattern that is not known")
    try:
        return ends_at_space(regex)
    except NoProof as why:
        raise NoRule(f"a Split pattern that is not known: {why}") from None


def _splits_at_space(step: dict[str, Any]) -> bool:
    kind = step["type"]
    if kind == "ByteLevel":
        return step.get("use_regex", True)
    return kind in ("Split", "Metaspace", *SPLIT_AT_WHITESPACE)


def _check_vocabulary(model: dict[str, Any], marks_spaces: bool) -> None:
    """Raises NoRule unless this is a BPE that no merge can take across a marked space.

    A unigram model is left out: its sums of scores over a whole text round differently in parts.
    """
    if (
        "merges" not in model
        or model.get("ignore_merges")
        or not marks_spaces
        or WORD_MARK not in model["vocab"]
    ):
        raise NoRule("no pre-tokenizer that splits at spaces")
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise NoRule("a mark for parts of words, and no pre-tokenizer that splits at spaces")
    for token in model["vocab"]:
        if WORD_MARK in token.lstrip(WORD_MARK):
            raise NoRule(f"the token {token!r} spans a space")


def steps_of(part: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    """The normalizers or pre-tokenizers of a tokenizer.json in order. key: of those in a Sequence."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [step for item in part[key] for step in steps_of(item, key)]
    return [part]


def last_cut(data: bytes | bytearray, rule: CutRule, start: int, stop: int) -> int | None:
    """The last safe cut p with start < p <= stop: data[:p] and data[p:] may be encoded apart.

    Where the rule drops the space, data[p + 1:] is what follows.
    """
    stop = min(stop, len(data) - (2 if rule.drop_space else 1))
    width = 1 << 12
    high = stop
    while high > start:
        low = max(start, high - width)  # candidates p in (low, high]
        found = next(_cuts(data, low, high, rule, step=-1), None)
        if found is not None:
            return found
        high, width = low, width * 8
    return None


def first_cut(data: bytes | bytearray, rule: CutRule, start: int) -> int | None:
    """The first safe cut p with p > start."""
    stop = len(data) - (2 if rule.drop_space else 1)
    low, width = max(start, 0), 1 << 12
    while low < stop:
        high = min(stop, low + width)
        found = next(_cuts(data, low, high, rule, step=1), None)
        if found is not None:
            return found
        low, width = high, width * 8
    return None


def _cuts(data: bytes | bytearray, low: int, high: int, rule: CutRule, *, step: int) -> Iterator[int]:
    """The safe cuts p with low < p <= high, ascending or (step -1) descending. data: longer than `high`.

    Neighbours outside ASCII are decoded only for the places that a caller takes.
    """
    import numpy as np

    window = np.frombuffer(data, np.uint8, high - low + 1, low)
    before, after = window[:-1], window[1:]
    if rule.everywhere:
        safe = (after & 0xC0) != 0x80  # not inside a character of UTF-8
        yield from map(int, low + 1 + np.flatnonzero(safe)[::step])
        return
    wanted = np.zeros(len(after), bool)
    for byte in rule.before:
        wanted |= after == byte
    safe = wanted & (before >= 0x21) & (before <= 0x7E)
    behind = wanted & (before >= 0x80) if rule.behind_words else np.zeros(len(after), bool)
    ahead = np.zeros(len(after), bool)
    if rule.at_lines:
        at_line = before == LINE_FEED
        safe |= at_line & (after >= 0x21) & (after <= 0x7E) & (after != SLASH)
        ahead = at_line & (after >= 0x80)
    for index in np.flatnonzero(safe | behind | ahead)[::step].tolist():
        place = low + 1 + index
        if (
            safe[index]
            or (behind[index] and is_word_behind(data, place, letters_only=rule.letters_only))
            or (ahead[index] and is_word_ahead(data, place, letters_only=rule.letters_only))
        ):
            yield place
