"""A mixture is read as any dataset is: by ranks, workers and resumed loaders, every window once a pass."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading import StreamingDataset, StreamingMixture, open_tokens, prepare_data
from data_loading.dataset.split_data import split_data
from data_loading.tokens.token_set import TokenSet
from tests.golden_text import Golden
from tests.searched import examples

SEQ = 4


def source(folder: Path, number: int, count: int, **options: Any) -> StreamingDataset:
    """A train split of `count` windows; a token's id is its place plus 10,000 for each source before it."""
    n = count * SEQ + 2
    path = folder / f"{number}-{count}.npy"
    if not path.exists():
        np.save(path, (np.arange(n) + 10_000 * number).astype("<u2"))
    tokens = TokenSet(path, np.load(path, mmap_mode="r"), None, None, options.pop("vocab", 60_000), path.name)
    starts = options.pop("starts", None)
    if starts is not None:
        tokens = TokenSet(path, tokens.tokens, np.arange(0, n, starts, np.uint64), None, 60_000, path.name)
    seq_len = options.pop("seq_len", SEQ)
    return StreamingDataset(split_data(tokens, None, None, 1 / n), "train", seq_len, seed=number, **options)


def mixture(folder: Path, sizes: list[int], weights: list[Any], **options: Any) -> StreamingMixture:
    return StreamingMixture([source(folder, i, size) for i, size in enumerate(sizes)], weights, **options)


