"""A set is read whole once, known again by its content, and may be trained on."""

from __future__ import annotations

import json
import logging
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conf import schema
from data_loading import Data, StreamingDataset, open_tokens, prepare_data
from data_loading.import_formats import mosaic_samples, raw_dtype
from data_loading.import_formats.foreign_set import open_foreign
from data_loading.import_formats.format import Asked
from data_loading.tokenizers.load import KNOWN
from tests.data_loading.export_formats.conftest import set_of, written
from tests.data_loading.import_formats.files import some_items, write_litdata, write_mds, write_templar
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]
CHECKED = "highwater.checked.json"


@pytest.fixture
def reads(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "data_loading")
    return caplog


def test_it_is_read_once(tmp_path: Path, reads: pytest.LogCaptureFixture) -> None:
    folder = write_litdata(tmp_path / "s", some_items())
    first = open_tokens(folder)
    assert "reading" in reads.text
    reads.clear()
    assert open_tokens(folder).fingerprint == first.fingerprint
    assert reads.text == ""
    chunk = folder / "chunk-0-1.bin"
    data = bytearray(chunk.read_bytes())
    data[-4] ^= 1
    chunk.write_bytes(data)
    os.utime(chunk, ns=(1, time.time_ns() + 1))
    assert open_tokens(folder).fingerprint != first.fingerprint
    assert "reading" in reads.text


def test_it_is_known_by_content_and_not_by_place(tmp_path: Path, reads: pytest.LogCaptureFixture) -> None:
    write_templar(tmp_path / "a", np.arange(200, dtype="<u4"), 10)
    first = open_tokens(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copy2)
    for number in (0, 1):
        (tmp_path / f"b/train_{number:06d}.npy").rename(tmp_path / f"b/train_{number + 7:06d}.npy")
        (tmp_path / f"b/sample_ids_{number:06d}.bin").rename(tmp_path / f"b/sample_ids_{number + 7:06d}.bin")
    again = open_tokens(tmp_path / "b")
    assert again.fingerprint == first.fingerprint
    assert again.name != first.name
    np.save(tmp_path / "b/train_000007.npy", np.arange(1, 101, dtype="<u4"))
    assert open_tokens(tmp_path / "b").fingerprint != first.fingerprint


def test_the_order_of_files_changes_the_fingerprint(tmp_path: Path) -> None:
    folder = write_litdata(tmp_path / "s", [np.full(4, n, "<i4") for n in range(4)], a_chunk=2)
    first = open_tokens(folder)
    index = json.loads((folder / "index.json").read_text())
    index["chunks"].reverse()
    (folder / "index.json").write_text(json.dumps(index))
    again = open_tokens(folder)
    assert again.tokens[:5].tolist() == [2, 2, 2, 2, 3]
    assert again.fingerprint != first.fingerprint


def test_a_moved_set_is_not_read_again(tmp_path: Path, reads: pytest.LogCaptureFixture) -> None:
    write_litdata(tmp_path / "a", some_items())
    open_tokens(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    reads.clear()
    open_tokens(tmp_path / "b")
    assert "reading" not in reads.text


def test_the_dtype_is_decided_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: pytest.LogCaptureFixture, golden: Golden
) -> None:
    path = tmp_path / "a.bin"
    np.random.default_rng(0).integers(0, 257, 5000).astype("<u4").tofile(path)
    assert open_tokens(path, vocab_size=257).tokens.dtype == np.uint32
    assert (tmp_path / "a.bin.checked.json").exists()
    monkeypatch.setattr(raw_dtype, "_fits", None)
    assert open_tokens(path, vocab_size=257).tokens.dtype == np.uint32
    monkeypatch.undo()
    assert open_tokens(path, vocab_size=300).vocab_size == 300
    assert (
        json.loads((tmp_path / "a.bin.checked.json").read_text())["splits"]["all"]["asked_vocab_size"] == 300
    )
    with golden.refused("dtype-needs-vocabulary"):
        open_tokens(path)


