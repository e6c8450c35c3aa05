"""What all ranks read together is what one rank reads, each window once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conf.budget import AUTO_MICRO_BATCH_TOKENS
from conf.budget import micro_batch as micro_batch_of
from conf.schema import Training
from data_loading import StreamingDataset
from tests.golden_text import Golden, refused
from tests.searched import examples
from training.distributed.loader import PartOfStream, loader_of
from training.distributed.place import Place
from training.distributed.ranks import Ranks


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ids") / "ids.npy"
    np.save(path, np.arange(4000, dtype=np.uint16))
    return path


def steps_of(
    dataset: StreamingDataset, ranks: int, micro_batch: int, batch: int, steps: int
) -> list[list[int]]:
    """First ids of the windows of each step, in order, of all ranks."""
    loaders = [
        iter(loader_of(dataset, Ranks(Place(rank, ranks)), batch_size=micro_batch, repeat=True))
        for rank in range(ranks)
    ]
    found = []
    for _ in range(steps):
        read = [
            next(loader)["input_ids"][:, 0].tolist()
            for _ in range(batch // (ranks * micro_batch))
            for loader in loaders
        ]
        found.append([first for rows in read for first in rows])
    return found


@settings(max_examples=examples(25))
@given(st.sampled_from([(1, 12), (2, 3), (3, 1), (3, 2), (4, 3), (6, 1), (12, 1)]), st.integers(0, 3))
def test_a_step_reads_the_same_windows_in_the_same_order(
    tokens: Path, how: tuple[int, int], seed: int
) -> None:
    dataset = StreamingDataset(tokens, seq_len=16, seed=seed)
    epoch = len(dataset) // 12
    one = steps_of(dataset, 1, 12, 12, epoch + 3)
    assert steps_of(dataset, *how, 12, epoch + 3) == one
    read = [first for step in one[:epoch] for first in step]
    assert len(set(read)) == len(read)


class Stream:
    """A loader of batches that come in one order."""

    def __iter__(self) -> object:
        return iter([{"input_ids": torch.arange(start, start + 6)[:, None]} for start in (0, 6)])


def test_a_rank_keeps_its_rows_of_a_stream() -> None:
    read = [
        [batch["input_ids"][:, 0].tolist() for batch in PartOfStream(Stream(), Ranks(Place(rank, 3)))]  # type: ignore[arg-type]
        for rank in range(3)
    ]
    assert read == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]


@given(st.integers(1, 64), st.integers(1, 16))
def test_micro_batches_of_a_rank_make_up_the_step(batch: int, ranks: int) -> None:
    training = Training(effective_batch=batch, seq_len=512)
    if batch % ranks:
        with refused("step-not-over-ranks"):
            micro_batch_of(training, ranks)
        return
    micro = micro_batch_of(training, ranks)
    assert batch % (micro * ranks) == 0
    assert micro * 512 <= AUTO_MICRO_BATCH_TOKENS["cpu"]


def test_a_micro_batch_that_does_not_divide_names_those_that_do(golden: Golden) -> None:
    training = Training(effective_batch=12, micro_batch=4)
    with refused("micro-batch-not-a-divisor") as error:
        micro_batch_of(training, 2)
    golden.text(str(error.value))
