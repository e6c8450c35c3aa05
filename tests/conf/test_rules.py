"""Each rule between keys: what it refuses, that its advice is good, and what it lets pass."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conf.check import check
from conf.rules import nearest_divisors
from conf.schedule_rules import SCHEDULES_WITHOUT_WARMUP
from training.schedules import SCHEDULES


def problems(**plain: Any) -> dict[str, str]:
    return {problem.where: problem.what for problem in check(plain)[1]}


def test_one_budget() -> None:
    assert problems(training={"max_tokens": "1B"}) == {}
    assert problems(training={"tokens_per_param": 20}) == {}
    two = problems(training={"tokens_per_param": 20, "max_steps": 10})
    assert "max_steps and tokens_per_param are given" in two["training.max_steps"]
    assert "training.tokens_per_param=null" in two["training.max_steps"]
    three = problems(training={"tokens_per_param": 20, "max_steps": 10, "max_tokens": 5})
    assert "training.max_steps=null training.tokens_per_param=null" in three["training.max_tokens"]


def test_one_batch() -> None:
    both = problems(training={"effective_batch": 32, "batch_tokens": 4096})
    assert "training.effective_batch=32 is given too" in both["training.batch_tokens"]


@given(tokens=st.integers(1, 10**6), seq_len=st.integers(1, 4096))
def test_tokens_in_a_step_are_whole_windows(tokens: int, seq_len: int) -> None:
    found = problems(training={"batch_tokens": tokens, "seq_len": seq_len})
    assert bool(found) == bool(tokens % seq_len)
    if found:
        advice = found["training.batch_tokens"].partition("nearest: ")[2].split(", ")
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
        what = found["training.micro_batch"]
        divisors, _, others = what.partition("; or training.")
        for choice in re.findall(r"\d+", divisors.partition("nearest micro-batches: ")[2]):
            assert problems(training={**size, "micro_batch": int(choice), "seq_len": seq_len}) == {}
        key, _, values = others.partition("=")
        for value in values.split(" or "):
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


def test_a_window_is_within_the_positions() -> None:
    assert problems(training={"seq_len": 128}, arch={"max_positions": 128}) == {}
    found = problems(training={"seq_len": 129}, arch={"max_positions": 128})
    assert "longer than the model's positions, arch.max_positions=128" in found["training.seq_len"]


def test_a_tokenizer_can_be_found() -> None:
    assert problems(tokenizer={"name": "custom", "repo": "a/b"}) == {}
    assert problems(tokenizer={"name": "custom", "path": "x"}) == {}
    assert "tokenizer.path=FOLDER" in problems(tokenizer={"name": "custom"})["tokenizer.path"]


def test_computed_tokens_are_not_read_from_files() -> None:
    path = {"path": "synthetic:zipf:64"}
    assert problems(dataset=path) == {}
    for name, value in (("reader", "mmap"), ("max_resident", "1GB"), ("verify", "blocks")):
        told = problems(dataset=path | {name: value})[f"dataset.{name}"]
        assert "dataset.path=synthetic:zipf:64 are computed, there is no file to read" in told
    masked = {"documents": "masked"}
    assert "only synthetic:copy has documents" in problems(dataset=path | masked)["dataset.documents"]
    assert problems(dataset={"path": "synthetic:copy:64"} | masked) == {}


def test_a_tokenizer_that_would_not_be_read_is_told() -> None:
    found = problems(tokenizer={"name": "bytes", "path": "x"})
    assert "tokenizer=custom tokenizer.path=x" in found["tokenizer.path"]


@pytest.mark.parametrize("encoding", ["utf-9", "", "hex", "rot13", "a\0b", "x" * 300])
def test_an_encoding_that_there_is_not(encoding: str) -> None:
    assert "Python knows no text encoding" in problems(dataset={"encoding": encoding})["dataset.encoding"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "UTF-16", "cp1252"])
def test_an_encoding_that_there_is(encoding: str) -> None:
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


def test_a_warmup_is_not_ignored() -> None:
    assert problems(schedule={"name": "cosine", "warmup_fraction": 0}) == {}
    found = problems(schedule={"name": "cosine", "warmup_fraction": 0.1})
    assert "schedule=cosine has no warm-up" in found["schedule.warmup_fraction"]


def test_the_schedules_without_warmup_are_those_of_training() -> None:
    assert {name for name, shape in SCHEDULES.items() if not shape.warms_up} == set(SCHEDULES_WITHOUT_WARMUP)


MIX = {"source": "mix", "sources": ["a", "b"], "weights": ["0.7", "0.3"]}


@pytest.mark.parametrize(
    ("dataset", "told"),
    [
        ({}, {}),
        ({"curriculum": ["0.2+0.8@1M", "0+1@1B"]}, {}),
        ({"weights": ["1", "0"], "curriculum": ["0.2+0.8@1M"]}, {}),
        ({"source": "text"}, {"sources": "goes with dataset=mix", "weights": "goes with dataset=mix"}),
        ({"sources": []}, {"sources": "give them: dataset.sources=[Datasets/one.npy"}),
        ({"sources": ["a", "a"]}, {"sources": "a twice: give it once, with the sum of its weights"}),
        (
            {"sources": ["a", "b", "c"]},
            {"weights": "2 weights for 3 sources (a, b, c): expected one for each"},
        ),
        ({"weights": ["0.7", "0.4"]}, {"weights": "sum to 1.1, expected 1. As shares: [7/11,4/11]"}),
        (
            {"weights": []},
            {"weights": "2 sources without weights: give one for each: dataset.weights=[1/2,1/2]"},
        ),
        ({"weights": ["0.7"]}, {"weights": "1 weight for 2 sources (a, b): expected one for each"}),
        ({"weights": ["0", "0"], "curriculum": ["0.2+0.8@1M"]}, {"weights": "expected a weight above 0"}),
        ({"curriculum": ["1@1M"]}, {"curriculum": "1@1M: 1 weight for 2 sources (a, b)"}),
        ({"curriculum": ["0.5+0.5@0"]}, {"curriculum": "0.5+0.5@0: expected more than 0 tokens"}),
        ({"curriculum": ["0.5+0.5@2M", "0.2+0.8@1M"]}, {"curriculum": "expected more than 2,000,000 tokens"}),
        ({"weights": ["1", "0"], "curriculum": ["1+0@1M"]}, {"weights": "b has weight 0 from the start to"}),
        ({"repeat": True}, {"repeat": "dataset.when_dry=repeat reads them more than once"}),
        ({"windows": "streams"}, {"windows": "read in plain windows"}),
        (
            {"path": "x", "val_path": "y"},
            {"path": "give it in dataset.sources", "val_path": "holds a part out"},
        ),
    ],
)
def test_a_mixture_is_whole(dataset: dict[str, Any], told: dict[str, str]) -> None:
    found = problems(dataset={**MIX, **dataset})
    assert set(found) == {f"dataset.{name}" for name in told}
    for name, text in told.items():
        assert text in found[f"dataset.{name}"]


def test_options_of_an_order() -> None:
    for name, order in (("block_windows", "shuffled_blocks"), ("shard_windows", "shuffled_shards")):
        assert problems(dataset={name: 7, "order": order}) == {}
        found = problems(dataset={name: 7})
        assert f"dataset.order={order}, and the order is shuffled" in found[f"dataset.{name}"]
    separate = {"documents": "separate", "order": "shuffled_shards"}
    assert "packed over the whole split" in problems(dataset=separate)["dataset.order"]


@pytest.mark.parametrize("name", ["disk_budget", "download_workers", "part_size"])
def test_what_is_said_of_fetching_goes_with_a_store(name: str) -> None:
    assert problems(dataset={name: 5000, "path": "s3://bucket/c4"}) == {}
    assert problems(dataset={name: 5000, "path": "here.npy", "val_path": "https://host/val.npy"}) == {}
    assert "Take it away" in problems(dataset={name: 5000, "path": "here.npy"})[f"dataset.{name}"]


def test_val_is_given_once() -> None:
    assert problems(dataset={"val_tokens": 100}) == {}
    both = problems(dataset={"val_tokens": 100, "val_fraction": 0.2})
    assert "dataset.val_fraction=0.2 is given too" in both["dataset.val_tokens"]


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


def test_experts_go_with_what_knows_them() -> None:
    experts = {"n_experts": 4}
    assert problems(arch=experts) == {}
    assert "optimizer=adamw" in problems(arch=experts, optimizer={"name": "muon"})["optimizer.name"]
    assert "Use false" in problems(arch=experts, memory={"trace": True})["memory.trace"]
    assert "Use false" in problems(arch=experts, training={"compile": True})["training.compile"]


def test_a_step_by_the_size_of_a_parameter_is_not_traced() -> None:
    traced = {"trace": True}
    assert problems(memory=traced) == {}
    assert "Use false" in problems(memory=traced, optimizer={"name": "adafactor"})["memory.trace"]


def test_labels_that_are_counted_are_not_traced() -> None:
    masked = {"documents": "masked"}
    assert problems(dataset=masked) == {}
    assert "Use false" in problems(dataset=masked, memory={"trace": True})["memory.trace"]


def test_the_scan_of_a_mingru_is_not_compiled() -> None:
    mingru = {"family": "mingru"}
    assert problems(arch=mingru, dataset={"documents": "masked"}) == {}
    assert "Use false" in problems(arch=mingru, training={"compile": True})["training.compile"]


@pytest.mark.parametrize("family", ["lstm", "mingru"])
def test_states_go_on_in_rows(family: str) -> None:
    arch = {"family": family, "state_reset": 0.1}
    assert "dataset.windows=streams" in problems(arch=arch)["arch.state_reset"]
    assert problems(arch=arch, dataset={"windows": "streams"}) == {}


def test_an_lstm_is_one_kernel() -> None:
    lstm = {"family": "lstm"}
    assert problems(arch=lstm) == {}
    assert "workspace" in problems(arch=lstm, memory={"trace": True})["memory.trace"]
    assert "Use false" in problems(arch=lstm, training={"compile": True})["training.compile"]
    assert "no feed-forward" in problems(arch=lstm, training={"dead_units": True})["training.dead_units"]
    assert "documents=across" in problems(arch=lstm, dataset={"documents": "masked"})["dataset.documents"]
