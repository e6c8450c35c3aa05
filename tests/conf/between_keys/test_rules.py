"""Each rule between keys: what it refuses, that its advice is good, and what it lets pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conf.between_keys.rules import nearest_divisors
from conf.between_keys.schedule_rules import SCHEDULES_WITHOUT_WARMUP
from conf.composing.check import check
from tests.golden_text import Golden
from training.step.schedules import SCHEDULES

Refused = Callable[..., str]


def problems(**plain: Any) -> dict[str, str]:
    return {problem.where: problem.what for problem in check(plain)[1]}


def test_one_budget(refused: Refused) -> None:
    assert problems(training={"max_tokens": "1B"}) == {}
    assert problems(training={"tokens_per_param": 20}) == {}
    two = {"tokens_per_param": 20, "max_steps": 10}
    assert "training.tokens_per_param=null" in refused("training.max_steps", training=two)
    unset = "training.max_steps=null training.tokens_per_param=null"
    assert unset in refused("training.max_tokens", training=two | {"max_tokens": 5})


def test_one_batch(refused: Refused) -> None:
    refused("training.batch_tokens", training={"effective_batch": 32, "batch_tokens": 4096})


@given(tokens=st.integers(1, 10**6), seq_len=st.integers(1, 4096))
def test_tokens_in_a_step_are_whole_windows(tokens: int, seq_len: int) -> None:
    found = problems(training={"batch_tokens": tokens, "seq_len": seq_len})
    assert bool(found) == bool(tokens % seq_len)
    if found:
        advice = found["training.batch_tokens"].rpartition(":")[2].split(", ")
        for choice in advice:
            assert abs(int(choice) - tokens) < seq_len
            assert problems(training={"batch_tokens": int(choice), "seq_len": seq_len}) == {}


@given(
    batch=st.none() | st.integers(1, 5000),
    micro=st.integers(1, 5000),
    seq_len=st.integers(1, 64),
    tokens=st.booleans(),
)
def test_micro_batches_meet_the_batch_exactly(
    batch: int | None, micro: int, seq_len: int, tokens: bool
) -> None:
    assume(batch is not None or not tokens)
    size = {"batch_tokens": batch * seq_len} if tokens and batch else {"effective_batch": batch}
    found = problems(training={**size, "micro_batch": micro, "seq_len": seq_len})
    assert bool(found) == bool((batch or 32) % micro)
    if found:
        divisors, key, values = re.split(r"training\.(\w+)=", found["training.micro_batch"])
        for choice in re.findall(r"\d+", divisors.rpartition(":")[2]):
            assert problems(training={**size, "micro_batch": int(choice), "seq_len": seq_len}) == {}
        for value in re.findall(r"\d+", values):
            assert problems(training={key: int(value), "micro_batch": micro, "seq_len": seq_len}) == {}


@given(number=st.integers(1, 10**5), wanted=st.integers(1, 10**5))
def test_nearest_divisors(number: int, wanted: int) -> None:
    found = nearest_divisors(number, wanted)
    every = [n for n in range(1, number + 1) if number % n == 0]
    assert found == sorted(found)
    assert set(found) <= set(every)
    assert len(found) == min(3, len(every))
    farthest = max(abs(n - wanted) for n in found)
    assert all(abs(n - wanted) >= farthest for n in every if n not in found)


def test_a_window_is_within_the_positions(refused: Refused) -> None:
    assert problems(training={"seq_len": 128}, arch={"max_positions": 128}) == {}
    refused("training.seq_len", training={"seq_len": 129}, arch={"max_positions": 128})


def test_a_tokenizer_can_be_found() -> None:
    assert problems(tokenizer={"name": "custom", "repo": "a/b"}) == {}
    assert problems(tokenizer={"name": "custom", "path": "x"}) == {}
    assert "tokenizer.path=FOLDER" in problems(tokenizer={"name": "custom"})["tokenizer.path"]


def test_computed_tokens_are_not_read_from_files(refused: Refused) -> None:
    path = {"path": "synthetic:zipf:64"}
    assert problems(dataset=path) == {}
    for name, value in (("reader", "mmap"), ("max_resident", "1GB"), ("verify", "blocks")):
        refused(f"dataset.{name}", dataset=path | {name: value})
    masked = {"documents": "masked"}
    refused("dataset.documents", dataset=path | masked)
    assert problems(dataset={"path": "synthetic:copy:64"} | masked) == {}


def test_tokenizer_path_without_use_is_refused(refused: Refused) -> None:
    found = refused("tokenizer.path", tokenizer={"name": "bytes", "path": "x"})
    assert {"tokenizer=custom", "tokenizer.path=x"} <= {word.strip(".,`") for word in found.split()}


@pytest.mark.parametrize("encoding", ["utf-9", "", "hex", "rot13", "a\0b", "x" * 300])
def test_unknown_encoding_is_refused(encoding: str) -> None:
    assert list(problems(dataset={"encoding": encoding})) == ["dataset.encoding"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "UTF-16", "cp1252"])
def test_known_encoding_is_accepted(encoding: str) -> None:
    assert problems(dataset={"encoding": encoding}) == {}


@pytest.mark.parametrize(
    ("given", "wrong"),
    [({"val_path": "b", "val_tokens": 5}, ["dataset.val_tokens"]), ({"val_tokens": 5}, []),
     ({"test_tokens": 5, "test_fraction": 0.1}, ["dataset.test_tokens"]), ({"test_tokens": 5}, []),
     ({"val_path": "b", "test_fraction": 0.1}, [])],
)  # fmt: skip
def test_each_split_is_given_once(given: dict[str, Any], wrong: list[str]) -> None:
    assert list(problems(dataset=given)) == wrong


@pytest.mark.parametrize(
    ("given", "wrong"),
    [({"windows": "shifted", "stride": 5, "shift": 2}, ["dataset.stride", "dataset.shift"]),
     ({"stride": 5, "shift": 2, "order": "shuffled_blocks"}, []), ({"windows": "streams"}, []),
     ({"windows": "streams", "order": "shuffled_blocks"}, ["dataset.order"]),
     ({"windows": "streams", "documents": "separate"}, ["dataset.documents"]),
     ({"documents": "separate", "stride": 5}, ["dataset.stride"]),
     ({"documents": "separate", "shift": 2, "order": "shuffled_blocks"}, [])],
)  # fmt: skip
def test_windows_are_of_one_kind(given: dict[str, Any], wrong: list[str]) -> None:
    assert list(problems(dataset=given)) == wrong


@pytest.mark.parametrize(
    ("reader", "is_right"), [("auto", True), ("mmap", True), ("pread", False), ("memory", False)]
)
def test_a_bound_is_for_maps(reader: str, is_right: bool) -> None:
    assert (problems(dataset={"reader": reader, "max_resident": "500MB"}) == {}) is is_right
    assert problems(dataset={"reader": reader}) == {}


@pytest.mark.parametrize(
    ("separator", "is_right"), [("<|sep|>", True), (None, True), (" ", True), ("", False), ("a\n", False)]
)
def test_a_separator_is_one_line(separator: str | None, is_right: bool) -> None:
    assert (problems(dataset={"document_separator": separator}) == {}) is is_right


def test_a_warmup_is_not_ignored(refused: Refused) -> None:
    assert problems(schedule={"name": "cosine", "warmup_fraction": 0}) == {}
    refused("schedule.warmup_fraction", schedule={"name": "cosine", "warmup_fraction": 0.1})


def test_the_schedules_without_warmup_are_those_of_training() -> None:
    assert {name for name, shape in SCHEDULES.items() if not shape.warms_up} == set(SCHEDULES_WITHOUT_WARMUP)


MIX = {"source": "mix", "sources": ["a", "b"], "weights": ["0.7", "0.3"]}


@pytest.mark.parametrize(
    "dataset",
    [{}, {"curriculum": ["0.2+0.8@1M", "0+1@1B"]}, {"weights": ["1", "0"], "curriculum": ["0.2+0.8@1M"]}],
)
def test_whole_mixture_is_accepted(dataset: dict[str, Any]) -> None:
    assert problems(dataset={**MIX, **dataset}) == {}


def test_mixture_that_is_not_whole_is_refused(golden: Golden) -> None:
    texts = []
    for dataset, wrong in (
        ({"source": "text"}, ["sources", "weights"]),
        ({"sources": []}, ["sources"]),
        ({"sources": ["a", "a"]}, ["sources"]),
        ({"sources": ["a", "b", "c"]}, ["weights"]),
        ({"weights": ["0.7", "0.4"]}, ["weights"]),
        ({"weights": []}, ["weights"]),
        ({"weights": ["0.7"]}, ["weights"]),
        ({"weights": ["0", "0"], "curriculum": ["0.2+0.8@1M"]}, ["weights"]),
        ({"curriculum": ["1@1M"]}, ["curriculum"]),
        ({"curriculum": ["0.5+0.5@0"]}, ["curriculum"]),
        ({"curriculum": ["0.5+0.5@2M", "0.2+0.8@1M"]}, ["curriculum"]),
        ({"weights": ["1", "0"], "curriculum": ["1+0@1M"]}, ["weights"]),
        ({"repeat": True}, ["repeat"]),
        ({"windows": "streams"}, ["windows"]),
        ({"path": "x", "val_path": "y"}, ["path", "val_path"]),
    ):
        found = problems(dataset={**MIX, **dataset})
        assert sorted(found) == [f"dataset.{name}" for name in wrong], dataset
        texts += [f"{key}: {what}" for key, what in found.items()]
    golden.text("\n".join(texts))


def test_options_of_an_order(refused: Refused) -> None:
    for name, order in (("block_windows", "shuffled_blocks"), ("shard_windows", "shuffled_shards")):
        assert problems(dataset={name: 7, "order": order}) == {}
        assert f"dataset.order={order}" in refused(f"dataset.{name}", dataset={name: 7})
    refused("dataset.order", dataset={"documents": "separate", "order": "shuffled_shards"})


@pytest.mark.parametrize("name", ["disk_budget", "download_workers", "part_size"])
def test_what_is_said_of_fetching_goes_with_a_store(name: str) -> None:
    assert problems(dataset={name: 5000, "path": "s3://bucket/c4"}) == {}
    assert problems(dataset={name: 5000, "path": "here.npy", "val_path": "https://host/val.npy"}) == {}
    assert list(problems(dataset={name: 5000, "path": "here.npy"})) == [f"dataset.{name}"]


def test_val_is_given_once(refused: Refused) -> None:
    assert problems(dataset={"val_tokens": 100}) == {}
    refused("dataset.val_tokens", dataset={"val_tokens": 100, "val_fraction": 0.2})


@pytest.mark.parametrize("init", ["mup", "completep"])
def test_factors_by_size_are_for_adam(init: str) -> None:
    assert problems(arch={"init": init}) == {}
    found = problems(arch={"init": init}, optimizer={"name": "sgd"})
    assert "optimizer=adamw" in found["arch.init"]


@pytest.mark.parametrize("init", ["mup", "completep"])
def test_the_width_is_followed_once(init: str) -> None:
    by_width = {"name": "transformer"}
    assert problems(schedule=by_width) == {}
    assert "schedule=inverse_sqrt" in problems(arch={"init": init}, schedule=by_width)["schedule"]


MASKED = {"documents": "masked"}


@pytest.mark.parametrize(
    ("plain", "where", "added"),
    [
        ({"arch": {"n_experts": 4}}, "optimizer.name", {"optimizer": {"name": "muon"}}),
        ({"arch": {"n_experts": 4}}, "training.compile", {"training": {"compile": True}}),
        (
            {"arch": {"family": "mingru"}, "dataset": MASKED},
            "training.compile",
            {"training": {"compile": True}},
        ),
        ({"arch": {"family": "lstm"}}, "training.compile", {"training": {"compile": True}}),
        ({"arch": {"family": "lstm"}}, "training.dead_units", {"training": {"dead_units": True}}),
        ({"arch": {"family": "lstm"}}, "dataset.documents", {"dataset": MASKED}),
    ],
)
def test_option_that_the_other_cannot_use_is_refused(
    refused: Refused, plain: dict[str, Any], where: str, added: dict[str, Any]
) -> None:
    assert problems(**plain) == {}
    refused(where, **plain, **added)


@pytest.mark.parametrize("family", ["lstm", "mingru"])
def test_states_go_on_in_rows(family: str) -> None:
    arch = {"family": family, "state_reset": 0.1}
    assert "dataset.windows=streams" in problems(arch=arch)["arch.state_reset"]
    assert problems(arch=arch, dataset={"windows": "streams"}) == {}
