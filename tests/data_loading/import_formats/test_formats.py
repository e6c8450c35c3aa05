"""Each format gives the tokens and documents that were put into it, by each reader."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading import StreamingDataset, open_tokens
from data_loading.export_formats import FORMATS
from data_loading.import_formats.foreign_set import ForeignSet, open_foreign
from data_loading.import_formats.format import Asked
from data_loading.import_formats.hugging_face import HuggingFace
from data_loading.import_formats.recognize import kind_of
from data_loading.readers.choose_reader import ReaderOptions, reader_of
from data_loading.tokens.lazy_array import search, take
from experiment_utils.errors import UserError
from experiment_utils.extras import install_command
from tests.data_loading.export_formats.conftest import set_of, written
from tests.data_loading.import_formats.files import (
    some_items,
    write_litdata,
    write_mds,
    write_save_to_disk,
    write_templar,
)
from tests.golden_text import Golden
from tests.searched import examples

ITEMS = some_items()
FIXED = [np.arange(8, dtype="<u2") + 8 * n for n in range(12)]
EMPTY = [np.arange(n % 3, dtype="<i4") for n in range(11)]
MAKERS: dict[str, tuple[Callable[[Path], Path], list[np.ndarray]]] = {
    "litdata": (lambda path: write_litdata(path / "s", ITEMS), ITEMS),
    "litdata int64": (lambda path: write_litdata(path / "s", some_items("int64")), some_items("int64")),
    "litdata numpy": (lambda path: write_litdata(path / "s", some_items("uint16")), some_items("uint16")),
    "litdata pytree": (lambda path: write_litdata(path / "s", ITEMS, pytree=True), ITEMS),
    "litdata empty": (lambda path: write_litdata(path / "s", EMPTY), EMPTY),
    "mosaic": (lambda path: write_mds(path / "s", ITEMS), ITEMS),
    "mosaic fixed": (lambda path: write_mds(path / "s", FIXED, encoding="ndarray:uint16:8"), FIXED),
    "mosaic columns": (
        lambda path: write_mds(path / "s", some_items("uint16"), beside=True),
        some_items("uint16"),
    ),
    "save_to_disk": (lambda path: write_save_to_disk(path / "s", ITEMS, 3), ITEMS),
    "save_to_disk uint16": (
        lambda path: write_save_to_disk(path / "s", some_items("uint16")),
        some_items("uint16"),
    ),
    "save_to_disk int64": (
        lambda path: write_save_to_disk(path / "s", some_items("int64")),
        some_items("int64"),
    ),
    "save_to_disk empty": (lambda path: write_save_to_disk(path / "s", EMPTY, 2), EMPTY),
}


@pytest.fixture(params=MAKERS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ForeignSet, list[np.ndarray]]:
    maker, items = MAKERS[request.param]
    (opened,) = open_foreign(maker(tmp_path), Asked())
    return opened, items


def test_tokens_and_documents(made: tuple[ForeignSet, list[np.ndarray]]) -> None:
    opened, items = made
    whole = np.concatenate(items)
    starts = np.cumsum([0, *map(len, items)])[:-1]
    assert opened.tokens.dtype == items[0].dtype
    assert opened.tokens[:].tolist() == whole.tolist()
    assert opened.documents is not None
    assert opened.documents.dtype == np.dtype("<u8")
    assert opened.documents[:].tolist() == starts.tolist()
    places = np.random.default_rng(1).integers(0, len(whole), 50)
    assert take(opened.tokens, places).tolist() == whole[places].tolist()
    assert search(opened.documents, places).tolist() == np.searchsorted(starts, places).tolist()
    assert opened.vocab_size == whole.max() + 1


@pytest.mark.parametrize("reader", ["mmap", "pread", "memory"])
def test_windows_are_slices_by_each_reader(made: tuple[ForeignSet, list[np.ndarray]], reader: str) -> None:
    opened, items = made
    whole = np.concatenate(items)
    read, _ = reader_of(opened, ReaderOptions(reader))
    for width in (1, 2, min(17, len(whole)), min(500, len(whole)), len(whole)):
        starts = np.random.default_rng(2).integers(0, len(whole) - width + 1, 30)
        found = read.gather(starts, width)
        assert found.dtype == whole.dtype
        assert found.tolist() == [whole[start : start + width].tolist() for start in starts]
    read.will_need(np.array([0, len(whole) - 1]), 1)


def test_another_process_maps_the_files_itself(made: tuple[ForeignSet, list[np.ndarray]]) -> None:
    opened, items = made
    sent = pickle.dumps(opened)
    assert len(sent) < 3000
    again: ForeignSet = pickle.loads(sent)
    assert again.tokens[:].tolist() == np.concatenate(items).tolist()
    assert again.fingerprint == opened.fingerprint


def test_bytes_of_mosaic_need_a_dtype(tmp_path: Path, golden: Golden) -> None:
    """LLM Foundry wrote int64 as bytes; nothing in the shard says so."""
    items = some_items("int64")
    write_mds(tmp_path / "s", items, encoding="bytes", beside=True)
    with golden.refused("mosaic-dtype-unknown"):
        open_foreign(tmp_path / "s", Asked(vocab_size=257))
    (opened,) = open_foreign(tmp_path / "s", Asked("int64"))
    assert opened.tokens[:].tolist() == np.concatenate(items).tolist()
    assert pickle.loads(pickle.dumps(opened)).tokens[:5].tolist() == items[0][:5].tolist()


def test_chunk_folders(tmp_path: Path) -> None:
    """chunk_000000/, chunk_000001/ ...: each is one save_to_disk."""
    for number in range(3):
        write_save_to_disk(tmp_path / f"s/chunk_{number:06d}", some_items(seed=number))
    (opened,) = open_foreign(tmp_path / "s", Asked())
    items = [item for number in range(3) for item in some_items(seed=number)]
    assert opened.tokens[:].tolist() == np.concatenate(items).tolist()
    assert opened.documents is not None
    assert opened.documents[:].tolist() == np.cumsum([0, *map(len, items)])[:-1].tolist()


@pytest.mark.parametrize("number", [0, 1])
def test_a_chunk_folder_is_missing(number: int, tmp_path: Path, golden: Golden) -> None:
    """The first too: chunks count from 0."""
    for there in {0, 1, 2} - {number}:
        write_save_to_disk(tmp_path / f"s/chunk_{there:06d}", some_items(seed=there))
    with golden.refused("foreign-set-damaged"):
        open_foreign(tmp_path / "s", Asked())


@pytest.mark.parametrize("name", ["z.bin", "z.txt", "z", "z.dat"])
def test_an_array_of_numpy_by_any_name(name: str, tmp_path: Path, golden: Golden) -> None:
    ids = np.arange(300, dtype="<u4")
    with open(tmp_path / name, "wb") as file:
        np.save(file, ids)
    opened = open_tokens(tmp_path / name)
    assert opened.tokens[:].tolist() == ids.tolist()
    assert open_tokens(tmp_path / name).fingerprint == opened.fingerprint, "also when it was read once"
    with open(tmp_path / name, "r+b") as file:
        file.truncate(1000)
    with golden.refused("npy-size"):
        open_tokens(tmp_path / name)


@pytest.mark.parametrize("write", [write_litdata, write_mds, write_save_to_disk])
@pytest.mark.parametrize("held_out", ["val", "validation"])
def test_folders_of_train_and_val(write: Callable[..., Path], held_out: str, tmp_path: Path) -> None:
    write(tmp_path / "s/train", some_items(seed=1))
    write(tmp_path / f"s/{held_out}", some_items(seed=2, count=3))
    train, val = open_foreign(tmp_path / "s", Asked())
    assert train.tokens[:].tolist() == np.concatenate(some_items(seed=1)).tolist()
    assert val.tokens[:].tolist() == np.concatenate(some_items(seed=2, count=3)).tolist()
    assert (train.split, val.split) == ("train", "val")


def test_a_test_part_is_left_alone(tmp_path: Path) -> None:
    write_litdata(tmp_path / "s/train", some_items(seed=1))
    write_litdata(tmp_path / "s/test", some_items(seed=2))
    (train,) = open_foreign(tmp_path / "s", Asked())
    assert len(train.tokens) == len(np.concatenate(some_items(seed=1)))


@pytest.mark.parametrize("header", [True, False])
def test_templar(header: bool, tmp_path: Path) -> None:
    """Sample ids with the header that its writer gives them, and without the one that its reader expects."""
    ids = np.random.default_rng(0).integers(0, 257, 2 * 1000).astype("<u4")
    write_templar(tmp_path / "s", ids, 100, header=header)
    kind = kind_of(tmp_path / "s")
    assert kind is not None
    assert kind.name == "templar"
    (opened,) = open_foreign(tmp_path / "s", Asked())
    assert opened.tokens[:].tolist() == ids.tolist()
    assert opened.documents is None, "slices are cut anywhere"


def test_raw_files_called_npy(tmp_path: Path, golden: Golden) -> None:
    """As OLMo has them: NumPy's suffix, not its header."""
    ids = np.random.default_rng(0).integers(0, 50_000, 6000).astype("<u2")
    for number, part in enumerate(np.split(ids, 3)):
        (tmp_path / f"part-{number}-00000.npy").write_bytes(part.tobytes())
    with golden.refused("dtype-needs-vocabulary"):
        open_tokens(tmp_path)
    assert open_tokens(tmp_path, vocab_size=50_257).tokens[:].tolist() == ids.tolist()
    one = open_tokens(tmp_path / "part-1-00000.npy", vocab_size=50_257)
    assert one.tokens[:].tolist() == ids[2000:4000].tolist()


