"""Streams of the hub: documents read, divided over ranks and resumed, by the package `datasets` itself."""

from __future__ import annotations

import inspect
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conf.schema import Tokenizer
from data_loading import StreamingDataset, load_tokenizer, open_stream, open_tokens
from data_loading.hub_stream.hub_stream import HubStream
from data_loading.hub_stream.stream_documents import RankPart, StreamDocuments
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.data_loading.hub.hub_server import hub_server
from tests.data_loading.hub.test_client import write_dataset
from tests.golden_text import Golden

datasets = pytest.importorskip("datasets")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5 files of train, 45 documents, and a file of validation."""
    folder = tmp_path_factory.mktemp("stream") / "mine"
    write_dataset(folder, files=5, rows=7)
    write_dataset(folder, files=1, rows=6, split="validation")
    return folder


def stream_of(folder: Path, seq_len: int = 8, seed: int = 0, **options: Any) -> HubStream:
    options.setdefault("buffer_windows", 7)
    return HubStream(f"hf://{folder}", seq_len, seed, tokenizer="bytes", **options)


def rows(batches: Any) -> list[tuple[int, ...]]:
    return [tuple(row) for batch in batches for row in batch["input_ids"].tolist()]


def windows_of(texts: list[str], seq_len: int = 8) -> list[tuple[int, ...]]:
    tokens = [i for text in texts for i in [*text.encode(), 256]]
    return [tuple(tokens[at : at + seq_len]) for at in range(0, len(tokens) - seq_len, seq_len)]


def texts_of(folder: Path, part: RankPart, **options: Any) -> list[str]:
    def opened() -> Any:
        return datasets.load_dataset(str(folder), split="train", streaming=True)

    documents = StreamDocuments(opened, "test", "text", part, **options)
    return list(iter(documents.next, None))


class TestDocuments:
    def test_all_in_order(self, folder: Path, tmp_path: Path) -> None:
        assert texts_of(folder, RankPart()) == write_dataset(tmp_path, files=5, rows=7)

    @pytest.mark.parametrize("world_size", [2, 3, 6])
    @pytest.mark.parametrize("key", [0, 5])
    def test_ranks_share_all_and_overlap_in_nothing(self, folder: Path, world_size: int, key: int) -> None:
        parts = [texts_of(folder, RankPart(rank, world_size, key)) for rank in range(world_size)]
        assert Counter(text for part in parts for text in part) == Counter(texts_of(folder, RankPart()))
        assert all(parts), "each rank has some"

    def test_files_come_in_the_order_of_a_key(self, folder: Path) -> None:
        orders = {
            tuple(dict.fromkeys(t.split()[1] for t in texts_of(folder, RankPart(key=k)))) for k in range(20)
        }
        assert len(orders) > 10
        assert all(sorted(order) == list("01234") for order in orders)

    @pytest.mark.parametrize("part", [RankPart(), RankPart(1, 2, 7), RankPart(2, 7, 3)])
    def test_each_place_resumes_twice(self, folder: Path, part: RankPart) -> None:
        def opened() -> Any:
            return datasets.load_dataset(str(folder), split="train", streaming=True)

        whole = texts_of(folder, part)
        for number in range(0, len(whole), 5):
            documents = StreamDocuments(opened, "test", "text", part)
            for _ in range(number + 1):
                documents.next()
            for later in range(2):
                place = json.loads(json.dumps(documents.place))
                documents = StreamDocuments(opened, "test", "text", part, place=place)
                if number + later < len(whole):
                    assert documents.next() == whole[number + later]
                documents.next()

    def test_rows_without_a_text_and_held_out_ones_are_passed_over(self, tmp_path: Path) -> None:
        from data_loading.hub_stream.stream_documents import digest

        values = ["a", None, "", "held", "b", "held"]
        lines = [json.dumps({"text": value}) for value in values]
        (tmp_path / "x.jsonl").write_text("\n".join(lines))
        assert texts_of(tmp_path, RankPart(), left_out={digest(b"held")}) == ["a", "b"]

    def test_a_row_that_is_no_document(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "x.jsonl").write_text('{"text": 3}\n')
        with golden.refused("document-not-text"):
            texts_of(tmp_path, RankPart())

    def test_no_such_field(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "x.jsonl").write_text('{"body": "x", "id": 1}\n')
        with golden.refused("text-field-missing"):
            texts_of(tmp_path, RankPart())

    def test_a_package_that_loses_its_place(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        def opened() -> Any:
            return datasets.load_dataset(str(folder), split="train", streaming=True)

        documents = StreamDocuments(opened, "test", "text")
        for _ in range(4):
            documents.next()
        place = json.loads(json.dumps(documents.place))
        again = StreamDocuments(opened, "test", "text", place=place)
        monkeypatch.setattr(datasets.IterableDataset, "state_dict", lambda self: place["rows"])
        with golden.refused("datasets-too-old"):
            again.next()


class TestLoader:
    def test_an_epoch_is_all_windows_of_train(self, folder: Path, tmp_path: Path) -> None:
        texts = write_dataset(tmp_path, files=5, rows=7)
        in_order = rows(stream_of(folder, order="sequential").loader(4))
        assert in_order == windows_of(texts)
        batches = list(stream_of(folder).loader(4))
        assert all(batch["input_ids"].dtype == torch.int64 for batch in batches)
        assert [len(batch["labels"]) for batch in batches[:-1]] == [4] * (len(batches) - 1)
        for batch in batches:
            assert torch.equal(batch["labels"][:, :-1], batch["input_ids"][:, 1:])

    def test_epochs_and_seeds_differ_and_repeat(self, folder: Path) -> None:
        loader = stream_of(folder).loader(4)
        first, second = rows(loader), rows(loader)
        assert loader.state_dict()["epoch"] == 1
        assert first != second
        assert first != rows(stream_of(folder, seed=1).loader(4))
        assert first == rows(stream_of(folder).loader(3))
        later = stream_of(folder)
        later.set_epoch(1)
        assert rows(later.loader(4)) == second

    def test_a_repeating_loader_goes_over_the_end(self, folder: Path) -> None:
        epochs = rows(stream_of(folder).loader(1, num_batches=None))
        loader = stream_of(folder).loader(4, num_batches=40, repeat=True)
        found = rows(loader)
        assert len(found) == 160
        assert found[: len(epochs)] == epochs
        assert loader.state_dict()["epoch"] == 160 // len(epochs)

    @pytest.mark.parametrize(("rank", "world_size", "shift"), [(0, 1, 1), (1, 2, 2), (0, 7, 1)])
    def test_resume_is_exact_at_every_batch(
        self, folder: Path, rank: int, world_size: int, shift: int
    ) -> None:
        stream = stream_of(folder, shift=shift)

        def loader(batch_size: int) -> Any:
            return stream.loader(batch_size, rank, world_size, repeat=True)

        def read(loader: Any, batches: int) -> list[tuple[int, ...]]:
            return rows(batch for _, batch in zip(range(batches), loader, strict=False))

        whole = read(loader(3), 16)
        for stop in (0, 4, 8):
            first, second, third = loader(3), loader(3), loader(5)
            found = read(first, stop)
            second.load_state_dict(json.loads(json.dumps(first.state_dict())))
            found += read(second, 5)
            third.load_state_dict(json.loads(json.dumps(second.state_dict())))
            found += read(third, 1)
            assert found == whole[: len(found)]

    def test_the_end_of_an_epoch(
        self, folder: Path, caplog: pytest.LogCaptureFixture, golden: Golden
    ) -> None:
        size = len(rows(stream_of(folder).loader(5)))
        left = size % 5
        assert left
        with caplog.at_level(logging.INFO, "data_loading"):
            assert len(rows(stream_of(folder).loader(5, tail="drop"))) == size - left
        golden.text("\n".join(caplog.messages), numbers=False)
        loader = stream_of(folder).loader(5)
        rows(loader)
        again = stream_of(folder).loader(5)
        again.load_state_dict(loader.state_dict())
        assert len(rows(again)) == size, "the next epoch"
        assert again.state_dict()["epoch"] == 1

    def test_place_of_a_resume_is_logged(
        self, folder: Path, caplog: pytest.LogCaptureFixture, golden: Golden
    ) -> None:
        loader = stream_of(folder).loader(4)
        next(iter(loader))
        again = stream_of(folder).loader(4)
        again.load_state_dict(loader.state_dict())
        with caplog.at_level(logging.INFO, "data_loading"):
            next(iter(again))
        golden.text("\n".join(caplog.messages), numbers=False)

    def test_other_ranks_or_options_are_refused(self, folder: Path, golden: Golden) -> None:
        state = stream_of(folder).loader(4, 1, 2).state_dict()
        with golden.refused("stream-rank-changed"):
            stream_of(folder).loader(4, 0, 3).load_state_dict(state)
        for options in ({"seed": 1}, {"seq_len": 9}, {"shift": 2}, {"buffer_windows": 8}, {"val_tokens": 5}):
            with golden.refused("state-of-other-data"):
                stream_of(folder, **options).loader(4, 1, 2).load_state_dict(state)

    def test_what_a_loader_cannot_do(self, folder: Path, golden: Golden) -> None:
        stream = stream_of(folder)
        for code, options in {
            "workers-removed": {"num_workers": 2},
            "tail-unknown": {"tail": "pad"},
            "rank-outside": {"rank": 2, "world_size": 2},
            "batch-size-invalid": {"batch_size": 0},
        }.items():
            with golden.refused(code):
                stream.loader(**({"batch_size": 4} | options))
        with pytest.raises(TypeError):
            len(stream.loader(4))
        assert len(stream.loader(4, num_batches=5)) == 5

    def test_too_little_for_a_window_or_a_batch(self, folder: Path, golden: Golden) -> None:
        for options in ({}, {"repeat": True}):
            with golden.refused("stream-too-short"):
                next(iter(stream_of(folder, 4096).loader(2, **options)))
            with golden.refused("stream-batch-too-large"):
                next(iter(stream_of(folder).loader(1000, tail="drop", **options)))


class TestHeldOut:
    def test_its_own_split(self, folder: Path) -> None:
        stream = stream_of(folder)
        assert stream.val_split == "validation"
        own = [i for row in range(6) for i in [*f"validation 0 {row}".encode(), 256]]
        assert stream.held_out.tokens.tolist() == own
        assert stream.held_out.documents.tolist() == list(range(0, len(own), len(own) // 6))

    def test_else_the_first_documents_which_train_passes_over(self, tmp_path: Path) -> None:
        texts = write_dataset(tmp_path, files=3)
        stream = stream_of(tmp_path, val_tokens=21)
        held = [i for text in texts[:3] for i in [*text.encode(), 256]]
        assert stream.held_out.tokens.tolist() == held
        for world_size in (1, 2, 4):
            read = Counter(
                window
                for rank in range(world_size)
                for window in rows(stream_of(tmp_path, 1, val_tokens=21).loader(9, rank, world_size))
            )
            ends = world_size  # the last token of a rank is only a label
            assert read.total() == sum(len(text) + 1 for text in texts[3:]) - ends
        assert stream_of(tmp_path, 4, seed=9, val_tokens=21).held_out.tokens.tolist() == held

    def test_nothing_left_to_train_on(self, tmp_path: Path, golden: Golden) -> None:
        write_dataset(tmp_path)
        with golden.refused("val-tokens-too-many"):
            next(iter(stream_of(tmp_path).loader(1)))


def test_a_fast_engine_gives_the_ids_of_the_tokenizer(
    folder: Path, tokenizer_folder: Callable[[str], Path]
) -> None:
    tokenizer = load_tokenizer(Tokenizer(name="custom", path=str(tokenizer_folder("gpt2"))))
    stream = HubStream(f"hf://{folder}", 8, tokenizer=tokenizer, order="sequential")
    ids = [
        i
        for text in texts_of(folder, RankPart())
        for i in [*tokenizer.encode(text).tolist(), tokenizer.eot_id]
    ]
    expected = [tuple(ids[at : at + 8]) for at in range(0, len(ids) - 8, 8)]
    assert rows(stream.loader(4)) == expected
    assert getattr(stream._encode, "__self__", None) is not tokenizer, "not one by one by the reference"


def _options(called: Any) -> list[str]:
    return [name for name in inspect.signature(called).parameters if name != "self"]


class TestOpenStream:
    def test_options_are_those_of_the_stream(self, folder: Path) -> None:
        stream = open_stream(f"hf://{folder}", seq_len=8, tokenizer="bytes", buffer_windows=7)
        assert stream.fingerprint == stream_of(folder).fingerprint
        assert rows(stream.loader(4)) == rows(stream_of(folder).loader(4))

    def test_held_out_tokens_are_read_by_position(self, folder: Path) -> None:
        stream = open_stream(f"hf://{folder}", tokenizer=BytesTokenizer())
        val = StreamingDataset(stream.held_out_data(), "val", 8, order="sequential")
        assert val[0]["input_ids"].tolist() == list(b"validati")

    @pytest.mark.parametrize("split", ["train", "val"])
    def test_constructor_names_open_stream(self, folder: Path, split: str, golden: Golden) -> None:
        with golden.refused("stream-not-indexed") as found:
            StreamingDataset(f"hf://{folder}", split)
        assert f"open_stream('hf://{folder}'" in str(found.value)

    def test_signatures_show_every_option(self) -> None:
        for called in (StreamingDataset, open_stream, open_tokens):
            parameters = inspect.signature(called).parameters.values()
            assert all(one.annotation is not one.empty for one in parameters)
            assert not any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters)
        assert StreamingDataset.__new__ is object.__new__
        assert all(f"{name}:" in StreamingDataset.__init__.__doc__ for name in _options(StreamingDataset))
        assert all(f"{name}:" in open_stream.__doc__ for name in _options(open_stream))

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"val": 0.5}, "stream-val-share"),
            ({"order": "shuffled_blocks"}, "streamed-order"),
            ({"seq_len": 0}, "count-invalid"),
        ],
    )
    def test_invalid_options_are_refused(
        self, folder: Path, options: dict[str, Any], code: str, golden: Golden
    ) -> None:
        with golden.refused(code):
            open_stream(f"hf://{folder}", tokenizer="bytes", **options)

    def test_unknown_name_is_refused(self, golden: Golden) -> None:
        with golden.refused("hub-name-invalid"):
            open_stream("no-such-name")

    def test_val_of_zero_leaves_no_document_out(self, tmp_path: Path, golden: Golden) -> None:
        write_dataset(tmp_path, files=2, rows=20)
        stream = stream_of(tmp_path, order="sequential", val_tokens=0)
        assert rows(stream.loader(4)) == windows_of(texts_of(tmp_path, RankPart()))
        assert len(rows(stream_of(tmp_path, val_tokens=50).loader(4))) < len(rows(stream.loader(4)))
        with golden.refused("no-val-split"):
            _ = stream.held_out

    def test_unknown_split_is_refused(self, folder: Path, golden: Golden) -> None:
        with golden.refused("hub-split-missing"):
            stream_of(folder, split="dev")

    def test_open_tokens_opens_the_set_made_of_it(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        from data_loading import materialize

        monkeypatch.chdir(folder.parent)
        with golden.refused("hub-not-materialized"):
            open_tokens("hf://./mine")
        materialize("hf://./mine", "bytes", workers=0)
        assert open_tokens("hf://./mine").n_tokens == 451


READ = """
import json, sys
from data_loading import open_stream
source, state, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
dataset = open_stream(source, seq_len=8, tokenizer="bytes", buffer_windows=16, val=30)
loader = dataset.loader(4, repeat=True)
if state:
    loader.load_state_dict(json.loads(state))
