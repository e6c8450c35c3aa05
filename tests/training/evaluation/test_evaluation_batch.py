"""An evaluation on a GPU computes many windows at once, in the memory of a step; on a CPU those of a step."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tiny_run import make_run, run_here, tiny_config

from conf.schema import Arch, Config, Model
from models.costs.memory_parts import StepSizes
from training.evaluation import evaluate as evaluation
from training.evaluation import evaluation_batch
from training.evaluation.evaluation_batch import (
    LEAST_ROOM_BYTES,
    TOKENS_AT_ONCE,
    evaluation_bytes,
    evaluation_step,
)
from training.plan.memory_parts import estimate_run, step_sizes

VOCAB = 50_257


def config_of(
    d_model: int, micro_batch: int = 32, seq_len: int = 128, arch: Arch | None = None, **training: Any
) -> Config:
    config = Config()
    config.model, config.arch = Model(d_model=d_model), arch or Arch()
    config.training = dataclasses.replace(
        config.training, seq_len=seq_len, effective_batch=micro_batch, micro_batch=micro_batch, **training
    )
    return config


def sizes(config: Config, vocab_size: int = VOCAB, device: str = "cuda") -> StepSizes:
    micro_batch = int(config.training.micro_batch)
    return step_sizes(config, vocab_size, micro_batch, {"device": device, "loss_chunk": 8192})


@pytest.mark.parametrize(
    ("config", "device"), [(config_of(64), "cpu"), (config_of(64, compile=True), "cuda")]
)
def test_a_cpu_and_a_compiled_model_evaluate_the_batch_of_a_step(config: Config, device: str) -> None:
    step = sizes(config, device=device)
    assert evaluation_step(config, VOCAB, step) == step


@pytest.mark.parametrize("vocab_size", [257, VOCAB])
@pytest.mark.parametrize("d_model", [32, 64, 256])
def test_a_small_model_evaluates_most_tokens_at_once(d_model: int, vocab_size: int) -> None:
    config = config_of(d_model)
    found = evaluation_step(config, vocab_size, sizes(config, vocab_size))
    assert TOKENS_AT_ONCE / 4 <= found.tokens <= TOKENS_AT_ONCE


@pytest.mark.parametrize("vocab_size", [257, VOCAB])
@pytest.mark.parametrize("micro_batch", [1, 2, 16])
@pytest.mark.parametrize("arch", [Arch(), Arch(attention_softcap=30.0), Arch(family="mingru")])
def test_a_larger_batch_takes_little_more_gpu_memory(micro_batch: int, arch: Arch, vocab_size: int) -> None:
    config = config_of(256, micro_batch, seq_len=1024, arch=arch)
    step = sizes(config, vocab_size)
    found = evaluation_step(config, vocab_size, step)
    assert found.micro_batch % micro_batch == 0
    assert found.loss_chunk <= step.tokens
    room = max(LEAST_ROOM_BYTES, 1.25 * evaluation_bytes(config, vocab_size, step))
    assert evaluation_bytes(config, vocab_size, found) <= room
    twice = dataclasses.replace(found, micro_batch=2 * found.micro_batch)
    assert twice.tokens > TOKENS_AT_ONCE or evaluation_bytes(config, vocab_size, twice) > room


def test_the_estimate_counts_the_batch_of_an_evaluation() -> None:
    config = config_of(256, device="cuda", precision="bf16")
    step, estimate = sizes(config, 257), estimate_run(config, vocab_size=257, micro_batch=32)
    found = evaluation_bytes(config, 257, evaluation_step(config, 257, step))
    assert found > 2 * evaluation_bytes(config, 257, step)
    more = estimate.gpu_at("evaluate") - estimate.gpu_at("checkpoint")
    assert found <= more <= 1.1 * found


def test_a_run_evaluates_that_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    evaluate = evaluation.evaluate

    def noted(*args: Any, **options: Any) -> Any:
        given.append((options["batch_size"], options["loss_chunk"]))
        return evaluate(*args, **options)

    monkeypatch.setattr(evaluation, "evaluate", noted)
    monkeypatch.setattr(
        evaluation_batch,
        "evaluation_step",
        lambda config, vocab_size, step: dataclasses.replace(step, micro_batch=7, loss_chunk=64),
    )
    assert run_here(make_run(tiny_config(tmp_path)), "--quiet").returncode == 0
    assert set(given) == {(7, 64)}