def test_npy_files_are_in_the_order_of_their_numbers(tmp_path: Path, golden: Golden) -> None:
    for number in range(1, 12):
        np.save(tmp_path / f"part_{number}.npy", np.array([number]))
    assert open_tokens(tmp_path).tokens[:].tolist() == list(range(1, 12))
    np.save(tmp_path / "other_1.npy", np.array([99]))
    with golden.refused("folder-not-a-set"):
        open_tokens(tmp_path)


def test_offsets_of_a_batch_need_not_begin_at_zero() -> None:
    """Writers that do not rebase the lists of a slice are allowed by Arrow."""
    values = pyarrow.array(range(20), pyarrow.int32())
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([3, 5, 9], pyarrow.int32()), values)
    dtype, at, starts = HuggingFace()._lists(Path("x"), values.buffers()[1], lists)
    assert (dtype, at, starts.tolist()) == (np.dtype("<i4"), 12, [3, 5, 9])


@pytest.mark.parametrize("kind", ["fixed", "large"])
def test_other_lists_of_arrow(kind: str, tmp_path: Path) -> None:
    from datasets import Dataset

    rows = [[7, 8, 9], [1, 2, 3], [4, 5, 6]]
    type_ = pyarrow.list_(pyarrow.uint16(), 3) if kind == "fixed" else pyarrow.large_list(pyarrow.uint16())
    Dataset(pyarrow.table({"input_ids": pyarrow.array(rows, type_)})).save_to_disk(tmp_path / "s")
    found = open_tokens(tmp_path / "s")
    assert (found.tokens[:].tolist(), found.tokens.dtype) == ([7, 8, 9, 1, 2, 3, 4, 5, 6], np.uint16)
    assert found.documents is not None
    assert found.documents[:].tolist() == [0, 3, 6]


