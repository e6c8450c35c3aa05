"""What is proved of a pattern holds for every text, and nothing is proved of one that a cut can change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tokenizers import Regex, pre_tokenizers

from data_loading.tokenizers.cutting.cuts import CutRule
from data_loading.tokenizers.cutting.split_patterns import KNOWN_PATTERNS
from data_loading.tokenizers.cutting.split_proof import NoProof, ends_at_space
from tests.data_loading.conftest import DEEPSEEK_PATTERNS, TEKKEN_PATTERN, hostile_text
from tests.data_loading.tokenizers.cutting.test_cuts import safe_cuts
from tests.searched import examples

PROVED = (
    *KNOWN_PATTERNS, *DEEPSEEK_PATTERNS, TEKKEN_PATTERN, r"(?:\s|a)|x", r" {2,}|x", r"\s+(?!\S)", r"xx?",
    r"(?:ab|c){2}|\s", r" ?(?:\p{L}+|\p{N})|\s", r"\s+$|[a-z]+", r"[a&b]+| +",
    r"\s?+\s|[0-9]", r"\s*+\s|[0-9]", r"(?:\s|\n){2}|[0-9]", r"(\s|\t{2,}){2}", r"(?: |\n)?+\s|[0-9]",
)  # fmt: skip
NOT_PROVED = (
    r"\S+ ?|\s+", r".+", r"[^\n]+", r"a b", r"\w+\s|\s+", r"(?:x| )+", r"(?:a|\s){2}", r"\s*", r"a?|b",
    r"x(?!\S)|\s+", r"\p{L}+(?=\s)|\s+", r"[a-z]+$|\s", r"x\s*(?!\S)|\s", r"(?<!a)b", r"(?<=a)b", r"\bx",
    r"[a&&b]", r"[[:alpha:]]+", r"(a)\1", r"(a", r"a)", r"+a", r"a(?=b)", r"(?>a)", r"\Ga", r"(?i:\u017f ?) ",
    r"[ a-z,]{1}+", r"(?: |\w){1}+", r"\w+\n{1}?(?=\s)|\w| ", r"\w+\n{1,0}(?=\s)|\w| ",
)  # fmt: skip


def pieces(pattern: str, text: str) -> list[str]:
    return [piece for piece, _ in pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)]


@pytest.mark.parametrize("pattern", PROVED)
@settings(max_examples=examples(60))
@given(text=hostile_text)
def test_pieces_of_the_parts_are_those_of_the_whole(pattern: str, text: str) -> None:
    rule = CutRule((0x20,), behind_words=True, letters_only=True)
    always = ends_at_space(pattern)
    whole = pieces(pattern, text)
    for cut in safe_cuts(text.encode(), rule):
        left, right = text.encode()[:cut].decode(), text.encode()[cut:].decode()
        apart = [*pieces(pattern, left), *pieces(pattern, right)]
        if always:
            assert apart == whole
        else:  # without a border at the cut, the two pieces there are one of the whole
            assert "".join(apart) == "".join(whole)
            there = len(pieces(pattern, left))
            joined = [*apart[: there - 1], apart[there - 1] + apart[there], *apart[there + 1 :]]
            assert whole in (apart, joined)


@pytest.mark.parametrize("pattern", NOT_PROVED)
def test_nothing_is_proved_where_a_cut_can_change_a_piece_or_a_construct_is_unknown(pattern: str) -> None:
    with pytest.raises(NoProof):
        ends_at_space(pattern)


@pytest.mark.parametrize(
    ("pattern", "always"), [
        (TEKKEN_PATTERN, True), (r"\p{N}{1,3}", False), (r" {2,}", False), (r"\s", True), (r"\s?\s", True),
        (r"\s?+\s|[0-9]", False), (r"\s*+\s|[0-9]", False), (r"(?: |\n)?+\s|[0-9]", False),
        (r"(?:\s|\n){2}|[0-9]", False), (r"(?:\s|\n){1,2}|[0-9]", True), (r"(\s|\t{2,}){2}|[0-9]", False),
    ],
)  # fmt: skip
def test_a_border_at_every_space_is_told_from_one_at_some(pattern: str, always: bool) -> None:
    assert ends_at_space(pattern) == always