found = [batch["input_ids"].tolist() for _, batch in zip(range(batches), loader)]
print(json.dumps([found, loader.state_dict()]))
"""


@pytest.mark.slow
def test_from_a_hub_in_processes_of_their_own(tmp_path: Path) -> None:
    write_dataset(tmp_path / "hub" / "org" / "name", files=4, rows=30)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    kept |= {"PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path / "hf")}

    with hub_server(tmp_path / "hub") as hub:

        def read(state: str, batches: int) -> Any:
            done = subprocess.run(
                [sys.executable, "-c", READ, "hf://org/name", state, str(batches)],
                cwd=tmp_path, capture_output=True, text=True, timeout=240,
                env={**kept, "HF_ENDPOINT": hub.url},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert "Exception ignored" not in done.stderr
            return json.loads(done.stdout.splitlines()[-1])

        whole, _ = read("", 60)
        first, state = read("", 11)
        second, state = read(json.dumps(state), 17)
        third, _ = read(json.dumps(state), 32)
    assert first + second + third == whole


def test_text_field_is_an_option(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"body": "one line of text"}\n' * 50)
    (tmp_path / "validation.jsonl").write_text('{"body": "held out"}\n' * 50)
    stream = open_stream(f"hf://{tmp_path}", seq_len=8, tokenizer="bytes", text_field="body", val=64)
    for dataset in (stream, StreamingDataset(stream.held_out_data(), "val", 8)):
        assert next(iter(dataset.loader(2)))["input_ids"].shape == (2, 8)


def test_error_of_a_broken_folder_names_no_network(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "one')
    with golden.refused("hub-refused", numbers=False):
        next(iter(HubStream(f"hf://{tmp_path}", 8, tokenizer="bytes").loader(1)))


def test_other_tail_and_damaged_state_are_refused(folder: Path, golden: Golden) -> None:
    loader = stream_of(folder).loader(3)
    next(iter(loader))
    state = loader.state_dict()
    with golden.refused("state-of-other-tail"):
        stream_of(folder).loader(3, tail="drop").load_state_dict(state)
    for damaged in ({"samples": -5}, {"stream": None}, {"stream": {}}, {"stream": [1]}):
        with golden.refused("state-damaged"):
            stream_of(folder).loader(3).load_state_dict({**state, **damaged})