def test_llm_c_by_other_names(tmp_path: Path) -> None:
    """train.bin and val.bin are a pair with its header too; one file alone is all there is."""
    written("llm.c", tmp_path / "s", set_of([[n % 251] * 9 for n in range(300)]))
    for old, new in (("a_train_000001", "train"), ("a_val_000000", "val")):
        (tmp_path / f"s/{old}.bin").rename(tmp_path / f"s/{new}.bin")
    train, val = open_foreign(tmp_path / "s", Asked())
    assert (train.split, len(train.tokens), val.split, len(val.tokens)) == ("train", 2700, "val", 300)
    (tmp_path / "words.txt").write_bytes((tmp_path / "s/val.bin").read_bytes())
    assert len(open_tokens(tmp_path / "words.txt").tokens) == 300, "not a text, whatever it is called"
    assert open_tokens(tmp_path / "s/val.bin").tokens[:].tolist() == val.tokens[:].tolist()


def test_an_empty_shard_is_no_harm(tmp_path: Path) -> None:
    written("mypt", tmp_path / "s", set_of([[n % 251] * 9 for n in range(300)]))
    (tmp_path / "s/val/shard_00002.bin").write_bytes(b"")
    metadata = json.loads((tmp_path / "s/dataset_metadata.json").read_text())
    (tmp_path / "s/dataset_metadata.json").write_text(json.dumps({**metadata, "val_shards": 2}))
    _, val = open_foreign(tmp_path / "s", Asked())
    assert len(val.tokens) == 300
    for reader in ("mmap", "pread", "memory"):
        assert reader_of(val, ReaderOptions(reader))[0].gather(np.array([290]), 10).shape == (1, 10)


