"""A set in a store reads as the same set lying here: the same windows in the same order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conf import UserError
from data_loading import StreamingDataset
from data_loading.remote.remote_set import RemoteOptions, RemoteSet, open_remote
from tests.data_loading.remote.conftest import upload
from tests.data_loading.remote.faulty_proxy import FaultyProxy, Request


@pytest.fixture(scope="session")
def shards(make_set: Callable[..., Path]) -> Path:
    return make_set(60_000, 7_000)


def rows(dataset: StreamingDataset, epochs: int = 1, batch: int = 7) -> np.ndarray:
    loader = dataset.loader(batch)
    return np.concatenate([b["input_ids"].numpy() for _ in range(epochs) for b in loader])


@pytest.fixture
def opened(bucket: Any, shards: Path, tmp_path: Path) -> Callable[..., RemoteSet]:
    upload(bucket, shards, "c4")

    def open_(budget: int | None = None, **options: Any) -> RemoteSet:
        return open_remote("s3://sets/c4", RemoteOptions(tmp_path / "cache", budget, **options))

    return open_


def test_same(opened: Callable[..., RemoteSet], shards: Path) -> None:
    remote = opened(300_000)
    for order in ("shuffled_shards", "sequential", "shuffled"):
        one = StreamingDataset(remote, seq_len=33, order=order)
        other = StreamingDataset(shards, seq_len=33, order=order)
        assert one.fingerprint == other.fingerprint
        assert np.array_equal(rows(one, 2), rows(other, 2))
    remote.close()
