"""Each order has every window once; blocks stay together and are shuffled within."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.dataset.orders import ORDERS, ShuffledBlocks, order_of
from tests.golden_text import Golden
from tests.searched import examples


def deviations(counts: np.ndarray) -> float:
    """Of chi-square from what chance gives, in standard deviations."""
    expected, freedom = counts.sum() / counts.size, counts.size - 1
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / (2 * freedom) ** 0.5


@settings(max_examples=examples(200))
@given(
    name=st.sampled_from(ORDERS),
    n=st.integers(1, 600),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 3),
    size=st.integers(1, 300),
)
def test_every_window_has_one_position(name: str, n: int, seed: int, epoch: int, size: int) -> None:
    block = {"block_windows": size} if name == "shuffled_blocks" else {}
    order = order_of(name, n, seed, **block)
    windows = order.at(np.arange(n), epoch)
    assert windows.dtype == np.int64
    assert sorted(windows.tolist()) == list(range(n))
    start, stop = n // 3, n - n // 4
    assert order.span(start, stop, epoch).tolist() == windows[start:stop].tolist()


@pytest.mark.parametrize(("n", "size"), [(1000, 64), (1024, 64), (50, 64), (65, 64)])
def test_a_block_is_read_in_one_go(n: int, size: int) -> None:
    order = ShuffledBlocks(n, seed=3, size=size)
    blocks = order.at(np.arange(n), 0) // size
    changes = np.flatnonzero(np.diff(blocks)) + 1
    assert len(changes) + 1 == -(-n // size), "each block once, in one piece"


def test_blocks_and_what_is_in_them_are_mixed() -> None:
    """Places of blocks, and of windows in a block, are uniform over epochs; no two blocks share an order."""
    n, size, epochs = 64 * 16 + 5, 16, 2000
    order = ShuffledBlocks(n, seed=1, size=size)
    places = np.stack([order.at(np.arange(n), epoch) for epoch in range(epochs)])
    first_block = np.bincount(places[:, 0] // size, minlength=65)[:64]
    assert abs(deviations(first_block)) < 5
    short = np.argmax(places >= 64 * size, axis=1) // size
    assert abs(deviations(np.bincount(short, minlength=65))) < 5, "the short block's slot"
    full = places[0][places[0] < 64 * size] % size
    inner = {tuple(full[i * size : (i + 1) * size]) for i in range(64)}
    assert len(inner) == 64
    steps = np.diff(full.reshape(64, size), axis=1) % size
    assert abs(deviations(np.bincount(steps.ravel(), minlength=size)[1:])) < 5


@settings(max_examples=examples(100))
@given(
    counts=st.lists(st.integers(0, 90), min_size=1, max_size=12).filter(any),
    serve=st.none() | st.integers(1, 100),
    epoch=st.integers(0, 3),
)
def test_shards_are_read_one_after_the_other(counts: list[int], serve: int | None, epoch: int) -> None:
    borders = np.cumsum([0, *counts])
    n = int(borders[-1])
    order = order_of("shuffled_shards", n, 7, borders=borders, shard_windows=serve)
    windows = order.span(0, n, epoch)
    assert sorted(windows.tolist()) == list(range(n))
    shards = np.searchsorted(borders, windows, side="right") - 1
    turns = np.split(shards, np.flatnonzero(np.diff(shards)) + 1)
    most = sum(-(-count // serve) if serve else count > 0 for count in counts)
    assert len(turns) <= most
    at = n // 2
    coming = list(order.coming(at, epoch))
    inside = [[i for i, some in enumerate(coming) if window in some] for window in windows[at:].tolist()]
    assert all(inside)


def test_shards_and_what_is_in_them_are_mixed() -> None:
    n, files, epochs = 16 * 40, 16, 3000
    order = order_of("shuffled_shards", n, 1, borders=np.arange(0, n + 1, 40))
    places = np.stack([order.at(np.array([0, 40]), epoch) for epoch in range(epochs)])
    assert abs(deviations(np.bincount(places[:, 0] // 40, minlength=files))) < 5, "which file comes first"
    assert abs(deviations(np.bincount(places[:, 0] % 40, minlength=40))) < 5, "which window of it"
    after = (places[:, 1] // 40 - places[:, 0] // 40) % files
    assert abs(deviations(np.bincount(after, minlength=files)[1:])) < 5, "which file comes second"
    whole = order.at(np.arange(n), 0)
    inner = {tuple(whole[i * 40 : (i + 1) * 40] % 40) for i in range(files)}
    assert len(inner) == files, "no two files share an order"


def test_another_cut_into_files_is_another_order(golden: Golden) -> None:
    one, other = (
        order_of("shuffled_shards", 9, 0, borders=np.array(borders)) for borders in ([0, 4, 9], [0, 5, 9])
    )
    assert one.name != other.name
    assert one.name != order_of("shuffled_shards", 9, 0, borders=np.array([0, 4, 9]), shard_windows=2).name
    with golden.refused("shard-windows-invalid"):
        order_of("shuffled_shards", 9, 0, shard_windows=0)


def test_names_tell_orders_apart() -> None:
    names = {order_of(*made).name for made in (
        ("shuffled", 9, 0), ("shuffled", 9, 1), ("sequential", 9, 0), ("sequential", 9, 1),
        ("shuffled_blocks", 9, 0, 2), ("shuffled_blocks", 9, 0, 3), ("shuffled_blocks", 9, 1, 3),
    )}  # fmt: skip
    assert len(names) == 6, "a seed means nothing to what lies in order"


def test_a_copy_gives_the_same_order() -> None:
    for name in ORDERS:
        order = order_of(name, 100_000, 5)
        order.span(3, 9, 1)
        packed = pickle.dumps(order)
        assert len(packed) < 500, "nothing of the size of n"
        assert pickle.loads(packed).span(3, 9, 1).tolist() == order.span(3, 9, 1).tolist()


def test_wrong_ones_are_refused(golden: Golden) -> None:
    with golden.refused("order-unknown"):
        order_of("random", 10, 0)
    with golden.refused("block-size-invalid"):
        order_of("shuffled_blocks", 10, 0, 0)
