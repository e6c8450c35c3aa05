"""Budgets are met exactly or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.budget import AUTO_MICRO_BATCH_TOKENS, Budget, micro_batch, milestones, resolve_budget
from conf.schema import Training
from experiment_utils.errors import UserError


def budget(training: Training, windows: int = 10**9, **options: object) -> Budget:
    defaults = {
        "parameters": 1000,
        "train_windows": windows,
        "repeat": False,
        "default_max_tokens": 2_000_000,
    }
    return resolve_budget(training, **(defaults | options))  # type: ignore[arg-type]


@given(
    max_tokens=st.integers(1, 10**12),
    seq_len=st.integers(1, 4096),
    batch=st.integers(1, 2048),
)
def test_a_budget_of_tokens_is_met_and_exceeded_by_less_than_a_step(
    max_tokens: int, seq_len: int, batch: int
) -> None:
    found = budget(
        Training(max_tokens=max_tokens, seq_len=seq_len, effective_batch=batch), windows=10**13, parameters=1
    )
    assert found.tokens == found.steps * batch * seq_len
    assert max_tokens <= found.tokens < max_tokens + batch * seq_len
    assert found.micro_batch * found.accumulation == batch


def test_tokens_per_param_counts_all_parameters() -> None:
    found = budget(Training(tokens_per_param=40, seq_len=1024, effective_batch=64), parameters=29_755_217)
    assert found.tokens == pytest.approx(1.19e9, rel=0.001)


def test_steps_are_taken_as_given() -> None:
    assert budget(Training(max_steps=7)).steps == 7


def test_batch_tokens_and_effective_batch_mean_the_same() -> None:
    by_tokens = budget(Training(max_steps=7, seq_len=128, batch_tokens=8192))
    by_windows = budget(Training(max_steps=7, seq_len=128, effective_batch=64))
    assert by_tokens == by_windows


def test_without_a_budget_one_epoch_at_most() -> None:
    assert budget(Training(seq_len=128)).tokens == pytest.approx(2_000_000, abs=4096)
    small = budget(Training(seq_len=128), windows=1000)
    assert small.steps == 1000 // 32


def test_a_budget_beyond_the_data_is_refused_with_what_there_is() -> None:
    with pytest.raises(UserError) as raised:
        budget(Training(max_tokens=10_000_000, seq_len=128), windows=2375)
    message = str(raised.value)
    assert "training.max_tokens" in message
    assert "2,375" in message
    assert "training.max_steps=74" in message
    assert "dataset.repeat=true" in message
    repeated = budget(Training(max_tokens=10_000_000, seq_len=128), windows=2375, repeat=True)
    assert repeated.epochs == pytest.approx(repeated.steps * 32 / 2375)


def test_the_last_whole_step_of_an_epoch_may_be_taken() -> None:
    assert budget(Training(max_steps=74, seq_len=128), windows=2375).steps == 74
    with pytest.raises(UserError):
        budget(Training(max_steps=75, seq_len=128), windows=2375)


def test_a_step_larger_than_the_data_is_refused() -> None:
    with pytest.raises(UserError, match=r"effective_batch=5\b"):
        budget(Training(max_steps=1, seq_len=128, effective_batch=32), windows=5)


@given(st.integers(1, 4096), st.integers(1, 65536), st.sampled_from(["cpu", "cuda"]))
def test_auto_micro_batch_divides_the_effective_batch(batch: int, seq_len: int, device: str) -> None:
    size = micro_batch(Training(effective_batch=batch, seq_len=seq_len), device=device)
    assert batch % size == 0
    assert size == 1 or size * seq_len <= AUTO_MICRO_BATCH_TOKENS[device]


@given(steps=st.integers(1, 10**6), count=st.integers(1, 200), spacing=st.sampled_from(["linear", "log"]))
def test_milestones_ascend_to_the_last_step(steps: int, count: int, spacing: str) -> None:
    found = milestones(steps, count, spacing)
    assert found == sorted(set(found))
    assert found[-1] == steps
    assert found[0] >= 1
    assert len(found) <= count


def test_log_milestones_have_equal_ratios() -> None:
    assert milestones(10_000, 5, "log") == [1, 10, 100, 1000, 10_000]
    assert milestones(100, 4, "linear") == [25, 50, 75, 100]
