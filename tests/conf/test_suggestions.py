"""What was probably meant."""

from __future__ import annotations

import pytest

from conf.keys import groups, keys
from conf.suggestions import SAME_THING_ELSEWHERE, natural, nearest, nearest_keys, or_list

SIZES = ["32d", "48d", "64d", "224d", "256d", "320d"]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("257d", ["256d", "224d", "320d"]),
        ("256", ["256d", "224d", "320d"]),
        ("31", ["32d", "48d", "64d"]),
        ("big", []),
    ],
)
def test_sizes_are_near_by_number(word: str, found: list[str]) -> None:
    assert nearest(word, SIZES) == found


def test_names_are_near_by_spelling() -> None:
    assert nearest("cosin", ["constant", "cosine", "cosine_warmup"])[0] == "cosine"
    assert nearest("GPT2", ["bytes", "gpt2"]) == ["gpt2"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("training.lr", "optimizer.lr"),
        ("training.lrr", "optimizer.lr"),
        ("lr", "optimizer.lr"),
        ("optimzer.lr", "optimizer.lr"),
        ("max_tokens", "training.max_tokens"),
        ("model.heads", "model.n_heads"),
        ("modle", "model"),
        ("tokeniser", "tokenizer"),
        ("sed", "seed"),
        ("training.seqlen", "training.seq_len"),
        ("training.batch_size", "training.effective_batch"),
        ("learning_rate", "optimizer.lr"),
    ],
)
def test_the_likeliest_key_comes_first(path: str, meant: str) -> None:
    assert nearest_keys(path)[0] == meant


def test_nothing_is_suggested_for_what_is_like_nothing() -> None:
    assert nearest_keys("zzzzzz") == []


def test_names_of_other_programs_lead_to_keys_that_there_are() -> None:
    assert set(SAME_THING_ELSEWHERE.values()) <= {*keys(), *groups()}
    assert not set(SAME_THING_ELSEWHERE) & {*keys(), *groups()}


def test_natural_order() -> None:
    assert sorted(["112d", "48d", "wide", "48d_b"], key=natural) == ["48d", "48d_b", "112d", "wide"]


def test_or_list() -> None:
    assert [or_list(["a"]), or_list(["a", "b"]), or_list(["a", "b", "c"])] == ["a", "a or b", "a, b or c"]


def test_a_key_of_ours_that_was_looked_for_in_the_launcher() -> None:
    assert nearest_keys("hydra.launcher.wait") == ["wait"]
