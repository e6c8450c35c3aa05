"""Windows, their order, batches for ranks and workers, and going on exactly where a stream stood."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading import StreamingDataset
from data_loading.dataset.protocol import RankBatches
from data_loading.dataset.split_data import Data, split_data
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.token_set import TokenSet
from tests.golden_text import Golden, refused
from tests.searched import examples

ROOT = Path(__file__).resolve().parents[3]
Span = tuple[int, int]


def make_data(
    tmp_path: Path, n: int, val_fraction: float = 0.2, dtype: str = "<u2", vocab: int = 60_000
) -> Data:
    """n tokens; token i has the id i, so that a batch says where it is from."""
    path = tmp_path / f"{n}-{dtype[1:]}.npy"
    np.save(path, (np.arange(n) % vocab).astype(dtype))
    tokens = np.load(path, mmap_mode="r")
    return split_data(TokenSet(path, tokens, None, None, vocab, f"print of {n}"), None, None, val_fraction)


def dataset_of(
    tmp_path: Path, windows: int, seq_len: int = 4, seed: int = 0, order: str = "shuffled"
) -> StreamingDataset:
    """A train split of exactly so many windows."""
    n = windows * seq_len + 1
    data = make_data(tmp_path, n + 1, val_fraction=1 / (n + 1))
    assert data.tokens("train") == n
    return StreamingDataset(data, "train", seq_len, seed, order=order)


def windows_in(batch: dict[str, torch.Tensor], seq_len: int = 4) -> list[int]:
    return [int(row[0]) // seq_len for row in batch["input_ids"]]


def read_all(loader: Any) -> list[int]:
    return [window for batch in loader for window in windows_in(batch)]


class TestWindows:
    @pytest.mark.parametrize(
        ("dtype", "split"), [("<u2", "train"), ("<u4", "val"), ("<i4", "train"), ("<i8", "val")]
    )
    def test_labels_are_the_next_tokens_and_stay_inside_the_split(
        self, dtype: str, split: str, tmp_path: Path
    ) -> None:
        data = make_data(tmp_path, 1000, dtype=dtype)
        _, (tokens,) = data.ranges_of(split)
        dataset = StreamingDataset(data, split, 7, seed=0, order="sequential")
        batch = dataset.__getitems__(range(len(dataset)))
        assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
        assert batch["input_ids"].shape == batch["labels"].shape == (len(dataset), 7)
        start = tokens.start
        read = batch["input_ids"].reshape(-1).tolist()
        assert read == list(range(start, start + 7 * len(dataset))), "no token skipped, none twice"
        assert torch.equal(batch["labels"], batch["input_ids"] + 1)
        assert int(batch["labels"].max()) < tokens.stop

    @pytest.mark.parametrize(("tokens", "windows"), [(129, 1), (256, 1), (257, 2), (130, 1), (1281, 10)])
    def test_129_tokens_at_128_are_one_window(self, tokens: int, windows: int, tmp_path: Path) -> None:
        data = make_data(tmp_path, tokens + 1, val_fraction=1 / (tokens + 1))
        assert data.windows("train", 128) == windows
        assert len(StreamingDataset(data, "train", 128, 0)) == windows

    @pytest.mark.parametrize("tokens", [128, 2])
    def test_fewer_tokens_than_one_window_are_refused(
        self, tokens: int, tmp_path: Path, golden: Golden
    ) -> None:
        data = make_data(tmp_path, tokens + 1, val_fraction=1 / (tokens + 1))
        with golden.refused("too-few-tokens"):
            StreamingDataset(data, "train", 128, 0)

    def test_large_ids_of_uint16_and_uint32_stay_what_they_are(self, tmp_path: Path) -> None:
        for dtype, ids in (("<u2", [65_535, 0, 40_000]), ("<u4", [4_000_000_000, 1, 70_000])):
            path = tmp_path / f"{dtype[1:]}.npy"
            np.save(path, np.array([*ids, 0], dtype))
            tokens = np.load(path, mmap_mode="r")
            data = split_data(TokenSet(path, tokens, None, None, 2**32, "f"), None, None, 0.25)
            batch = StreamingDataset(data, "train", 2, 0)[0]
            assert batch["input_ids"].tolist() == ids[:2]
            assert batch["labels"].tolist() == ids[1:]

    def test_a_batch_is_its_own_memory(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 10)
        batch = dataset.__getitems__([0, 1])
        batch["input_ids"].zero_()
        assert dataset.__getitems__([0, 1])["input_ids"].any()


class TestMapStyle:
    def test_an_item_is_the_sample_at_that_position(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 50)
        whole = dataset.__getitems__(range(50))
        for i in (0, 7, 49):
            assert torch.equal(dataset[i]["input_ids"], whole["input_ids"][i])
        assert torch.equal(dataset[-1]["labels"], whole["labels"][49])
        assert torch.equal(dataset.__getitems__([3, 1, 3])["labels"], whole["labels"][[3, 1, 3]])
        assert torch.equal(dataset.__getitems__(np.array([5]))["labels"], whole["labels"][[5]])

    def test_positions_outside_are_refused(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 50)
        for wrong in ([50], [-1], [0, 51], range(49, 51), range(-1, 2)):
            with pytest.raises(IndexError):
                dataset.__getitems__(wrong)
        for wrong_index in (50, -51):
            with pytest.raises(IndexError):
                dataset[wrong_index]

    def test_serves_a_dataloader_of_torch_with_any_sampler(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 50)
        theirs = torch.utils.data.DataLoader(
            dataset,
            batch_size=8,
            shuffle=True,
            collate_fn=StreamingDataset.collate,  # type: ignore[arg-type]
        )
        assert sorted(read_all(theirs)) == list(range(50))

    def test_epochs_are_other_orders_and_sequential_is_none(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 200)
        first = windows_in(dataset.__getitems__(range(200)))
        dataset.set_epoch(1)
        second = windows_in(dataset.__getitems__(range(200)))
        assert first != second
        assert sorted(first) == sorted(second) == list(range(200))
        dataset.set_epoch(0)
        assert windows_in(dataset.__getitems__(range(200))) == first
        sequential = dataset_of(tmp_path, 200, order="sequential")
        sequential.set_epoch(3)
        assert windows_in(sequential.__getitems__(range(200))) == list(range(200))
        with pytest.raises(ValueError, match="0"):
            dataset.set_epoch(-1)

    def test_the_order_by_blocks_is_the_order_one_by_one(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 40_000, seq_len=1)
        one_by_one = dataset.window_at(list(range(40_000)), 2)
        for start, stop in ((0, 40_000), (16_000, 17_000), (16_383, 16_385), (39_999, 40_000), (5, 5)):
            assert dataset.window_at(range(start, stop), 2).tolist() == one_by_one[start:stop].tolist()

    @pytest.mark.parametrize(
        ("options", "code"),
        [({"order": "random"}, "order-unknown"), ({"seq_len": 0}, "count-invalid"),
         ({"split": "valid"}, "split-unknown"), ({"split": "test"}, "no-test-split"),
         ({"stride": 0}, "count-invalid"), ({"shift": 0}, "count-invalid"),
         ({"seq_len": 1.5}, "count-invalid"),
         ({"seq_len": True}, "count-invalid"), ({"seed": "a"}, "seed-invalid"),
         ({"seed": None}, "seed-invalid"), ({"max_resident_bytes": 0}, "max-resident-invalid"),
         ({"shard_windows": 5}, "option-of-other-order"),
         ({"documents": "separate", "order": "shuffled_shards"}, "document-starts-unknown")],
    )  # fmt: skip
    def test_wrong_options(self, options: dict[str, Any], code: str, tmp_path: Path, golden: Golden) -> None:
        arguments: dict[str, Any] = {"split": "train", "seq_len": 4, "seed": 0, **options}
        with golden.refused(code):
            StreamingDataset(make_data(tmp_path, 100), **arguments)


def consumed(dataset: StreamingDataset, plan: list[tuple[int, int, int]], repeat: bool) -> list[int]:
    """Read by phases (batches, batch size, ranks), each with new loaders that load the state before.

    Gives the windows in the order of the stream.
    """
    windows: list[int] = []
    state: dict[str, Any] | None = None
    for batches, batch_size, ranks in plan:
        loaders = [dataset.loader(batch_size, rank=r, world_size=ranks, repeat=repeat) for r in range(ranks)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        iterators = [iter(loader) for loader in loaders]
        for _ in range(batches):
            step = [next(iterator, None) for iterator in iterators]
            for batch in step:
                windows += windows_in(batch) if batch is not None else []
            if step[0] is None:
                break
        state = loaders[0].state_dict()
    return windows


phases = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=5)


class TestLoader:
    @settings(max_examples=examples(40))
    @given(plan=phases, windows=st.integers(1, 60), seed=st.integers(0, 5))
    def test_the_stream_is_the_same_however_it_is_divided_and_resumed(
        self, plan: list[tuple[int, int, int]], windows: int, seed: int, tmp_path: Path
    ) -> None:
        dataset = dataset_of(tmp_path, windows, seed=seed)
        read = consumed(dataset, plan, repeat=True)
        epochs = -(-len(read) // windows)
        stream = [
            w for epoch in range(epochs) for w in dataset.window_at(list(range(windows)), epoch).tolist()
        ]
        assert read == stream[: len(read)]
        assert len(read) == sum(batches * size * ranks for batches, size, ranks in plan)

    @settings(max_examples=examples(40))
    @given(windows=st.integers(1, 50), size=st.integers(1, 9), ranks=st.integers(1, 4))
    def test_an_epoch_holds_each_window_once_over_all_ranks(
        self, windows: int, size: int, ranks: int, tmp_path: Path
    ) -> None:
        windows = max(windows, (ranks - 1) * size + 1)
        dataset = dataset_of(tmp_path, windows)
        read = [read_all(dataset.loader(size, rank=r, world_size=ranks)) for r in range(ranks)]
        assert sorted(itertools.chain(*read)) == list(range(windows))

    @settings(max_examples=examples(60))
    @given(
        windows=st.integers(1, 50), size=st.integers(1, 9), ranks=st.integers(1, 4), epochs=st.integers(1, 3),
        repeat=st.booleans(), cut=st.integers(0, 12),
    )  # fmt: skip
    def test_the_tail_is_dropped_or_filled_up_as_asked(
        self, windows: int, size: int, ranks: int, epochs: int, repeat: bool, cut: int, tmp_path: Path
    ) -> None:
        """Every batch is whole on every rank, also in a stream that is taken up again after any batch."""
        dataset = dataset_of(tmp_path, windows)
        whole, left = divmod(windows, size * ranks)
        for tail in ("drop", "pad"):
            batches = epochs * (whole + (left > 0 and tail == "pad"))
            if tail == "drop" and not whole:
                with refused("drop-leaves-nothing"):
                    dataset.loader(size, world_size=ranks, tail=tail)
                continue
            counted: list[list[int]] = []
            for rank in range(ranks):
                loader = dataset.loader(size, rank, ranks, repeat=repeat, tail=tail)
                if not repeat:
                    assert len(loader) == batches // epochs
                counted.append([])
                read = 0
                while read < batches:
                    for batch in itertools.islice(loader, min(batches - read, cut + 1)):
                        assert batch["input_ids"].shape == batch["labels"].shape == (size, 4)
                        counts = batch["labels"] != -100
                        assert torch.equal(counts.all(dim=1), counts.any(dim=1))
                        counted[rank] += [
                            w for w, c in zip(windows_in(batch), counts[:, 0], strict=True) if c
                        ]
                        read += 1
                    again = dataset.loader(size, rank, ranks, repeat=repeat, tail=tail)
                    again.load_state_dict(loader.state_dict())
                    loader = again
            per_epoch = windows - (left if tail == "drop" else 0)
            read_all_ranks = sorted(itertools.chain(*counted))
            expected = [w for e in range(epochs) for w in dataset.window_at(range(per_epoch), e).tolist()]
            assert read_all_ranks == sorted(expected)

    def test_dropped_windows_are_logged(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Golden
    ) -> None:
        caplog.set_level("INFO")
        dataset_of(tmp_path, 50).loader(8, world_size=2, tail="drop")
        golden.text("\n".join(caplog.messages), numbers=False)
        caplog.clear()
        dataset_of(tmp_path, 48).loader(8, world_size=2, tail="drop")
        assert not caplog.text
        with golden.refused("tail-unknown"):
            dataset_of(tmp_path, 48).loader(8, tail="cut")

    def test_every_rank_knows_the_same_state(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 20)
        loaders = [dataset.loader(3, rank=r, world_size=2) for r in range(2)]
        for loader in loaders:
            next(iter(loader))
            assert (loader.state_dict()["epoch"], loader.state_dict()["samples"]) == (0, 6)

    def test_state_counts_what_was_handed_out_not_what_was_read_ahead(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 100)
        expected = read_all(dataset.loader(7))
        loader = dataset.loader(7)
        iterator = iter(loader)
        read = [*windows_in(next(iterator)), *windows_in(next(iterator))]
        state = loader.state_dict()
        assert state == {"epoch": 0, "samples": 14, "fingerprint": dataset.fingerprint, "tail": "keep"}
        other = dataset.loader(5)
        other.load_state_dict(loader.state_dict())
        assert read + read_all(other) == expected

    def test_iteration_resumes_where_the_one_before_ended(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 30)
        expected = read_all(dataset.loader(30))
        loader = dataset.loader(4, num_batches=2)
        assert len(loader) == 2
        assert [*read_all(loader), *read_all(loader)] == expected[:16]

    def test_the_next_iteration_after_the_end_is_the_next_epoch(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 10)
        loader = dataset.loader(4)
        assert len(loader) == 3
        first, second = read_all(loader), read_all(loader)
        assert first == dataset.window_at(list(range(10)), 0).tolist()
        assert second == dataset.window_at(list(range(10)), 1).tolist()
        assert loader.state_dict()["epoch"] == 1

    def test_set_epoch_works_as_people_expect(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 10)
        loader = dataset.loader(4)
        for epoch in (0, 1, 2, 7):
            dataset.set_epoch(epoch)
            assert read_all(loader) == dataset.window_at(list(range(10)), epoch).tolist()

    def test_set_epoch_starts_that_epoch(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 10)
        loader, expected = dataset.loader(4), dataset.window_at(list(range(10)), 5).tolist()
        for stops_early in (True, False, False):
            dataset.set_epoch(5)
            assert windows_in(next(iter(loader))) == expected[:4]
            if not stops_early:
                dataset.set_epoch(5)
                assert read_all(loader) == expected
        loader.load_state_dict({"epoch": 5, "samples": 8, "fingerprint": dataset.fingerprint})
        assert read_all(loader) == expected[8:]
        dataset.set_epoch(5)
        assert read_all(loader) == expected, "it was resumed before the last iteration"

    def test_a_resumed_epoch_survives_the_set_epoch_of_a_training_loop(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 10)
        loader = dataset.loader(4)
        loader.load_state_dict({"epoch": 3, "samples": 8, "fingerprint": dataset.fingerprint})
        dataset.set_epoch(3)
        assert read_all(loader) == dataset.window_at([8, 9], 3).tolist()

    def test_a_repeating_loader_spans_epochs_and_has_no_length(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 10)
        loader = dataset.loader(8, repeat=True)
        iterator = iter(loader)
        read = [windows_in(next(iterator)) for _ in range(3)]
        assert [len(batch) for batch in read] == [8, 8, 8]
        assert loader.state_dict()["epoch"] == 2
        assert loader.state_dict()["samples"] == 4
        with pytest.raises(TypeError):
            len(loader)

    @pytest.mark.parametrize(
        "change", [{"windows": 31}, {"seed": 1}, {"order": "sequential"}, {"seq_len": 3, "windows": 40}]
    )
    def test_the_state_of_other_data_is_refused_with_both_sides(
        self, change: dict[str, Any], tmp_path: Path, golden: Golden
    ) -> None:
        state = dataset_of(tmp_path, 30).loader(4).state_dict()
        other = dataset_of(tmp_path, **{"windows": 30, **change})
        with golden.refused("state-of-other-data"):
            other.loader(4).load_state_dict(state)

    def test_wrong_arguments(self, tmp_path: Path, golden: Golden) -> None:
        dataset = dataset_of(tmp_path, 10)
        with golden.refused("batch-size-invalid"):
            dataset.loader(0)
        for rank, world_size in ((2, 2), (-1, 1), (0, 0)):
            with golden.refused("rank-outside"):
                dataset.loader(1, rank=rank, world_size=world_size)
        with golden.refused("num-batches-negative"):
            dataset.loader(1, num_batches=-1)
        assert len(dataset.loader(4, num_batches=500)) == len(list(dataset.loader(4, num_batches=500))) == 3
        assert len(dataset.loader(4, num_batches=500, repeat=True)) == 500
        if not torch.cuda.is_available():
            with golden.refused("pin-memory-without-gpu"):
                dataset.loader(1, pin_memory=True)

    @pytest.mark.parametrize(
        "state", [{}, {"epoch": -1}, {"samples": -5}, {"samples": 31}, {"samples": 10**9}]
    )
    def test_a_state_that_cannot_be(self, state: dict[str, int], tmp_path: Path, golden: Golden) -> None:
        loader = dataset_of(tmp_path, 30).loader(4)
        with golden.refused("state-damaged" if state else "state-invalid"):
            loader.load_state_dict({**loader.state_dict(), **state} if state else {})

    def test_a_dataset_goes_to_a_spawned_worker_without_its_map(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 3000)
        copy = pickle.loads(pickle.dumps(dataset))
        assert torch.equal(copy[5]["labels"], dataset[5]["labels"])
        assert len(pickle.dumps(dataset)) < 5000, "the map travels as a path"


class TestSeveralAtOnce:
    @given(data=st.data())
    @settings(max_examples=examples(60))
    def test_they_are_the_batches_that_are_read_one_by_one(
        self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        dataset = dataset_of(tmp_path_factory.mktemp("set"), data.draw(st.integers(8, 200), "windows"))
        world, size = data.draw(st.integers(1, 3), "ranks"), data.draw(st.integers(1, 5), "batch")
        most = len(dataset) // (world * size)
        batches = data.draw(st.integers(1, max(1, most)), "batches")
        if batches > most:
            return
        first = data.draw(st.integers(0, len(dataset) - batches * world * size), "first")
        rank, epoch = data.draw(st.integers(0, world - 1), "rank"), data.draw(st.integers(0, 2), "epoch")
        found = list(dataset.read_batches(RankBatches(epoch, first, batches, size, rank, world)))
        assert len(found) == batches
        for number, batch in enumerate(found):
            start = first + (number * world + rank) * size
            expected = dataset.read(epoch, start, start + size)
            assert batch.keys() == expected.keys()
            assert all(torch.equal(batch[name], expected[name]) for name in batch)

    @pytest.mark.parametrize("world", [1, 2])
    def test_loader_reads_each_window_once_and_has_its_state(self, world: int, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 601)
        assert dataset.batches_per_read(1) > 1
        read, once = [], []
        for rank in range(world):
            loader = dataset.loader(1, rank=rank, world_size=world)
            for number, batch in enumerate(loader, 1):
                read += windows_in(batch)
                assert loader.state_dict()["samples"] == min(number * world, 601)
                if number == 200:
                    other = dataset.loader(1, rank=rank, world_size=world)
                    other.load_state_dict(loader.state_dict())
                    once = read_all(other)
            assert read[-len(once) :] == once
        assert sorted(read) == sorted(dataset.window_at(range(601), 0).tolist())


class TestFromPath:
    def tokenized(self, tmp_path: Path) -> Path:
        text = tmp_path / "a.txt"
        text.write_text("0123456789" * 30)
        pretokenize(TextFile(text), BytesTokenizer(), tmp_path / "a.npy", Options())
        return text

    @pytest.mark.parametrize("name", ["a.txt", "a.npy", "a"])
    def test_tokens_for_a_text_are_found_unasked(self, name: str, tmp_path: Path) -> None:
        self.tokenized(tmp_path)
        dataset = StreamingDataset(tmp_path / name, seq_len=10, order="sequential")
        assert bytes(dataset[0]["input_ids"].tolist()) == b"0123456789"
        assert dataset.data.vocab_size == 257
        assert len(StreamingDataset(str(tmp_path / name), split="val", seq_len=10)) == 2

    def test_a_text_that_was_changed_is_refused(self, tmp_path: Path, golden: Golden) -> None:
        self.tokenized(tmp_path).write_text("other")
        with golden.refused("set-not-of-text"):
            StreamingDataset(tmp_path / "a.txt", seq_len=10)

    def test_a_text_alone_says_how_to_tokenize_it(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("text")
        with golden.refused("not-tokenized") as caught:
            StreamingDataset(tmp_path / "a.txt")
        assert caught.value.text_bytes == 4

    def test_an_open_set_serves_as_well(self, tmp_path: Path) -> None:
        data = make_data(tmp_path, 100)
        assert len(StreamingDataset(data.train, seq_len=8, val=0.5)) == 6


LIMITED = """
import resource, sys
import numpy as np, torch
from data_loading import StreamingDataset
torch.set_num_threads(1)
dataset = StreamingDataset(sys.argv[1], seq_len=1024)
for _ in dataset.loader(32, num_batches=100): pass
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + (64 << 20), -1))
def anon():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))
before = anon()
for batch in dataset.loader(32, num_batches=500):
    assert batch["input_ids"].shape == (32, 1024)
