"""Tokenizers put together at random: where a rule is found, its cuts change no id."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from data_loading.tokenizers.cutting.cuts import cut_rule
from data_loading.tokenizers.tokenizer import JsonTokenizer
from tests.data_loading.conftest import tokenizer_folder_text
from tests.data_loading.tokenizers.cutting.test_cuts import encoded_apart, safe_cuts
from tests.golden_text import Golden
from tests.searched import examples

Part = dict[str, Any]

MARK = "▁"
CHARACTERS = [
    *"ab1! x\n\t'`",
    MARK,
    "é",
    "中",
    "\u00a0",
    "\u0085",
    "\u3000",
    "\u200b",
    "\u0301",
    "ﬁ",
    "字",
    "。",
    "<unk>",
]
PIECES = [*CHARACTERS[:-1], "a b", "  ", " a", "a ", "``", "''", "\u2003", "\ufb01x", "İ"]


def replace(pattern: Part, content: str) -> Part:
    return {"type": "Replace", "pattern": pattern, "content": content}


EACH_SPACE = replace({"String": " "}, MARK)
SPACES = {"Regex": " {2,}"}
BERT = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
NORMALIZERS: list[Part] = [
    EACH_SPACE,
    replace(SPACES, MARK),
    replace(SPACES, " "),
    replace({"String": "``"}, '"'),
    {"type": "Prepend", "prepend": MARK},
    {"type": "BertNormalizer", **BERT},
    *({"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")),
]


def metaspace(split: bool, replacement: str = MARK) -> Part:
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": "never", "split": split}


PRE_TOKENIZERS: list[Part | None] = [
    None,
    metaspace(False),
    metaspace(True),
    metaspace(True, "_"),
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    {"type": "WhitespaceSplit"},
]

OTHER_STEPS: list[Part] = [
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    {"type": "FixedLength", "length": 3},
    {"type": "Split", "pattern": {"String": f"!{MARK}"}, "behavior": "MergedWithPrevious", "invert": False},
    {"type": "Split", "pattern": {"Regex": ".{1,2}"}, "behavior": "Isolated", "invert": False},
    {"type": "UnicodeScripts"},
    {"type": "CharDelimiterSplit", "delimiter": "a"},
    {"type": "Digits", "individual_digits": True},
    {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Punctuation", "behavior": "MergedWithNext"},
]


def sequence(*steps: Part) -> Part:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def word_model(pairs: list[tuple[str, str]], suffix: str | None = None, prefix: str | None = None) -> Part:
    """A BPE of a few characters; the pairs are its merges."""
    tokens = [*CHARACTERS, "_", '"', *"âĸģ"]
    tokens += [token + (suffix or "") for token in tokens] + [(prefix or "") + token for token in tokens]
    made = [left + right.removeprefix(prefix or "\0") for left, right in pairs]
    vocab = {token: index for index, token in enumerate(dict.fromkeys([*tokens, *made]))}
    return {
        "type": "BPE",
        "unk_token": "<unk>",
        "continuing_subword_prefix": prefix,
        "end_of_word_suffix": suffix,
        "vocab": vocab,
        "merges": [list(pair) for pair in pairs],
    }


MODELS = [
    word_model([("a", "b"), (MARK, "a")]),
    word_model([("a", " "), ("a ", "b"), ("!", " ")]),
    word_model([("a", MARK), (MARK, "b")]),
    word_model([("a", "b")], suffix="</w>"),
    word_model([(MARK, "##a")], prefix="##"),
]
SPELLED = word_model([("a", "â")])
"""As `ByteLevel` spells it, the mark begins with "â": the merge takes it into a word."""


def definition(model: Part, pre: Part | None, steps: list[Part], added: list[Part]) -> Part:
    if pre is not None and pre["type"] == "ByteLevel":
        model = json.loads(tokenizer_folder_text("gpt2"))["model"]
    first = max(model["vocab"].values()) + 1
    return {
        "version": "1.0",
        "added_tokens": [{"id": first + n, **token} for n, token in enumerate(added)],
        "normalizer": {"type": "Sequence", "normalizers": steps} if len(steps) != 1 else steps[0],
        "pre_tokenizer": pre,
        "model": model,
    }


def token(content: str, *flags: str) -> Part:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"content": content, **{name: name in flags for name in names}}


added_token = st.builds(
    token,
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join),
    st.sampled_from(["", "single_word", "lstrip", "rstrip"]),
    st.sampled_from(["", "normalized"]),
    st.sampled_from(["", "", "special"]),
)
any_steps = st.lists(st.sampled_from([*PRE_TOKENIZERS[1:], *OTHER_STEPS]), min_size=1, max_size=3)
any_definition = st.builds(
    definition,
    st.sampled_from(MODELS),
    st.one_of(st.sampled_from(PRE_TOKENIZERS), any_steps.map(lambda steps: sequence(*steps))),
    st.lists(st.sampled_from(NORMALIZERS), max_size=2),
    st.lists(added_token, max_size=2, unique_by=lambda found: found["content"]),
)
text = st.lists(st.sampled_from([*PIECES, " "]), min_size=3, max_size=30).map("".join)


def check(found: Part, text: str) -> None:
    """With each added token, whole and in words, in the text."""
    rule = cut_rule(found)
    assert rule.exists or rule.why_none
    assume(rule.exists)
    contents = [added["content"] for added in found["added_tokens"]]
    for character in ("\u00a0", "\t", "\u0085", "\u3000", MARK):
        contents += [content.replace(character, " ") for content in contents]
    tokenizer = JsonTokenizer("any", found, None, ())
    for whole in (text, *(f"{text}a{content} {content}b" for content in dict.fromkeys(contents))):
        data = whole.encode()
        assert (
            encoded_apart(tokenizer, data, list(safe_cuts(data, rule))) == tokenizer.encode(whole).tolist()
        ), whole


@settings(max_examples=examples(250), suppress_health_check=[HealthCheck.filter_too_much])
@given(found=any_definition, text=text)
@example(definition(MODELS[0], None, [EACH_SPACE], []), "a b  !")
@example(definition(SPELLED, sequence(metaspace(False), OTHER_STEPS[0]), [], []), "a b")
@example(definition(MODELS[1], None, [EACH_SPACE, {"type": "Nmt"}], []), "a b")
@example(definition(SPELLED, OTHER_STEPS[0], [EACH_SPACE], []), "a b")
def test_where_there_is_a_rule_its_cuts_change_no_id(found: Part, text: str) -> None:
    check(found, text)


@pytest.mark.soak
@settings(max_examples=3_000, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(found=any_definition, text=text)
def test_where_there_is_a_rule_its_cuts_change_no_id_in_many_more(found: Part, text: str) -> None:
    check(found, text)


BYTE_LEVEL = PRE_TOKENIZERS[4]


@pytest.mark.parametrize(
    "found",
    [
        definition(MODELS[0], None, [EACH_SPACE], [token(f"a{MARK}b", "normalized")]),
        definition(MODELS[0], BYTE_LEVEL, [{"type": "NFKC"}], [token("a\u00a0b", "normalized")]),
        definition(MODELS[0], BYTE_LEVEL, [{"type": "Nmt"}], [token("a\tb", "normalized")]),
        definition(MODELS[0], BYTE_LEVEL, [NORMALIZERS[5]], [token("a\u3000b", "normalized")]),
        definition(MODELS[0], None, [EACH_SPACE], [token(f"{MARK}b", "normalized", "single_word")]),
        definition(MODELS[3], metaspace(False), [], []),
        definition(MODELS[4], metaspace(False), [], []),
        definition(MODELS[1], None, [replace(SPACES, " ")], []),
        definition(MODELS[0], None, [replace(SPACES, MARK)], []),
        definition(MODELS[0], None, [replace({"String": "``"}, '"')], []),
        definition(MODELS[0], None, [NORMALIZERS[4], replace(SPACES, MARK)], []),
        definition(MODELS[0], metaspace(True, "_"), [EACH_SPACE], []),
        definition(MODELS[1], None, [EACH_SPACE, {"type": "Nmt"}], []),
        definition(MODELS[0], metaspace(False, "_"), [EACH_SPACE], []),
        *(
            definition(MODELS[0], sequence(*steps), [EACH_SPACE], [])
            for step in (*OTHER_STEPS[:6], OTHER_STEPS[8])
            for steps in ((metaspace(False), step), (step, metaspace(False)), (step,))
        ),
        definition(MODELS[0], sequence(metaspace(False), BYTE_LEVEL), [], []),
        definition(MODELS[0], sequence(metaspace(False), metaspace(False)), [], []),
    ],
)
def test_when_in_doubt_there_is_no_rule(found: Part, golden: Golden) -> None:
    rule = cut_rule(found)
    assert not rule.exists
    golden.text(rule.why_none)


@pytest.mark.parametrize("step", OTHER_STEPS[6:8])
def test_what_looks_at_one_character_may_stand_beside_the_marks(step: Part) -> None:
    for steps in ((metaspace(False), step), (step, metaspace(False))):
        assert cut_rule(definition(MODELS[0], sequence(*steps), [], [])).exists


def test_an_added_token_that_stays_within_words_keeps_the_rule() -> None:
    for steps in ([EACH_SPACE], [{"type": "NFKC"}, EACH_SPACE]):
        for content in ("<tool>", "  ", f"{MARK}x", " x"):
            assert cut_rule(definition(MODELS[0], None, steps, [token(content, "normalized")])).exists