@settings(max_examples=examples(20))
@given(
    sizes=st.lists(st.integers(1, 30), min_size=6, max_size=12),
    a_shard=st.integers(1, 12),
    seq_len=st.integers(1, 12),
    stride=st.integers(1, 15),
    shift=st.integers(1, 3),
    reader=st.sampled_from(["mmap", "pread"]),
)
def test_windows_over_samples_and_shards_are_those_of_a_loop(
    sizes: list[int],
    a_shard: int,
    seq_len: int,
    stride: int,
    shift: int,
    reader: str,
    tmp_path: Path,
) -> None:
    """Of MDS, where each sample is a run of its own."""
    cuts = np.cumsum([0, *sizes, 20])
    whole = np.arange(cuts[-1], dtype="<u2") * 7
    items = [whole[a:b] for a, b in pairwise(cuts)]
    folder = write_mds(Path(mkdtemp(dir=tmp_path)) / "s", items, a_shard)
    dataset = StreamingDataset(
        folder,
        seq_len=seq_len,
        stride=stride,
        shift=shift,
        order="sequential",
        reader=reader,
        val=1,
    )
    starts = range(0, len(whole) - 1 - shift - seq_len + 1, stride)
    batch = dataset.__getitems__(range(len(dataset)))
    assert batch["input_ids"].tolist() == [whole[at : at + seq_len].tolist() for at in starts]
    assert batch["labels"].tolist() == [whole[at + shift : at + shift + seq_len].tolist() for at in starts]


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_reads_as_the_set(name: str, tmp_path: Path) -> None:
    """train and val as the set has them; Megatron keeps the documents and has no val."""
    documents = [[n % 251, *range(n % 7)] for n in range(1500)]
    source = set_of(documents)
    contents = written(name, tmp_path / "s", source)
    opened = open_foreign(tmp_path / "s", Asked(vocab_size=257))
    for one, split in zip(opened, contents.splits.values(), strict=True):
        moved = 1 if name == "llm.c" else 0  # the end-of-text id that stands behind a document there
        expected = np.asarray(source.tokens[split.start : split.stop]).tolist()
        assert one.tokens[:].tolist() == ([256] * moved + expected)[: len(expected)]
        read, _ = reader_of(one, ReaderOptions("pread"))
        assert read.gather(np.array([37]), 90)[0].tolist() == one.tokens[37:127].tolist()
    if name == "megatron":
        assert opened[0].documents is not None
        assert source.documents is not None
        assert opened[0].documents[:].tolist() == source.documents[:].tolist()


def test_windows_of_an_export_are_those_of_the_set(tmp_path: Path) -> None:
    source = set_of([[n % 251, *range(n % 7)] for n in range(1500)])
    written("megatron", tmp_path / "s", source)
    ours = StreamingDataset(source, seq_len=32, documents="masked")
    theirs = StreamingDataset(open_tokens(tmp_path / "s", 257), seq_len=32, documents="masked")
    assert len(theirs) == len(ours)
    for name, rows in ours.__getitems__(range(len(ours))).items():
        assert theirs.__getitems__(range(len(ours)))[name].equal(rows), name


@pytest.mark.parametrize(
    ("name", "code", "dtype"),
    [
        ("a", 1, "u1"),
        ("a", 2, "i1"),
        ("a.bin", 3, "<i2"),
        ("a.idx", 4, "<i4"),
        ("", 5, "<i8"),
        ("a", 8, "<u2"),
    ],
)
def test_each_dtype_of_megatron_by_each_of_its_names(
    name: str, code: int, dtype: str, tmp_path: Path
) -> None:
    """Sequences of 3, 0, 2, 4 tokens; documents of the first two, of none, of the rest, of none twice."""
    (tmp_path / "a.bin").write_bytes(np.arange(9).astype(dtype).tobytes())
    size = np.dtype(dtype).itemsize
    index = b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + bytes([code])
    index += (4).to_bytes(8, "little") + (6).to_bytes(8, "little") + np.array([3, 0, 2, 4], "<i4").tobytes()
    index += (np.array([0, 3, 3, 5], "<i8") * size).tobytes() + np.array([0, 2, 2, 4, 4, 4], "<i8").tobytes()
    (tmp_path / "a.idx").write_bytes(index)
    (opened,) = open_foreign(tmp_path / name, Asked())
    assert opened.tokens[:].tolist() == list(range(9))
    assert opened.tokens.dtype == np.dtype(dtype)
    assert opened.documents is not None
    assert opened.documents[:].tolist() == [0, 3, 3, 9, 9]


def test_arrow_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_save_to_disk(tmp_path / "s", ITEMS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError) as refused:
        open_foreign(path, Asked())
    assert refused.value.codes == ["package-missing"]
    assert install_command("parquet") in str(refused.value)
