"""Synthetic tokens as a set: split, ordered, read and gone on with as tokens in files are."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from conf.schema import Dataset, Tokenizer
from data_loading import StreamingDataset, floor_loss, open_held_out, open_tokens, open_train, prepare_data
from data_loading.synthetic.synthetic_uri import KINDS
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]
IDS = Tokenizer(name="ids")


@pytest.mark.parametrize("kind", KINDS)
class TestTokens:
    def test_single_values_slices_and_windows_are_the_same_tokens(self, kind: str) -> None:
        found = open_tokens(f"synthetic:{kind}:70000:1T:5")
        assert (len(found.tokens), found.vocab_size, found.tokens.dtype) == (10**12, 70_000, np.dtype("<u4"))
        start = 10**12 - 300_000
        whole = found.tokens[start:]
        assert len(whole) == 300_000, "longer than what is computed at once"
        assert [found.tokens[start + i] for i in (0, 77, 140_001)] == whole[[0, 77, 140_001]].tolist()
        assert found.tokens[-1] == whole[-1]
        dataset = StreamingDataset(found, "val", seq_len=1000, order="sequential")
        last = dataset[len(dataset) - 1]["input_ids"].numpy()
        at = 900_000_000_000 + (len(dataset) - 1) * 1000
        assert np.array_equal(last, found.tokens[at : at + 1000])

    def test_a_batch_of_more_than_is_computed_at_once(self, kind: str) -> None:
        dataset = StreamingDataset(f"synthetic:{kind}:64:1B", seq_len=1000)
        whole = dataset.__getitems__(range(300))["labels"]
        assert torch.equal(whole, torch.cat([dataset.__getitems__([i])["labels"] for i in range(300)]))

    def test_ids_are_uint16_where_the_vocabulary_fits(self, kind: str) -> None:
        assert open_tokens(f"synthetic:{kind}:64K").tokens.dtype == np.dtype("<u2")

    def test_any_size_costs_no_memory(self, kind: str) -> None:
        open_tokens(f"synthetic:{kind}:64:1M").tokens[:1000]
        tracemalloc.start()
        dataset = StreamingDataset(f"synthetic:{kind}:64:200T", seq_len=128)
        batch = next(iter(dataset.loader(batch_size=32)))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(dataset) > 10**12
        assert batch["input_ids"].shape == (32, 128)
        assert peak < 16 << 20

    def test_a_worker_gets_the_uri_and_reads_the_same(self, kind: str) -> None:
        dataset = StreamingDataset(f"synthetic:{kind}:50257:1B", seq_len=16)
        packed = pickle.dumps(dataset)
        assert len(packed) < 3000, "no table travels"
        assert torch.equal(pickle.loads(packed)[3]["labels"], dataset[3]["labels"])


def test_another_process_reads_the_same_bytes() -> None:
    code = (
        "import hashlib\nfrom data_loading import StreamingDataset\n"
        f"for kind in {list(KINDS)}:\n"
        "    dataset = StreamingDataset(f'synthetic:{kind}:50:1T:3', seq_len=100, seed=1)\n"
        "    print(hashlib.sha256(dataset.read(2, 7, 20)['labels'].numpy().tobytes()).hexdigest())\n"
    )
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    datasets = [StreamingDataset(f"synthetic:{kind}:50:1T:3", seq_len=100, seed=1) for kind in KINDS]
    read = [dataset.read(2, 7, 20)["labels"].numpy().tobytes() for dataset in datasets]
    assert told == [hashlib.sha256(labels).hexdigest() for labels in read]
    assert len(set(told)) == len(KINDS)


def test_golden_tokens() -> None:
    """These never change: a run resumed next year reads them. Raise GENERATOR_VERSION if they must."""
    golden = json.loads((Path(__file__).parent / "golden_tokens.json").read_text())
    for uri, tokens in golden["tokens"].items():
        found = open_tokens(uri)
        assert found.tokens[123_456_789:123_456_813].tolist() == tokens, uri
    assert open_tokens("synthetic:markov:64:1B:0").fingerprint == golden["fingerprint"]


def test_what_decides_the_tokens_decides_the_fingerprint() -> None:
    names = [
        "synthetic:uniform:64:1M:0", "synthetic:zipf:64:1M:0", "synthetic:uniform:65:1M:0",
        "synthetic:uniform:64:2M:0", "synthetic:uniform:64:1M:1",
    ]  # fmt: skip
    assert len({open_tokens(name).fingerprint for name in names}) == len(names)
    assert open_tokens("synthetic:uniform:64:1e6").fingerprint == open_tokens(names[0]).fingerprint


@pytest.mark.parametrize(("tokens", "documents"), [(128, 1), (129, 2), (1280, 10), (1279, 10)])
def test_documents_of_copy_begin_every_128_tokens(tokens: int, documents: int) -> None:
    found = open_tokens(f"synthetic:copy:64:{tokens}").documents
    assert found is not None
    assert found[:].tolist() == [128 * i for i in range(documents)]
    assert found.dtype == np.dtype("<u8")


class TestSplits:
    def test_ranges_of_the_index_as_of_any_set(self) -> None:
        data = prepare_data(
            Dataset(path="synthetic:zipf:64:1M", val_tokens=1000, test_tokens=500), IDS, tokenize=False
        )
        assert (data.train_ranges, data.test_ranges, data.val_ranges) == (
            (range(998_500),),
            (range(998_500, 999_000),),
            (range(999_000, 1_000_000),),
        )

    def test_val_of_copy_begins_with_a_document(self) -> None:
        data = prepare_data(Dataset(path="synthetic:copy:64:1M", val_fraction=0.05), IDS, tokenize=False)
        assert data.val_ranges[0].start % 128 == 0
        assert abs(len(data.val_ranges[0]) - 50_000) < 64

    def test_val_of_its_own(self, golden: Golden) -> None:
        dataset = Dataset(path="synthetic:markov:64:1M:0", val_path="synthetic:markov:32:2K:1")
        data = prepare_data(dataset, IDS, tokenize=False)
        assert (data.tokens("train"), data.tokens("val"), data.vocab_size) == (1_000_000, 2000, 64)
        assert data.describe()["val_path"] == "synthetic:markov:32:2K:1"
        same = Dataset(path="synthetic:zipf:64:1M:3", val_path="synthetic:zipf:64:2M:3")
        with golden.refused("val-is-train"):
            prepare_data(same, IDS, tokenize=False)
        with golden.refused("val-path-not-uri"):
            prepare_data(Dataset(path="synthetic:zipf", val_path="x.npy"), IDS, tokenize=False)

    def test_documents_of_copy_are_kept_apart(self, golden: Golden) -> None:
        dataset = StreamingDataset(
            "synthetic:copy:64:1M", seq_len=200, order="sequential", documents="masked"
        )
        batch = dataset.__getitems__([0, 1])
        assert batch["position_ids"][0].tolist() == [*range(128), *range(72)]
        assert (batch["labels"] == -100).nonzero().tolist() == [[0, 127], [1, 55], [1, 183]]
        with golden.refused("document-starts-unknown"):
            StreamingDataset("synthetic:zipf", seq_len=200, documents="masked")


def test_resume_is_exact_with_any_ranks(golden: Golden) -> None:
    def ids(loaders: list) -> list[torch.Tensor]:  # type: ignore[type-arg]
        return [torch.cat([batch["labels"] for batch in step]) for step in zip(*loaders, strict=True)]

    dataset = StreamingDataset("synthetic:markov:64:100K", seq_len=64, seed=1)
    whole = torch.cat(ids([dataset.loader(6)]))
    first = dataset.loader(6, num_batches=30)
    begun = torch.cat(ids([first]))
    rest = [StreamingDataset("synthetic:markov:64:100K", seq_len=64, seed=1).loader(3, r, 2) for r in (0, 1)]
    for loader in rest:
        loader.load_state_dict(first.state_dict())
    gone_on = torch.cat([torch.cat([batch["labels"] for batch in step]) for step in zip(*rest, strict=False)])
    assert torch.equal(torch.cat([begun, gone_on])[: len(whole) - 6], whole[: len(whole) - 6])
    with golden.refused("state-of-other-data"):
        StreamingDataset("synthetic:markov:64:100K:1", seq_len=64, seed=1).loader(6).load_state_dict(
            first.state_dict()
        )


class TestReaders:
    def test_auto_says_that_they_are_computed(self, golden: Golden) -> None:
        golden.text(StreamingDataset("synthetic:zipf").reader)

    @pytest.mark.parametrize(
        ("how", "code"),
        [
            ({"reader": "mmap"}, "synthetic-has-no-file"),
            ({"reader": "pread"}, "synthetic-has-no-file"),
            ({"reader": "memory"}, "synthetic-has-no-file"),
            ({"reader": "fast"}, "reader-unknown"),
            ({"max_resident_bytes": 10**6}, "synthetic-has-no-file"),
            ({"verify": "blocks"}, "synthetic-has-no-file"),
        ],
    )
    def test_what_is_done_with_files_is_refused(
        self, how: dict[str, object], code: str, golden: Golden
    ) -> None:
        with golden.refused(code):
            StreamingDataset("synthetic:zipf", **how)  # type: ignore[arg-type]

    def test_a_window_that_is_not_in_it(self) -> None:
        dataset = StreamingDataset("synthetic:zipf:64:1K", seq_len=10)
        with pytest.raises(IndexError, match=r"995.*1005.*1,000"):
            dataset._reader.gather(np.array([995]), 10)


class TestRanks:
    def batches(self, name: str, rank: int, world_size: int = 3) -> torch.Tensor:
        from conf.command_line.request import read_run
        from conf.composing.compose import Composer

        dataset = read_run([f"dataset={name}"], Composer()).dataset
        data = prepare_data(dataset, IDS, tokenize=False)
        loader = open_train(data, dataset, 16, 0, 4).loader(4, rank, world_size, num_batches=5)
        return torch.cat([batch["input_ids"] for batch in loader])

    def test_dummy_is_the_same_on_every_rank(self) -> None:
        one = self.batches("dummy", 0, 1)
        assert all(torch.equal(self.batches("dummy", rank), one) for rank in range(3))

    def test_distributed_dummy_is_another_on_each(self) -> None:
        ranks = [self.batches("distributed_dummy", rank) for rank in range(3)]
        rows = {tuple(row.tolist()) for rank in ranks for row in rank}
        assert len(rows) == 3 * 20

    def test_alike_in_one_process(self) -> None:
        assert torch.equal(self.batches("dummy", 0, 1), self.batches("distributed_dummy", 0, 1))

    def test_an_epoch_is_over_when_each_rank_has_read_it_all(self, golden: Golden) -> None:
        dataset = StreamingDataset("synthetic:zipf:64:2K", seq_len=16, ranks="shared")
        assert len(dataset.loader(10, rank=1, world_size=2)) == -(-len(dataset) // 10)
        with golden.refused("rank-outside"):
            dataset.loader(10, rank=2, world_size=2)

    def test_a_state_of_the_other_way_is_refused(self, golden: Golden) -> None:
        one, other = (
            StreamingDataset("synthetic:zipf:64:2K", seq_len=16, ranks=ranks).loader(4)
            for ranks in ("shared", "distinct")
        )
        with golden.refused("state-of-other-data"):
            other.load_state_dict(one.state_dict())
        with golden.refused("ranks-unknown"):
            StreamingDataset("synthetic:zipf:64:2K", seq_len=16, ranks="alike")


class TestFloor:
    def test_of_the_windows_that_an_evaluation_reads(self) -> None:
        dataset = Dataset(path="synthetic:copy:64:1M", val_tokens=10_000)
        data = prepare_data(dataset, IDS, tokenize=False)
        val = open_held_out(data, "val", dataset, 100)
        wanted = 7
        paid = labels = 0
        for i in range(wanted):
            start = data.val_ranges[0].start + i * 100
            row = val[i]
            seen: dict[int, int] = {}
            for t in range(100):
                seen[start + t] = int(row["input_ids"][t])
                label = start + t + 1
                is_free = label % 128 >= 64 and label - 64 in seen
                if is_free:
                    assert seen[label - 64] == int(row["labels"][t])
                paid, labels = paid + (not is_free), labels + 1
        found = floor_loss(data, eval_tokens=wanted * 100 - 50, seq_len=100)
        assert found == pytest.approx(paid / labels * np.log(64))

    def test_none_of_a_text(self, tmp_path: Path) -> None:
        data = prepare_data("some words and more of them " * 20)
        assert floor_loss(data, eval_tokens=100, seq_len=16) is None