def rows(batch: dict[str, torch.Tensor]) -> list[tuple[int, int]]:
    """(source, window) of each row, as its tokens tell."""
    for name in ("input_ids", "labels"):
        assert batch[name].dtype == torch.int64
    assert torch.equal(batch["labels"], batch["input_ids"] + 1)
    found = [divmod(int(row[0]), 10_000) for row in batch["input_ids"]]
    assert batch["source"].dtype == torch.int64
    assert batch["source"].tolist() == [s for s, _ in found]
    return [(s, place // SEQ) for s, place in found]


def read_all(loader: Any) -> list[tuple[int, int]]:
    return [row for batch in loader for row in rows(batch)]


class TestStream:
    @given(
        sizes=st.lists(st.integers(1, 25), min_size=1, max_size=4),
        when_dry=st.sampled_from(["stop", "repeat", "rebalance"]),
        batch=st.integers(1, 9),
        ranks=st.integers(1, 3),
        data=st.data(),
    )
    @settings(max_examples=examples(20))
    def test_whatever_reads_it_the_stream_is_the_same(
        self, tmp_path: Path, sizes: list[int], when_dry: str, batch: int, ranks: int, data: Any
    ) -> None:
        n = len(sizes)
        parts = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
        weights = [Fraction(part, sum(parts)) for part in parts]
        mixed = mixture(tmp_path, sizes, weights, when_dry=when_dry)
        whole = rows(mixed.read(0, 0, len(mixed)))
        assert [row for i in range(len(mixed)) for row in rows(mixed.read(0, i, i + 1))] == whole
        ranks = min(ranks, -(-len(mixed) // batch))  # more would read nothing, and are refused
        divided = [mixed.loader(batch, rank, ranks) for rank in range(ranks)]
        in_turn = itertools.zip_longest(*divided, fillvalue=None)
        assert [row for step in in_turn for part in step if part for row in rows(part)] == whole
        # Stopped anywhere, by ranks and batches of one kind, and gone on with by another.
        first = mixed.loader(batch)
        steps = data.draw(st.integers(0, (len(mixed) - 1) // batch))
        begun = [row for part in itertools.islice(iter(first), steps) for row in rows(part)]
        again = mixture(tmp_path, sizes, weights, when_dry=when_dry).loader(data.draw(st.integers(1, 9)))
        again.load_state_dict(first.state_dict())
        assert begun + read_all(again) == whole

    @given(
        sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3),
        when_dry=st.sampled_from(["stop", "repeat", "rebalance"]),
    )
    @settings(max_examples=examples(20))
    def test_a_source_is_read_as_alone_and_whole_before_it_comes_again(
        self, tmp_path: Path, sizes: list[int], when_dry: str
    ) -> None:
        weights = [Fraction(1, len(sizes))] * len(sizes)
        mixed = mixture(tmp_path, sizes, weights, when_dry=when_dry)
        found = read_all(itertools.islice(mixed.loader(3, repeat=True), 40))
        for i, alone in enumerate(mixed.sources):
            windows = [window for s, window in found if s == i]
            passes = [windows[k : k + sizes[i]] for k in range(0, len(windows), sizes[i])]
            for epoch, one in enumerate(passes):
                assert one == alone.window_at(range(len(one)), epoch).tolist()
                assert max(Counter(one).values()) == 1

    def test_loader_reads_the_positions_in_order(self, tmp_path: Path) -> None:
        mixed = mixture(tmp_path, [30, 20], [0.7, 0.3], when_dry="rebalance")
        assert read_all(mixed.loader(7)) == rows(mixed.read(0, 0, 50))

    def test_weights_change_at_the_first_window_that_begins_no_earlier(self, tmp_path: Path) -> None:
        mixed = mixture(tmp_path, [90, 90], [1, 0], curriculum={9: ["0.5", "0.5"], 40: [0, 1]})
        found = [s for s, _ in rows(mixed.read(0, 0, 20))]
        assert found == [0] * 3 + [0, 1] * 3 + [0] + [1] * 10

    def test_a_map_style_dataset(self, tmp_path: Path) -> None:
        mixed = mixture(tmp_path, [30, 20], [0.7, 0.3])
        whole = rows(mixed.__getitems__(range(len(mixed))))
        some = [5, 3, 3, len(mixed) - 1]
        assert rows(mixed.__getitems__(some)) == [whole[i] for i in some]
        last = mixed[-1]
        assert (int(last["source"]), last["input_ids"].shape) == (whole[-1][0], (SEQ,))
        loader = torch.utils.data.DataLoader(mixed, 8, collate_fn=StreamingMixture.collate)
        assert read_all(loader) == whole
        mixed.set_epoch(1)
        assert rows(mixed.__getitems__(range(5))) == rows(mixed.read(1, 0, 5)) != whole[:5]
        assert rows(pickle.loads(pickle.dumps(mixed)).__getitems__(range(5))) == rows(mixed.read(1, 0, 5))
        assert len(mixed.__getitems__([])["source"]) == 0
        for wrong in ([len(mixed)], [-1]):
            with pytest.raises(IndexError):
                mixed.__getitems__(wrong)

    @pytest.mark.parametrize("documents", ["masked", "separate"])
    def test_documents_keep_their_borders(self, documents: str, tmp_path: Path) -> None:
        parts = [source(tmp_path, i, 12, documents=documents, starts=3 + i) for i in range(2)]
        mixed = StreamingMixture(parts, [0.5, 0.5])
        for batch in (mixed.read(0, 0, 8), mixed.join([mixed.read(0, 0, 3), mixed.read(0, 3, 8)])):
            borders = torch.nonzero(batch["position_ids"].flatten() == 0).flatten()
            assert batch["cu_seqlens"].tolist() == [*borders.tolist(), batch["input_ids"].numel()]
            for row in range(8):
                alone = mixed.read(0, row, row + 1)
                for name in ("input_ids", "labels", "position_ids", "source"):
                    assert torch.equal(batch[name][row : row + 1], alone[name])
        assert (mixed.packing_efficiency is None) == (documents == "masked")

    def test_hints_reach_each_source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mixed, told = mixture(tmp_path, [30, 20], ["2/3", "1/3"]), []
        for part in mixed.sources:
            monkeypatch.setattr(part, "will_need", lambda *span, part=part: told.append((part, *span)))
        mixed.will_need(0, 3, 9)
        assert told == [(mixed.sources[0], 0, 2, 6), (mixed.sources[1], 0, 1, 3)]


class TestState:
    def test_other_weights_policies_and_sources_are_other_streams(
        self, tmp_path: Path, golden: Golden
    ) -> None:
        same = mixture(tmp_path, [30, 20], [0.7, 0.3])
        assert mixture(tmp_path, [30, 20], ["7/10", "3e-1"]).fingerprint == same.fingerprint
        others = [
            mixture(tmp_path, [30, 20], [0.6, 0.4]),
            mixture(tmp_path, [30, 20], [0.7, 0.3], when_dry="repeat"),
            mixture(tmp_path, [30, 20], [0.7, 0.3], curriculum={40: [0.5, 0.5]}),
            mixture(tmp_path, [30, 21], [0.7, 0.3]),
        ]
        assert len({same.fingerprint, *(other.fingerprint for other in others)}) == 5
        state = same.loader(4).state_dict()
        for other in others:
            with golden.refused("state-of-other-data"):
                other.loader(4).load_state_dict(state)


class TestBadInput:
    @pytest.mark.parametrize(
        ("weights", "options", "code"),
        [
            ([0.7, 0.4], {}, "weights-invalid"),
            ([0.7], {}, "weights-count"),
            ([1.3, -0.3], {}, "weights-invalid"),
            ([1, 0], {}, "weights-invalid"),
            (["a", 1], {}, "weights-invalid"),
            ([0.7, 0.3], {"when_dry": "never"}, "when-dry-unknown"),
            ([0.7, 0.3], {"curriculum": {0: [0.5, 0.5]}}, "curriculum-start-invalid"),
            ([0.7, 0.3], {"curriculum": {9: [0.5, 0.6]}}, "weights-invalid"),
            ([1, 0], {"curriculum": {9: [1, 0]}}, "source-weight-zero"),
        ],
    )
    def test_weights(self, weights: Any, options: Any, code: str, tmp_path: Path, golden: Golden) -> None:
        with golden.refused(code):
            mixture(tmp_path, [30, 20], weights, **options)

    def test_a_source_twice(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("mixture-source-twice"):
            StreamingMixture({"one": source(tmp_path, 0, 9), "two": source(tmp_path, 0, 9)}, [0.5, 0.5])

    def test_other_vocabularies(self, tmp_path: Path, golden: Golden) -> None:
        parts = {"one": source(tmp_path, 0, 9), "two": source(tmp_path, 1, 9, vocab=50_000)}
        with golden.refused("mixture-vocabularies-differ"):
            StreamingMixture(parts, [0.5, 0.5])

    def test_the_way_out_of_an_unknown_vocabulary_works(self, tmp_path: Path, golden: Golden) -> None:
        """Lone files of one tokenizer whose largest ids differ, as they nearly always do."""
        for name, n in (("one", 200), ("two", 400)):
            np.save(tmp_path / f"{name}.npy", np.arange(n, dtype="<u2"))
        alone = [StreamingDataset(tmp_path / f"{name}.npy", seq_len=SEQ) for name in ("one", "two")]
        with golden.refused("mixture-vocabularies-differ"):
            StreamingMixture(alone, [0.5, 0.5])
        named = [
            StreamingDataset(open_tokens(tmp_path / f"{name}.npy", vocab_size=400), seq_len=SEQ)
            for name in ("one", "two")
        ]
        assert len(StreamingMixture(named, [0.5, 0.5])) > 0

    def test_set_with_a_tokenizer_and_set_without_one(self, tmp_path: Path, golden: Golden) -> None:
        np.save(tmp_path / "one.npy", np.arange(257, dtype="<u2"))
        np.save(tmp_path / "few.npy", np.arange(200, dtype="<u2"))
        np.save(tmp_path / "many.npy", np.arange(300, dtype="<u2"))
        said = StreamingDataset(prepare_data("a text of some length " * 9), seq_len=SEQ)
        one, few, many = (
            StreamingDataset(tmp_path / f"{name}.npy", seq_len=SEQ) for name in ("one", "few", "many")
        )
        assert len(StreamingMixture([one, said], [0.5, 0.5])) > 0
        with golden.refused("mixture-vocabularies-differ"):
            StreamingMixture([few, said], [0.5, 0.5])
        with golden.refused("mixture-vocabularies-differ"):
            StreamingMixture([many, said], [0.5, 0.5])

    @pytest.mark.parametrize("options", [{"seq_len": 8}, {"shift": 2}, {"documents": "masked", "starts": 3}])
    def test_windows_of_another_form(self, options: dict[str, Any], tmp_path: Path, golden: Golden) -> None:
        parts = {"one": source(tmp_path, 0, 9), "two": source(tmp_path, 1, 9, **options)}
        with golden.refused("mixture-forms-differ"):
            StreamingMixture(parts, [0.5, 0.5])

    def test_kinds_that_belong_to_one_set(self, tmp_path: Path, golden: Golden) -> None:
        part = source(tmp_path, 0, 9, windows="streams", step_windows=2)
        with golden.refused("mixture-windows-not-plain"):
            StreamingMixture([part], [1])

    def test_nothing_to_mix(self, golden: Golden) -> None:
        with golden.refused("mixture-empty"):
            StreamingMixture([], [])
