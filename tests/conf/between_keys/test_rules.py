"""Each rule between keys: what it refuses, that its advice is good, and what it lets pass."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conf.between_keys.optimizer_rules import SETTINGS_OF
from conf.between_keys.rules import nearest_divisors
from conf.between_keys.schedule_rules import SCHEDULES_WITHOUT_WARMUP
from conf.composing.check import check
from conf.schema import Optimizer
from tests.golden_text import Golden
from training.step.schedules import SCHEDULES

MASKED, ZIPF = {"documents": "masked"}, {"path": "synthetic:zipf:64"}
BUDGETS = {"tokens_per_param": 20, "max_steps": 10}
EXPERTS, LSTM, MUP, COMPLETEP = {"n_experts": 4}, {"family": "lstm"}, {"init": "mup"}, {"init": "completep"}
FREE, STABLE = {"name": "schedule_free"}, {"name": "stable"}
DEEP = {"d_model": 32, "n_layers": 5}
BLOCKS, STREAMS = "activation_checkpointing", {"windows": "streams"}
AT_S3, HERE = {"path": "s3://bucket/c4"}, {"path": "here.npy"}

CASES: list[tuple[dict[str, Any], list[str]]] = [
    # budget, batch, windows
    ({"training": {"max_tokens": "1B"}}, []),
    ({"training": {"tokens_per_param": 20}}, []),
    ({"training": BUDGETS}, ["training.max_steps"]),
    ({"training": BUDGETS | {"max_tokens": 5}}, ["training.max_tokens"]),
    ({"training": {"effective_batch": 32, "batch_tokens": 4096}}, ["training.batch_tokens"]),
    ({"training": {"seq_len": 128}, "arch": {"max_positions": 128}}, []),
    ({"training": {"seq_len": 129}, "arch": {"max_positions": 128}}, ["training.seq_len"]),
    ({"training": {BLOCKS: 2}}, []),
    ({"training": {BLOCKS: True}}, []),
    ({"training": {BLOCKS: 3}}, [f"training.{BLOCKS}"]),
    ({"training": {BLOCKS: 5}, "model": DEEP}, []),
    ({"training": {BLOCKS: 6}, "model": DEEP}, [f"training.{BLOCKS}"]),
    *(({"training": {"max_time": given}}, ["training.max_time"]) for given in ("0s", "soon", "auto")),
    # how a run begins, ends and computes
    ({"restore": {"step": 5}}, ["restore.step"]),
    ({"restore": {"what": "run"}}, ["restore.what"]),
    ({"restore": {"from": "a", "what": "run", "strict": False}}, ["restore.strict"]),
    ({"restore": {"from": "a", "strict": False}}, []),
    ({"training": {"milestones": ["5M", "4M"]}}, ["training.milestones"]),
    ({"training": {"milestones": ["often"]}}, ["training.milestones"]),
    ({"training": {"milestones": ["5M", "1B"]}}, []),
    ({"training": {"max_time": "90min", "patience": 3}}, []),
    ({"training": {"patience": 0}}, ["training.patience"]),
    ({"training": {"spike_window": 50}}, ["training.spike_window"]),
    ({"training": {"spike_window": 50, "spike_threshold": 5, "on_spike": "skip"}}, []),
    ({"training": {"on_spike": "rollback", "rollback_every": 5, "spike_window": 9}}, []),
    ({"training": {"on_spike": "skip", "rollback_every": 5}}, ["training.rollback_every"]),
    ({"training": {"rollback_every": 5}}, ["training.rollback_every"]),
    (
        {"training": {"on_spike": "rollback"}, "restore": {"from": "runs/a", "what": "run"}},
        ["training.on_spike"],
    ),
    ({"training": {"precision": "fp16", "device": "cpu"}}, ["training.precision"]),
    ({"training": {"precision": "fp16", "parallel": "fsdp"}}, ["training.precision"]),
    ({"training": {"precision": "fp16", "on_spike": "skip"}}, ["training.precision"]),
    ({"training": {"dead_units": True, "compile": True}}, ["training.dead_units"]),
    # tokenizer and dataset
    ({"tokenizer": {"name": "custom", "repo": "a/b"}}, []),
    ({"tokenizer": {"name": "custom", "path": "x"}}, []),
    ({"tokenizer": {"name": "custom"}}, ["tokenizer.path"]),
    ({"tokenizer": {"name": "bytes", "path": "x"}}, ["tokenizer.path"]),
    ({"dataset": ZIPF}, []),
    ({"dataset": ZIPF | {"reader": "mmap"}}, ["dataset.reader"]),
    ({"dataset": ZIPF | {"max_resident": "1GB"}}, ["dataset.max_resident"]),
    ({"dataset": ZIPF | {"verify": "blocks"}}, ["dataset.verify"]),
    ({"dataset": ZIPF | MASKED}, ["dataset.documents"]),
    ({"dataset": {"path": "synthetic:copy:64"} | MASKED}, []),
    *(({"dataset": {"encoding": of}}, []) for of in ("utf-8", "latin-1", "UTF-16", "cp1252")),
    *(
        ({"dataset": {"encoding": of}}, ["dataset.encoding"])
        for of in ("utf-9", "", "hex", "rot13", "a\0b", "x" * 300)
    ),
    ({"dataset": {"val_tokens": 5}}, []),
    ({"dataset": {"val_path": "b", "val_tokens": 5}}, ["dataset.val_tokens"]),
    ({"dataset": {"val_tokens": 5, "val_fraction": 0.2}}, ["dataset.val_tokens"]),
    ({"dataset": {"test_tokens": 5}}, []),
    ({"dataset": {"test_tokens": 5, "test_fraction": 0.1}}, ["dataset.test_tokens"]),
    ({"dataset": {"val_path": "b", "test_fraction": 0.1}}, []),
    ({"dataset": {"windows": "shifted", "stride": 5, "shift": 2}}, ["dataset.stride", "dataset.shift"]),
    ({"dataset": {"stride": 5, "shift": 2, "order": "shuffled_blocks"}}, []),
    ({"dataset": STREAMS}, []),
    ({"dataset": STREAMS | {"order": "shuffled_blocks"}}, ["dataset.order"]),
    ({"dataset": STREAMS | {"documents": "separate"}}, ["dataset.documents"]),
    ({"dataset": {"documents": "separate", "stride": 5}}, ["dataset.stride"]),
    ({"dataset": {"documents": "separate", "shift": 2, "order": "shuffled_blocks"}}, []),
    ({"dataset": {"documents": "separate", "order": "shuffled_shards"}}, ["dataset.order"]),
    ({"dataset": {"block_windows": 7, "order": "shuffled_blocks"}}, []),
    ({"dataset": {"block_windows": 7}}, ["dataset.block_windows"]),
    ({"dataset": {"shard_windows": 7, "order": "shuffled_shards"}}, []),
    ({"dataset": {"shard_windows": 7}}, ["dataset.shard_windows"]),
    *(({"dataset": {"reader": of, "max_resident": "500MB"}}, []) for of in ("auto", "mmap")),
    *(
        ({"dataset": {"reader": of, "max_resident": "500MB"}}, ["dataset.max_resident"])
        for of in ("pread", "memory")
    ),
    *(({"dataset": {"document_separator": of}}, []) for of in ("<|sep|>", None, " ")),
    *(({"dataset": {"document_separator": of}}, ["dataset.document_separator"]) for of in ("", "a\n")),
    *(
        ({"dataset": {name: 5000} | paths}, [] if paths != HERE else [f"dataset.{name}"])
        for name in ("disk_budget", "download_workers", "part_size")
        for paths in (AT_S3, HERE | {"val_path": "https://host/val.npy"}, HERE)
    ),
    # schedule, optimizer, architecture
    ({"schedule": {"name": "cosine", "warmup_fraction": 0}}, []),
    ({"schedule": {"name": "cosine", "warmup_fraction": 0.1}}, ["schedule.warmup_fraction"]),
    ({"schedule": {"name": "transformer"}}, []),
    ({"schedule": {"name": "transformer"}, "arch": MUP}, ["schedule"]),
    ({"schedule": {"name": "transformer"}, "arch": COMPLETEP}, ["schedule"]),
    ({"optimizer": {"name": "sgd", "nesterov": True}}, ["optimizer.nesterov"]),
    ({"optimizer": FREE}, ["schedule"]),
    ({"optimizer": FREE, "schedule": {"name": "constant", "warmup_fraction": 0}}, []),
    ({"optimizer": FREE, "schedule": STABLE, "training": {"ema": 0.9}}, ["training.ema"]),
    ({"optimizer": FREE | {"beta1": 0}, "schedule": STABLE}, ["optimizer.beta1"]),
    ({"optimizer": {"lr_factor_output": 0.5}}, ["optimizer.lr_factor_output"]),
    ({"optimizer": {"lr_factor_output": 0.5}, "arch": {"tied_head": False}}, []),
    ({"arch": MUP}, []),
    ({"arch": COMPLETEP}, []),
    ({"arch": MUP, "optimizer": {"name": "sgd"}}, ["arch.init"]),
    ({"arch": COMPLETEP, "optimizer": {"name": "sgd"}}, ["arch.init"]),
    ({"arch": MUP, "optimizer": {"name": "adam", "weight_decay": 0.1}}, ["optimizer.weight_decay"]),
    ({"arch": MUP, "optimizer": {"name": "adam", "weight_decay": 0}}, []),
    ({"arch": MUP, "optimizer": {"name": "adamw", "weight_decay": 0.1}}, []),
    ({"arch": MUP, "optimizer": {"grad_noise": 0.1}}, ["optimizer.grad_noise"]),
    ({"arch": EXPERTS}, []),
    ({"arch": EXPERTS, "optimizer": {"name": "muon"}}, ["optimizer.name"]),
    ({"arch": EXPERTS, "training": {"compile": True}}, ["training.compile"]),
    ({"arch": {"family": "mingru"}, "dataset": MASKED}, []),
    ({"arch": {"family": "mingru"}, "dataset": MASKED, "training": {"compile": True}}, ["training.compile"]),
    ({"arch": LSTM}, []),
    ({"arch": LSTM, "training": {"compile": True}}, ["training.compile"]),
    ({"arch": LSTM, "training": {"dead_units": True}}, ["training.dead_units"]),
    ({"arch": LSTM, "dataset": MASKED}, ["dataset.documents"]),
    *(
        ({"arch": {"family": family, "state_reset": 0.1}, "dataset": dataset}, wrong)
        for family in ("lstm", "mingru")
        for dataset, wrong in (({}, ["arch.state_reset"]), (STREAMS, []))
    ),
]


def problems(**plain: Any) -> dict[str, str]:
    return {problem.where: problem.what for problem in check(plain)[1]}


def test_each_rule_names_its_keys(golden: Golden) -> None:
    """The golden text has the advice of each."""
    texts = []
    for plain, wrong in CASES:
        found = problems(**plain)
        assert list(found) == wrong, plain
        texts += [f"{key}: {what}" for key, what in found.items()]
    golden.text("\n".join(dict.fromkeys(texts)).replace("\0", "\\0"))


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


OTHER: dict[str, Any] = {
    "beta1": 0.5, "beta2": 0.5, "eps": 0.5, "momentum": 0.5, "nesterov": True, "muon_scale": "keller",
}  # fmt: skip
"""Settings that some optimizer has, with values that are no defaults."""


@pytest.mark.parametrize("name", SETTINGS_OF)
@pytest.mark.parametrize("key", OTHER)
def test_an_optimizer_is_told_only_what_it_has(name: str, key: str) -> None:
    schedule = {"name": "stable"} if name == "schedule_free" else {}
    given = {"name": name, key: OTHER[key]} | ({"momentum": 0.9} if key == "nesterov" else {})
    found = problems(optimizer=given, schedule=schedule)
    if key in SETTINGS_OF[name]:
        assert found == {}
        return
    assert f"optimizer.{key}" in found
    assert (
        ", ".join(other for other, names in SETTINGS_OF.items() if key in names) in found[f"optimizer.{key}"]
    )


def test_every_setting_of_an_optimizer_is_of_some() -> None:
    assert {name for names in SETTINGS_OF.values() for name in names} == set(OTHER)
    assert all(value != getattr(Optimizer(), key) for key, value in OTHER.items())


@pytest.mark.parametrize(
    ("schedule", "wrong"),
    [
        ({"name": "cosine", "warmup_fraction": 0, "warmup_steps": 5}, "warmup_steps"),
        ({"name": "constant", "warmup_fraction": 0, "warmup_tokens": "1K"}, "warmup_tokens"),
        ({"warmup_steps": 5, "warmup_tokens": "1K"}, "warmup_tokens"),
        ({"warmup_steps": 5, "warmup_fraction": 0.2}, "warmup_steps"),
        ({"warmup_steps": 5}, None),
        ({"name": "one_cycle", "warmup_fraction": 0.3, "warmup_tokens": "1K"}, None),
        ({"decay_fraction": 0.3}, "decay_fraction"),
        ({"name": "linear_warmup", "decay_shape": "cosine"}, "decay_shape"),
        ({"name": "wsd", "decay_fraction": 0.3, "decay_shape": "cosine"}, None),
        ({"name": "wsd", "warmup_fraction": 0.6, "decay_fraction": 0.5}, "decay_fraction"),
        ({"name": "wsd", "warmup_steps": 6, "decay_fraction": 1}, None),
        ({"name": "inverse_sqrt", "final_lr_fraction": 0}, "final_lr_fraction"),
        ({"name": "stable", "final_lr_fraction": 0}, "final_lr_fraction"),
        ({"name": "constant", "warmup_fraction": 0, "final_lr_fraction": 0.5}, "final_lr_fraction"),
        ({"name": "transformer"}, None),
        ({"name": "one_cycle", "final_lr_fraction": 0}, "final_lr_fraction"),
    ],
)  # fmt: skip
def test_a_schedule_is_told_only_what_it_has(schedule: dict[str, Any], wrong: str | None) -> None:
    assert list(problems(schedule=schedule)) == ([] if wrong is None else [f"schedule.{wrong}"])


@pytest.mark.parametrize(
    ("arch", "wrong"),
    [
        ({"positions": "alibi", "rope_theta": 500}, "arch.rope_theta"),
        ({"name": "llama", "positions": "alibi", "rope_theta": 500_000.0}, None),  # of the option, not typed
        ({"name": "llama", "positions": "alibi", "rope_theta": 500}, "arch.rope_theta"),
        ({"positions": "learned", "rope_factor": 2}, "arch.rope_factor"),
        ({"rope_scaling": "ntk", "rope_factor": 2, "rope_low_frequency": 2}, "arch.rope_low_frequency"),
        ({"rope_high_frequency": 8}, "arch.rope_high_frequency"),
        ({"norm": "none", "norm_eps": 0.1}, "arch.norm_eps"),
        ({"norm": "none", "norm_eps": 0.1, "qk_norm": True}, None),
        ({"norm": "none", "norm_eps": 0.1, "final_norm": "rms"}, None),
        ({"balance_loss": 0.5}, "arch.balance_loss"),
        ({"n_experts": 4, "balance_loss": 0.5}, None),
        ({"init": "gpt2", "init_std": 0.1}, "arch.init_std"),
        ({"init": "transformer_scaled", "init_std": 0.1}, "arch.init_std"),
        ({"init": "xavier", "init_std": 0.1}, None),
        ({"family": "lstm", "dropout_locked": True}, "arch.dropout_locked"),
        ({"family": "mingru", "dropout_locked": True, "dropout_embedding": 0.1}, None),
    ],
)  # fmt: skip
def test_a_number_that_nothing_looks_at_is_refused(arch: dict[str, Any], wrong: str | None) -> None:
    """Two values of it would be two runs of the same numbers."""
    assert list(problems(arch=arch)) == ([] if wrong is None else [wrong])
