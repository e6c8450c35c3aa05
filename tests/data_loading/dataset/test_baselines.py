"""The bigram model: counts of train, measured on the pairs that an evaluation reads."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from data_loading.dataset import baselines
from data_loading.dataset.baselines import bigram_loss
from data_loading.dataset.split_data import Data, split_data
from data_loading.tokens.token_set import TokenSet
from tests.golden_text import Golden


def make(tmp_path: Path, ids: list[int], vocab: int, val_fraction: float) -> Data:
    path = tmp_path / "a.npy"
    np.save(path, np.array(ids, np.uint16))
    return split_data(
        TokenSet(path, np.load(path, mmap_mode="r"), None, None, vocab, "f"), None, None, val_fraction
    )


def expected(data: Data, windows: int, seq_len: int) -> float:
    """In plain Python."""
    train = data.train.tokens[data.train_ranges[0].start : data.train_ranges[0].stop].tolist()
    val = data.val.tokens[data.val_ranges[0].start : data.val_ranges[0].stop].tolist()
    vocab = data.vocab_size
    total = 0.0
    for window in range(windows):
        for i in range(window * seq_len, (window + 1) * seq_len):
            pairs = sum(a == val[i] and b == val[i + 1] for a, b in itertools.pairwise(train))
            seen = sum(a == val[i] for a in train[:-1])
            total -= math.log((pairs + 1) / (seen + vocab))
    return total / (windows * seq_len)


@pytest.mark.parametrize(
    ("eval_tokens", "windows", "block"), [(1, 1, 3), (10, 2, 1 << 22), (12, 3, 3), (1000, 9, 1 << 22)]
)
def test_is_the_loss_in_plain_python(
    eval_tokens: int, windows: int, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "_BLOCK", block)
    ids = np.random.default_rng(0).integers(0, 7, 200).tolist()
    data = make(tmp_path, ids, 7, 0.25)
    assert data.windows("val", 5) == 9
    found = bigram_loss(data, eval_tokens=eval_tokens, seq_len=5)
    assert found == pytest.approx(expected(data, windows, 5), rel=1e-12)


def test_what_never_varies_is_nearly_free_and_noise_costs_its_entropy(tmp_path: Path) -> None:
    assert bigram_loss(make(tmp_path, [0, 1, 2] * 5000, 3, 0.1), eval_tokens=1000, seq_len=10) < 0.001
    noise = np.random.default_rng(0).integers(0, 8, 50_000).tolist()
    loss = bigram_loss(make(tmp_path, noise, 8, 0.1), eval_tokens=4000, seq_len=10)
    assert loss == pytest.approx(math.log(8), abs=0.01)


def test_a_large_vocabulary_is_refused(tmp_path: Path, golden: Golden) -> None:
    with golden.refused("bigram-vocabulary-too-large"):
        bigram_loss(make(tmp_path, [0] * 100, 1025, 0.1), eval_tokens=10, seq_len=2)