def test_shapes_of_samples_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later the lengths say where ids lie: no page of the samples is touched."""
    items = [
        np.arange(size, dtype=dtype)
        for size in (1, 2, 255, 256, 65_535, 65_536, 66_000)
        for dtype in ("<u2",)
    ]
    folder = write_mds(tmp_path / "s", items, a_shard=3)
    first = open_tokens(folder)
    monkeypatch.setattr(mosaic_samples, "_check_shapes", None)
    again = open_tokens(folder)
    assert again.tokens[:].tolist() == first.tokens[:].tolist() == np.concatenate(items).tolist()


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: pytest.LogCaptureFixture, golden: Golden
) -> None:
    folder = write_litdata(tmp_path / "s", some_items())

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("experiment_utils.atomic_files.write_json", refuse)
    assert open_tokens(folder).n_tokens == len(np.concatenate(some_items()))
    golden.text("\n".join(reads.messages), numbers=False)
    assert not (folder / CHECKED).exists()
    reads.clear()
    open_tokens(folder)
    assert "reading" not in reads.text, "known for the life of this process"


@pytest.mark.parametrize("content", ["", "[]", '{"splits": 3}', '{"splits": {"all": {"files": {}}}}'])
def test_stored_facts_may_be_damaged(content: str, tmp_path: Path) -> None:
    folder = write_litdata(tmp_path / "s", some_items())
    (folder / CHECKED).write_text(content)
    assert open_tokens(folder).n_tokens == len(np.concatenate(some_items()))
    assert json.loads((folder / CHECKED).read_text())["splits"]["all"]["max_id"] == 256


def test_a_quarter_of_a_million_items_open_at_once(tmp_path: Path) -> None:
    """Those of MDS, each behind a header of its own."""
    items = np.zeros((1 << 18, 5), "<u2")
    samples = np.zeros((len(items), 16), np.uint8)
    samples[:, 0], samples[:, 4], samples[:, 5], samples[:, 6:] = 12, 4, 5, items.view(np.uint8)
    folder = write_mds(tmp_path / "s", [items[0]])
    index = json.loads((folder / "index.json").read_text())
    header = 4 * (len(items) + 2)
    offsets = header + 16 * np.arange(len(items) + 1)
    data = np.array([len(items), *offsets], "<u4").tobytes() + samples.tobytes()
    (folder / "shard.00000.mds").write_bytes(data)
    index["shards"][0] |= {
        "samples": len(items),
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data)},
    }
    (folder / "index.json").write_text(json.dumps(index))
    open_tokens(folder)
    started = time.thread_time()  # of this thread alone: a second is a hundred times what it takes
    found = open_tokens(folder)
    assert time.thread_time() - started < 1.0
    assert found.documents is not None
    assert (len(found.documents), found.n_tokens) == (1 << 18, 5 << 18)


class TestPrepareData:
    """As a run asks for it."""

    def prepared(self, **given: Any) -> Data:
        dataset = schema.Dataset(source="text", **given)
        return prepare_data(dataset, KNOWN["bytes"], tokenize=True)

    def test_train_and_val_of_the_files(self, tmp_path: Path) -> None:
        written("nanogpt", tmp_path / "s", set_of([[n % 251] * 9 for n in range(900)]))
        data = self.prepared(path=str(tmp_path / "s"))
        assert (data.tokens("train"), data.tokens("val")) == (8100, 900)
        assert data.tokenizer_name == "bytes"
        assert data.eot_id == 256, "of the run's tokenizer"
        assert data.describe()["dtype"] == "uint16"

    def test_a_part_of_train_where_there_is_no_val(self, tmp_path: Path) -> None:
        write_litdata(tmp_path / "s", some_items(count=200))
        data = self.prepared(path=str(tmp_path / "s"), val_fraction=0.2)
        assert data.val is data.train
        start = data.val_ranges[0].start
        assert start in data.train.documents[:].tolist(), "on the start of an item"

    def test_val_from_files_of_another_kind(self, tmp_path: Path) -> None:
        write_litdata(tmp_path / "s", some_items(seed=1))
        write_mds(tmp_path / "v", some_items(seed=2))
        (tmp_path / "ours.txt").write_text("water " * 500)
        theirs = self.prepared(path=str(tmp_path / "s"), val_path=str(tmp_path / "v"))
        assert theirs.tokens("val") == len(np.concatenate(some_items(seed=2)))
        held_out = self.prepared(path=str(tmp_path / "ours.txt"), val_path=str(tmp_path / "v"))
        assert held_out.tokens("train") == 3001
        trained = self.prepared(path=str(tmp_path / "s"), val_path=str(tmp_path / "ours.txt"))
        assert trained.tokens("val") == 3001

    def test_splits_that_are_refused(self, tmp_path: Path, golden: Golden) -> None:
        written("nanogpt", tmp_path / "s", set_of([[n % 251] * 9 for n in range(900)]))
        write_litdata(tmp_path / "t", some_items())
        with golden.refused("val-path-is-pair"):
            self.prepared(path=str(tmp_path / "t"), val_path=str(tmp_path / "s"))
        with golden.refused("val-is-train"):
            self.prepared(path=str(tmp_path / "t"), val_path=str(tmp_path / "t"))
        (tmp_path / "ours.txt").write_text("water " * 500)
        with golden.refused("dtype-not-for-format"):
            self.prepared(path=str(tmp_path / "ours"), dtype="uint32")

        with golden.refused("dtype-not-for-format"):
            self.prepared(path="synthetic:copy:9:1000", dtype="uint16")

    def test_ids_alone(self, tmp_path: Path) -> None:
        """Whichever tokenizer they were made with."""
        written("megatron", tmp_path / "s", set_of([[n % 99] * 9 for n in range(900)], eot=None))
        write_mds(tmp_path / "v", some_items(vocab_size=300))
        dataset = schema.Dataset(source="text", path=str(tmp_path / "s"), val_path=str(tmp_path / "v"))
        data = prepare_data(dataset, schema.Tokenizer(name="ids"), tokenize=True)
        assert (data.train.vocab_size, data.vocab_size) == (99, 300)
        assert data.tokenizer_name == "ids"

    def test_raw_ids_of_any_name(self, tmp_path: Path) -> None:
        path = tmp_path / "ids.u16"
        some = np.concatenate(some_items("uint16"))
        path.write_bytes(some.tobytes())
        data = self.prepared(path=str(path), dtype="uint16")
        assert data.train.tokens[:].tolist() == some.tolist()


def test_streaming_dataset(tmp_path: Path, golden: Golden) -> None:
    items = some_items(count=40)
    write_mds(tmp_path / "s", items)
    dataset = StreamingDataset(tmp_path / "s", seq_len=64, order="sequential")
    whole = np.concatenate(items)
    for index in (0, 17, len(dataset) - 1):
        assert dataset[index]["input_ids"].tolist() == whole[64 * index : 64 * index + 64].tolist()
    with golden.refused("no-checksums"):
        StreamingDataset(tmp_path / "s", seq_len=64, verify="blocks")


def test_an_export_that_was_read_is_written_again(tmp_path: Path) -> None:
    """What is kept in its folder is ours, and does not stand in the way."""
    from data_loading.export_formats import load_format
    from data_loading.export_formats.export import export
    from data_loading.tokenizers.tokenizer import BytesTokenizer
    from tests.data_loading.export_formats.conftest import tokenized

    tokens = tokenized(tmp_path / "a.txt", "water rises " * 60)
    (done,) = export([load_format("nanogpt")], [tokens], BytesTokenizer())
    open_foreign(done.path, Asked(vocab_size=257))
    assert (done.path / CHECKED).exists()
    tokenized(tmp_path / "a.txt", "water falls " * 60)
    (again,) = export([load_format("nanogpt")], [tokens], BytesTokenizer())
    assert again.made


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "experiments.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_run(tmp_path: Path, golden: Golden) -> None:
    """From the command line; what cannot be read ends with exit code 2 and no traceback."""
    written("llm.c", tmp_path / "s", set_of([[n % 251] * 9 for n in range(900)]))
    given = ["model=32d", "dataset=text", "tokenizer=bytes", f"runs_dir={tmp_path}/runs"]
    given += ["training.seq_len=32", "training.max_steps=2", "training.eval_tokens=1K"]
    done = run(*given, f"dataset.path={tmp_path}/s")
    assert done.returncode == 0, done.stderr
    np.arange(100, dtype="<u4").tofile(tmp_path / "few.bin")
    wrong = run(*given, f"dataset.path={tmp_path}/few.bin")
    assert wrong.returncode == 2
    golden.text(wrong.stderr, numbers=False)
    assert "Traceback" not in wrong.stderr


def test_index_of_fairseq_is_named(tmp_path: Path, golden: Golden) -> None:
    """The same begin as Megatron's, without document indices (fairseq/data/indexed_dataset.py)."""
    sizes = np.array([4, 5, 6], "<i4")
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQ", 1, 4, len(sizes))
    pointers = ((np.cumsum(sizes) - sizes) * 4).astype("<i8")
    (tmp_path / "x.idx").write_bytes(header + sizes.tobytes() + pointers.tobytes())
    np.arange(15, dtype="<i4").tofile(tmp_path / "x.bin")
    with golden.refused("fairseq-index"):
        open_tokens(tmp_path / "x")


def test_pointers_in_a_set_are_named(tmp_path: Path, golden: Golden) -> None:
    folder = write_litdata(tmp_path / "s", some_items())
    chunk = min(folder.glob("*.bin"))
    chunk.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:01\nsize 9\n")
    with golden.refused("not-fetched"):
        open_tokens(folder)


def test_a_file_next_to_raw_ids_is_not_blamed(tmp_path: Path, golden: Golden) -> None:
    np.full(500, 40_000, np.uint16).tofile(tmp_path / "a.bin")
    (tmp_path / "a.txt").write_text("<!DOCTYPE html><html></html>")
    with golden.refused("dtype-fits-none"):
        open_tokens(tmp_path / "a.bin", vocab_size=100)