print(anon() - before)
try:
    np.fromfile(sys.argv[1], np.uint16)
    print("loaded")
except MemoryError:
    print("refused")
"""


def test_the_set_is_never_loaded_into_memory(tmp_path: Path) -> None:
    """64 MB more of data than at the start may be used; the set has 256: a loader that copied it would fail,
    as reading it whole does. RssAnon grows by at most 1 MB over 500 batches, which read a quarter of it."""
    path = tmp_path / "a.npy"
    tokens = np.lib.format.open_memmap(path, "w+", np.dtype("<u2"), (1 << 27,))
    tokens.flush()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    grown_kb, outcome = done.stdout.split()
    assert outcome == "refused", "the limit is one"
    assert int(grown_kb) <= 1024


def test_a_state_of_another_tail_is_refused_with_both_named(tmp_path: Path, golden: Golden) -> None:
    dataset = dataset_of(tmp_path, 10)
    loader = dataset.loader(3, tail="drop")
    next(iter(loader))
    state = loader.state_dict()
    with golden.refused("state-of-other-tail"):
        dataset.loader(3, tail="pad").load_state_dict(state)
    del state["tail"]  # of a version that did not say it
    dataset.loader(3, tail="pad").load_state_dict(state)


def test_shift_beyond_the_split_is_refused(tmp_path: Path, golden: Golden) -> None:
    with golden.refused("too-few-tokens"):
        StreamingDataset(make_data(tmp_path, 100), seq_len=8, shift=5000)


@pytest.mark.parametrize(
    "damage",
    [{"samples": 2.5}, {"samples": -1}, {"epoch": "x"}, {"epoch": None}, {"samples": 999}, {"epoch": -1}],
)
def test_damaged_state_is_refused(damage: dict[str, Any], tmp_path: Path, golden: Golden) -> None:
    loader = dataset_of(tmp_path, 10).loader(3)
    with golden.refused("state-damaged"):
        loader.load_state_dict({**loader.state_dict(), **damage})
    with golden.refused("state-invalid"):
        loader.load_state_dict(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_size", [2.5, "8", True])
def test_batch_size_is_whole_number(batch_size: Any, tmp_path: Path, golden: Golden) -> None:
    with golden.refused("number-not-whole"):
        dataset_of(tmp_path, 10).loader(batch_size)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_worker_processes_are_refused(num_workers: Any, tmp_path: Path, golden: Golden) -> None:
    with golden.refused("workers-removed"):
        dataset_of(tmp_path, 10).loader(4, num_workers=num_workers)


def test_blocks_are_of_their_order(tmp_path: Path, golden: Golden) -> None:
    with golden.refused("option-of-other-order"):
        StreamingDataset(make_data(tmp_path, 100), seq_len=8, block_windows=5)
