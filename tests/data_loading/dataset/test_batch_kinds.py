"""Shifted windows and streams are those of a few lines of Python, however a step is divided."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading import StreamingDataset
from data_loading.dataset.batch_kinds import proper_divisors
from data_loading.dataset.split_data import split_data
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.shards import Shards
from data_loading.tokens.token_set import TokenSet
from tests.golden_text import Golden
from tests.searched import examples

DIVIDED = st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 2), (6, 1), (2, 3)])
"""(ranks, micro-batches) of a step of 6 windows."""


def token_set(tmp_path: Path, n: int) -> TokenSet:
    path = tmp_path / f"{n}.npy"
    np.save(path, np.arange(n, dtype="<u2"))
    return TokenSet(path, np.load(path, mmap_mode="r"), None, None, 60_000, "f")


def dataset_of(
    tmp_path: Path, n: int, kind: str, seq_len: int = 12, step: int = 6, **how: int
) -> StreamingDataset:
    data = split_data(token_set(tmp_path, n + 1), None, None, 1)
    return StreamingDataset(data, "train", seq_len, windows=kind, step_windows=step, **how)


def steps_of(
    dataset: StreamingDataset, divided: tuple[int, int], count: int, resumed: int
) -> list[dict[str, torch.Tensor]]:
    """Global batches put together from ranks and micro-batches; new loaders take over every few steps."""
    ranks, micro = divided
    size = 6 // (ranks * micro)
    state, steps = None, []
    while len(steps) < count:
        loaders = [dataset.loader(size, rank, ranks, repeat=True) for rank in range(ranks)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        iterators = [iter(loader) for loader in loaders]
        for _ in range(min(resumed, count - len(steps))):
            parts = [next(iterator) for _ in range(micro) for iterator in iterators]
            steps.append(dataset.join(parts))
        state = loaders[0].state_dict()
    return steps


class TestShifted:
    @settings(max_examples=examples(30))
    @given(
        divided=DIVIDED,
        seq_len=st.sampled_from([1, 7, 12, 16, 30]),
        resumed=st.integers(1, 9),
        seed=st.integers(0, 3),
    )
    def test_a_step_has_one_shift_that_divides_the_window(
        self, divided: tuple[int, int], seq_len: int, resumed: int, seed: int, tmp_path: Path
    ) -> None:
        dataset = dataset_of(tmp_path, 500, "shifted", seq_len, seed=seed)
        count = 2 * len(dataset) // 6 + 3
        stream = [w for epoch in range(3) for w in dataset.window_at(range(len(dataset)), epoch).tolist()]
        for number, step in enumerate(steps_of(dataset, divided, count, resumed)):
            shift = int(step["shift"])
            assert shift in proper_divisors(seq_len)
            assert step["input_ids"].shape == step["labels"].shape == (6, seq_len // shift, shift)
            for row, window in enumerate(stream[6 * number : 6 * number + 6]):
                first = window * seq_len
                assert step["input_ids"][row].flatten().tolist() == list(range(first, first + seq_len))
            assert torch.equal(step["labels"], step["input_ids"] + shift)

    def test_all_divisors_are_drawn_alike_and_by_seed(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 5000, "shifted")
        drawn = [dataset._batches.shift_of(step) for step in range(5000)]  # type: ignore[attr-defined]
        counts = np.array([drawn.count(divisor) for divisor in (1, 2, 3, 4, 6)])
        assert counts.sum() == 5000
        assert np.abs(counts - 1000).max() < 5 * math.sqrt(1000)
        other = dataset_of(tmp_path, 5000, "shifted", seed=1)
        assert [other._batches.shift_of(step) for step in range(50)] != drawn[:50]  # type: ignore[attr-defined]

    def test_the_last_window_has_room_for_the_largest_shift(self, tmp_path: Path) -> None:
        assert len(dataset_of(tmp_path, 36 + 6, "shifted", step=1)) == 3
        assert len(dataset_of(tmp_path, 36 + 5, "shifted", step=1)) == 2

    def test_batches_that_do_not_divide_a_step_are_refused(self, tmp_path: Path, golden: Golden) -> None:
        for kind in ("shifted", "streams"):
            dataset = dataset_of(tmp_path, 500, kind)
            for batch_size, ranks in ((4, 1), (12, 1), (2, 2)):
                with golden.refused("batch-not-divisor-of-step"):
                    dataset.loader(batch_size, world_size=ranks)
            state = dataset.loader(1).state_dict()
            with golden.refused("state-inside-step"):
                dataset.loader(3).load_state_dict({**state, "samples": 2})

    @pytest.mark.parametrize("how", [{}, {"tail": "drop"}, {"tail": "pad"}, {"repeat": True}])
    def test_each_epoch_has_whole_steps_however_it_ends(
        self, how: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Golden
    ) -> None:
        caplog.set_level("INFO")
        dataset = dataset_of(tmp_path, 12 * 20 + 7, "shifted")
        golden.text("\n".join(caplog.messages), numbers=False)
        assert len(dataset) == 18
        loader = dataset.loader(6, **how, num_batches=None if not how.get("repeat") else 3)
        shifts = []
        for _ in range(3):
            batches = list(loader)
            assert len(batches) == 3
            assert all(len(batch["input_ids"]) == 6 for batch in batches)
            shifts += [int(batch["shift"]) for batch in batches]
        assert shifts == [dataset._batches.shift_of(step) for step in range(9)]  # type: ignore[attr-defined]

    def test_a_sampler_of_torch_gets_one_shift_a_batch(self, tmp_path: Path) -> None:
        dataset = dataset_of(tmp_path, 500, "shifted")
        batch = dataset.__getitems__([30, 2, 17, 9])
        shift = int(batch["shift"])
        assert batch["input_ids"].shape == (4, 12 // shift, shift)
        assert dataset[30]["input_ids"].shape == (12 // shift, shift)
        assert int(dataset[30]["shift"]) == shift


class TestStreams:
    @settings(max_examples=examples(30))
    @given(divided=DIVIDED, n=st.integers(100, 900), resumed=st.integers(1, 9))
    def test_rows_go_on_where_they_ended(
        self, divided: tuple[int, int], n: int, resumed: int, tmp_path: Path
    ) -> None:
        dataset = dataset_of(tmp_path, n, "streams")
        per_row = ((n - 1) // 12) // 6
        assert len(dataset) == 6 * per_row
        steps = steps_of(dataset, divided, 2 * per_row + 1, resumed)
        for number, step in enumerate(steps):
            at = number % per_row
            for row in range(6):
                first = (row * per_row + at) * 12
                assert step["input_ids"][row].tolist() == list(range(first, first + 12))
                assert step["labels"][row].tolist() == list(range(first + 1, first + 13))
            assert step["reset"].tolist() == [at == 0] * 6

    def test_a_row_that_crosses_from_one_range_to_another_is_reset(self, tmp_path: Path) -> None:
        """Windows 0 to 4 lie in the first range, 5 to 9 in the second: a row of 3 to 5 breaks inside."""
        whole = token_set(tmp_path, 200)
        data = split_data(whole, None, None, 1)
        object.__setattr__(data, "train_ranges", (range(51), range(100, 151)))
        dataset = StreamingDataset(data, "train", 10, windows="streams", step_windows=2)
        resets = torch.stack([batch["reset"] for batch in dataset.loader(2)])
        starts = torch.stack([batch["input_ids"][:, 0] for batch in dataset.loader(2)])
        assert starts.T.tolist() == [[0, 10, 20, 30, 40], [100, 110, 120, 130, 140]]
        assert resets.T.tolist() == [[True] + [False] * 4] * 2
        dataset = StreamingDataset(data, "train", 10, windows="streams", step_windows=3)
        batches = list(dataset.loader(3))
        assert torch.stack([b["input_ids"][:, 0] for b in batches]).T.tolist() == [
            [0, 10, 20],
            [30, 40, 100],
            [110, 120, 130],
        ]
        assert torch.stack([b["reset"] for b in batches]).T.tolist() == [
            [True, False, False], [True, False, True], [True, False, False]
        ]  # fmt: skip

    def test_windows_that_fill_no_row_are_logged(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Golden
    ) -> None:
        caplog.set_level("INFO")
        dataset_of(tmp_path, 12 * 20 + 1, "streams")
        golden.text("\n".join(caplog.messages), numbers=False)


def documents_set(tmp_path: Path, lengths: list[int], listed: bool, shards: int = 1) -> TokenSet:
    """Documents of ids from 1 on, each with the end-of-text id 0 behind it."""
    ids = np.concatenate([np.append(np.arange(1, n), 0) for n in lengths]).astype("<u2")
    starts = np.cumsum([0, *lengths])[:-1].astype("<u8")
    cuts = np.linspace(0, len(ids), shards + 1).astype(int)
    parts, begun = [], []
    for number, (a, b) in enumerate(itertools.pairwise(cuts)):
        np.save(tmp_path / f"{number}.npy", ids[a:b])
        parts.append(np.load(tmp_path / f"{number}.npy", mmap_mode="r"))
        begun.append(starts[(starts >= a) & (starts < b)] - np.uint64(a))
    documents = Shards(begun, cuts[:-1].tolist()) if shards > 1 else starts
    tokens = Shards(parts) if shards > 1 else parts[0]
    return TokenSet(tmp_path / "0.npy", tokens, documents if listed else None, None, 60_000, "f")


class TestMasked:
    @settings(max_examples=examples(60))
    @given(
        lengths=st.lists(st.integers(1, 40), min_size=3, max_size=40),
        seq_len=st.integers(1, 30),
        shift=st.integers(1, 3),
        listed=st.booleans(),
        shards=st.integers(1, 3),
    )
    def test_documents_are_separated(
        self, lengths: list[int], seq_len: int, shift: int, listed: bool, shards: int, tmp_path: Path
    ) -> None:
        """Against a loop over tokens; a list of starts or the end-of-text id says where they begin."""
        total = sum(lengths)
        if total < seq_len + shift + 1:
            return
        whole = documents_set(tmp_path, lengths, listed, shards)
        data = dataclasses.replace(split_data(whole, None, None, 1), eot_id=0)
        dataset = StreamingDataset(
            data, "train", seq_len, order="sequential", shift=shift, documents="masked"
        )
        number = np.repeat(np.arange(len(lengths)), lengths)
        place = np.concatenate([np.arange(n) for n in lengths])
        batches = [dataset.read(0, i, min(i + 2, len(dataset))) for i in range(0, len(dataset), 2)]
        batch = dataset.join(batches)
        borders = []
        for row in range(len(dataset)):
            first = row * seq_len
            for t in range(seq_len):
                at = first + t
                begins = max(first, at - int(place[at]))
                assert batch["position_ids"][row, t] == at - begins
                same = number[at] == number[at + shift]
                assert batch["labels"][row, t] == (
                    whole.tokens[at + shift : at + shift + 1][0] if same else -100
                )
                if at == begins:
                    borders.append(row * seq_len + t)
        assert batch["cu_seqlens"].tolist() == [*borders, len(dataset) * seq_len]
        assert batch["cu_seqlens"].dtype == torch.int32

    @pytest.mark.parametrize("kind", ["masked", "separate"])
    def test_the_list_of_documents_goes_to_another_process_as_a_path(self, kind: str, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").write_text("\n".join('{"text": "some words"}' for _ in range(3000)))
        source = open_inputs([str(tmp_path / "x.jsonl")], InputOptions())
        pretokenize(source, BytesTokenizer(), tmp_path / "x.npy", Options(workers=0))
        dataset = StreamingDataset(tmp_path / "x.npy", seq_len=16, documents=kind)
        sent = pickle.dumps(dataset)
        assert len(sent) < 8 * 3000 / 2
        assert torch.equal(pickle.loads(sent)[5]["labels"], dataset[5]["labels"])

    def test_a_set_that_tells_no_documents_is_refused(self, tmp_path: Path, golden: Golden) -> None:
        data = split_data(documents_set(tmp_path, [50, 60], listed=False), None, None, 1)
        assert data.eot_id is None
        with golden.refused("document-starts-unknown"):
            StreamingDataset(data, "train", 10, documents="masked")


@pytest.mark.parametrize(
    ("how", "code"),
    [({"kind": "rows"}, "windows-unknown"),
     ({"kind": "streams", "step": None}, "step-windows-missing"),
     ({"kind": "shifted", "stride": 3}, "stride-without-plain"),
     ({"kind": "streams", "shift": 2}, "stride-without-plain"),
     ({"kind": "streams", "step": 60}, "too-few-tokens"),
     ({"kind": "shifted", "order": "mixed"}, "order-unknown"),
     ({"kind": "streams", "order": "shuffled_blocks"}, "order-with-streams")],
)  # fmt: skip
def test_wrong_options(how: dict[str, object], code: str, tmp_path: Path, golden: Golden) -> None:
    with golden.refused(code):
        dataset_of(tmp_path, 500, **how)  # type: ignore[arg-type]


def test_fingerprints_tell_kinds_and_steps_apart(tmp_path: Path) -> None:
    prints = {
        dataset_of(tmp_path, 500, kind, step=step).fingerprint
        for kind in ("plain", "shifted", "streams")
        for step in (2, 6)
    }
    assert len(prints) == 5, "a plain stream is the same for every step"
