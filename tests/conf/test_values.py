"""One value against its key: what is taken, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.keys import Key, groups, keys, keys_of
from conf.values import convert, describe


def key(path: str) -> Key:
    return keys()[path]


@pytest.mark.parametrize(
    ("path", "given", "value"),
    [
        ("optimizer.lr", "1e-3", 1e-3),
        ("optimizer.lr", 1, 1.0),
        ("optimizer.grad_clip", None, None),
        ("training.max_tokens", "1B", 10**9),
        ("training.max_tokens", 1e9, 10**9),
        ("training.effective_batch", "64", 64),
        ("training.micro_batch", "auto", "auto"),
        ("training.micro_batch", "8", 8),
        ("training.micro_batch", 8, 8),
        ("training.activation_checkpointing", "true", True),
        ("training.activation_checkpointing", False, False),
        ("training.activation_checkpointing", "3", 3),
        ("training.activation_checkpointing", 1, 1),
        ("model.d_model", "128", 128),
        ("model.d_model", "1_024", 1024),
        ("arch.tied_head", "False", False),
        ("arch.tied_head", True, True),
        ("arch.norm", "layer", "layer"),
        ("tags", ["a", 1], ["a", "1"]),
        ("tags", [], []),
        ("notes", "", ""),
        ("seed", 0, 0),
        ("study.name", "lr-2026.11_a", "lr-2026.11_a"),
        ("study.name", "été", "été"),
    ],
)
def test_taken(path: str, given: Any, value: Any) -> None:
    converted = convert(key(path), given)
    assert converted == value
    assert type(converted) is type(value)


@pytest.mark.parametrize(
    ("path", "given", "words"),
    [
        ("training.activation_checkpointing", 0, "must be at least 1, got 0"),
        (
            "training.activation_checkpointing",
            "half",
            "expected a whole number at least 1, or true or false, got `half`",
        ),
        ("optimizer.lr", 0, "must be above 0, got 0"),
        ("optimizer.lr", -1e-3, "must be above 0, got -0.001"),
        ("optimizer.lr", "fast", "expected a number above 0, got `fast`"),
        ("optimizer.lr", float("nan"), "must be finite"),
        ("optimizer.lr", "inf", "must be finite"),
        ("optimizer.lr", 10**400, "expected a number"),
        ("optimizer.lr", None, "got null"),
        ("optimizer.lr", True, "expected a number above 0, got true"),
        ("optimizer.lr", [1e-3], "expected a number"),
        ("optimizer.lr", {"a": 1}, "expected a number"),
        ("optimizer.beta1", 1.0, "must be below 1, got 1.0"),
        ("optimizer.beta1", "x", "at least 0 and below 1, got `x`"),
        ("training.seq_len", 8.5, "expected a whole number at least 1, got 8.5"),
        ("training.seq_len", 1e3, "expected a whole number"),
        ("training.seq_len", 0, "must be at least 1, got 0"),
        ("training.seq_len", True, "got true"),
        ("training.seq_len", "1K", "expected a whole number"),
        ("training.effective_batch", 8.5, "expected a count"),
        ("training.max_tokens", "-5M", "expected a count"),
        ("slurm.mem", 512, "must be at least 1MB, got 512: a number alone is bytes"),
        ("slurm.mem", "0GB", "must be at least 1MB, got `0GB`"),
        ("training.max_tokens", -5, "must be at least 1, got -5"),
        ("training.max_tokens", 0, "must be at least 1, got 0"),
        ("training.max_tokens", "1GB", "500M, 2e9 or 1000"),
        ("training.micro_batch", "Auto", "or auto"),
        ("training.micro_batch", 0, "must be at least 1"),
        ("training.precision", "fp8", "auto, fp32, bf16 or fp16"),
        ("schedule.name", "cosin", "nearest: cosine"),
        ("arch.tied_head", 1, "true or false"),
        ("arch.tied_head", "yes", "true or false"),
        ("tags", "a", "tags=[a,b]"),
        ("tags", [["a"]], "tags=[a,b]"),
        ("notes", 750, "put it in quotes"),
        ("notes", False, "reads as true or false: put it in quotes"),
        ("dataset.path", "", "got nothing"),
        ("study.name", "a/b", "names a folder"),
        ("study.name", "..", "names a folder"),
        ("study.name", "a\nb", "names a folder"),
        ("study.name", "x" * 101, "100 at most"),
        ("dataset.name", "*", "names a folder"),
        ("model.name", "", "names a folder"),
        ("seed", -1, "must be at least 0"),
        ("seed", 2**63, f"at most {2**63 - 1}"),
    ],
)
def test_refused(path: str, given: Any, words: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        convert(key(path), given)
    assert words in str(raised.value)


def test_home_is_expanded_in_paths_alone() -> None:
    assert convert(key("dataset.path"), "~/c4.txt") == str(Path.home() / "c4.txt")
    assert convert(key("notes"), "~/c4.txt") == "~/c4.txt"


@given(
    path=st.sampled_from(sorted(keys())),
    value=st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.lists(st.text() | st.integers())
    | st.dictionaries(st.text(), st.integers()),
)
def test_any_value_is_converted_once_and_for_all_or_refused_as_a_value_error(path: str, value: Any) -> None:
    try:
        converted = convert(key(path), value)
    except ValueError:
        pass
    else:
        assert convert(key(path), converted) == converted
        if converted is None:
            assert key(path).optional
        else:
            assert isinstance(converted, key(path).types)


def test_every_default_is_a_value_of_its_key() -> None:
    for path, known in keys().items():
        if not (path.endswith(".name") and known.default == ""):
            assert convert(known, known.default) == known.default, path


def test_every_key_is_described_and_belongs_to_its_group() -> None:
    listed = [known.path for group in ("", *groups()) for known in keys_of(group)]
    assert sorted(listed) == sorted(keys())
    for known in keys().values():
        assert known.doc
        assert describe(known)
    assert describe(key("optimizer.grad_clip")) == "a number above 0, or null"
    assert describe(key("training.micro_batch")) == "a whole number at least 1, or auto"
