"""One value against its key: what is taken, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.keys import groups, keys, keys_of
from conf.schema_key import Key
from conf.values import convert, describe
from tests.golden_text import Golden


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


REFUSED: list[tuple[str, Any]] = [
    ("training.activation_checkpointing", 0),
    ("training.activation_checkpointing", "half"),
    ("optimizer.lr", 0),
    ("optimizer.lr", -0.001),
    ("optimizer.lr", "fast"),
    ("optimizer.lr", float("nan")),
    ("optimizer.lr", "inf"),
    ("optimizer.lr", 10**400),
    ("optimizer.lr", None),
    ("optimizer.lr", True),
    ("optimizer.lr", [0.001]),
    ("optimizer.lr", {"a": 1}),
    ("optimizer.beta1", 1.0),
    ("optimizer.beta1", "x"),
    ("training.seq_len", 8.5),
    ("training.seq_len", 1000.0),
    ("training.seq_len", 0),
    ("training.seq_len", True),
    ("training.seq_len", "1K"),
    ("training.effective_batch", 8.5),
    ("training.max_tokens", "-5M"),
    ("slurm.mem", 512),
    ("slurm.mem", "0GB"),
    ("training.max_tokens", -5),
    ("training.max_tokens", 0),
    ("training.max_tokens", "1GB"),
    ("training.micro_batch", "Auto"),
    ("training.micro_batch", 0),
    ("training.precision", "fp8"),
    ("schedule.name", "cosin"),
    ("arch.tied_head", 1),
    ("arch.tied_head", "yes"),
    ("tags", "a"),
    ("tags", [["a"]]),
    ("notes", 750),
    ("notes", False),
    ("dataset.path", ""),
    ("study.name", "a/b"),
    ("study.name", ".."),
    ("study.name", "a\nb"),
    ("study.name", "x" * 101),
    ("dataset.name", "*"),
    ("model.name", ""),
    ("seed", -1),
    ("seed", 2**63),
]


def test_wrong_values_are_refused(golden: Golden) -> None:
    texts = []
    for path, value in REFUSED:
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            convert(key(path), value)
        texts.append(f"{path}: {raised.value}")
    golden.text("\n".join(texts))


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


def test_every_key_is_described_and_belongs_to_its_group(golden: Golden) -> None:
    listed = [known.path for group in ("", *groups()) for known in keys_of(group)]
    assert sorted(listed) == sorted(keys())
    for known in keys().values():
        assert known.doc
        assert describe(known)
    golden.text("\n".join(describe(key(path)) for path in ("optimizer.grad_clip", "training.micro_batch")))
