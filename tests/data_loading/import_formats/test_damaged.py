"""A damaged set of another program is refused: which file, what was expected, what repairs it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading import open_tokens
from data_loading.import_formats.foreign_set import open_foreign
from data_loading.import_formats.format import Asked
from data_loading.import_formats.recognize import known_formats
from tests.data_loading.export_formats.conftest import set_of, written
from tests.data_loading.import_formats.files import (
    some_items,
    write_litdata,
    write_mds,
    write_save_to_disk,
    write_templar,
)
from tests.golden_text import Golden

Change = Callable[[Path], None]


def cut(name: str, less: int = 1) -> Change:
    """Bytes are missing at the end."""

    def change(folder: Path) -> None:
        os.truncate(folder / name, (folder / name).stat().st_size - less)

    return change


def remove(name: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def patch(name: str, at: int, data: bytes) -> Change:
    """Other bytes at a place."""

    def change(folder: Path) -> None:
        with open(folder / name, "r+b") as file:
            file.seek(at)
            file.write(data)

    return change


def edit(name: str, change_value: Callable[[dict[str, Any]], None]) -> Change:
    """Another content of a JSON file."""

    def change(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        change_value(value)
        (folder / name).write_text(json.dumps(value))

    return change


def rename(one: str, other: str) -> Change:
    return lambda folder: (folder / one).rename(folder / other) and None


def exported(name: str) -> Callable[[Path], object]:
    return lambda folder: written(name, folder, set_of([[n % 251, *range(n % 7)] for n in range(300)]))


def llm_c_of_three(folder: Path) -> None:
    exported("llm.c")(folder)
    train = (folder / "a_train_000001.bin").read_bytes()
    for number in (2, 3):
        (folder / f"a_train_{number:06d}.bin").write_bytes(train)


def raw_templar(folder: Path) -> None:
    """As its reader takes them: uint16 without a header."""
    write_templar(folder, np.arange(20_000, dtype="<u2") % 257, 100, header=False)
    for path in folder.glob("train_*.npy"):
        ids = np.load(path)
        path.write_bytes(ids.tobytes())


MAKERS: dict[str, Callable[[Path], object]] = {
    "llm.c": llm_c_of_three,
    "MyPT": exported("mypt"),
    "Megatron": exported("megatron"),
    "litdata": lambda folder: write_litdata(folder, some_items()),
    "mosaicml-streaming": lambda folder: write_mds(folder, some_items()),
    "Hugging Face save_to_disk": lambda folder: write_save_to_disk(folder, some_items(), 2),
    "templar": lambda folder: write_templar(folder, np.arange(2000, dtype="<u4"), 100),
    "templar, raw": raw_templar,
}
LLM_C, MEGATRON = "a_train_000001.bin", "a_text_document"
ARROW = "data-00000-of-00002.arrow"
DAMAGES: list[tuple[str, Change]] = [
    ("llm.c", cut(LLM_C, 2)),
    ("llm.c", cut(LLM_C)),
    ("llm.c", patch(LLM_C, 0, b"\1\2\3\4")),
    ("llm.c", patch(LLM_C, 4, b"\2")),
    ("llm.c", remove("a_train_000002.bin")),
    ("llm.c", lambda folder: os.truncate(folder / LLM_C, 500)),
    ("MyPT", cut("train/shard_00000.bin", 4)),
    ("MyPT", cut("val/shard_00001.bin")),
    ("MyPT", remove("val")),
    ("MyPT", rename("val/shard_00001.bin", "val/shard_00002.bin")),
    ("MyPT", remove("tokenizer_state.json")),
    ("MyPT", cut("dataset_metadata.json")),
    ("Megatron", cut(f"{MEGATRON}.bin", 2)),
    ("Megatron", cut(f"{MEGATRON}.idx", 8)),
    ("Megatron", remove(f"{MEGATRON}.bin")),
    ("Megatron", patch(f"{MEGATRON}.idx", 17, b"\7")),
    ("Megatron", patch(f"{MEGATRON}.idx", 17, b"\x39")),
    ("Megatron", patch(f"{MEGATRON}.idx", 34, b"\x39")),
    ("litdata", cut("chunk-0-1.bin")),
    ("litdata", remove("chunk-0-2.bin")),
    ("litdata", patch("chunk-0-0.bin", 0, b"\6")),
    ("litdata", patch("chunk-0-0.bin", 8, b"\xff\xff")),
    ("litdata", edit("index.json", lambda index: index["chunks"].clear())),
    ("mosaicml-streaming", cut("shard.00001.mds")),
    ("mosaicml-streaming", remove("shard.00002.mds")),
    ("mosaicml-streaming", patch("shard.00000.mds", 0, b"\6")),
    ("mosaicml-streaming", patch("shard.00000.mds", 8, b"\xff\xff")),
    ("mosaicml-streaming", edit("index.json", lambda index: index["shards"][1].pop("samples"))),
    ("Hugging Face save_to_disk", cut(ARROW, 8)),
    ("Hugging Face save_to_disk", cut(ARROW, 700)),
    ("Hugging Face save_to_disk", remove(ARROW)),
    ("Hugging Face save_to_disk", edit("state.json", lambda state: state.pop("_data_files"))),
    ("templar", remove("sample_ids_000000.bin")),
    ("templar", remove("train_000001.npy")),
    ("templar", lambda folder: np.save(folder / "train_000000.npy", np.arange(999, dtype="<u4"))),
    ("templar, raw", cut("train_000001.npy", 2)),
    ("templar, raw", cut("train_000001.npy", 5000)),
]
NOT_READ: list[tuple[str, Change, str]] = [
    ("litdata", cut("index.json", 40), "folder-not-a-set"),
    ("mosaicml-streaming", cut("index.json", 40), "folder-not-a-set"),
    ("Megatron", patch(f"{MEGATRON}.idx", 0, b"TNTIDX\0\0"), "megatron-old-index"),
    (
        "litdata",
        edit("index.json", lambda index: index["config"].update(compression="zstd")),
        "litdata-compressed",
    ),
    (
        "litdata",
        edit("index.json", lambda index: index["config"].update(data_format=["jpeg"])),
        "litdata-format",
    ),
    ("mosaicml-streaming", edit("index.json", lambda index: index.update(version=3)), "mosaic-version"),
    (
        "mosaicml-streaming",
        edit("index.json", lambda index: index["shards"][0].update(column_encodings=["jpeg"])),
        "mosaic-columns",
    ),
    ("templar", cut("sample_ids_000001.bin", 8), "npy-size"),
    ("templar", cut("train_000000.npy", 4), "npy-size"),
]


@pytest.mark.parametrize(
    ("name", "damage", "code"),
    [*((*damage, "foreign-set-damaged") for damage in DAMAGES), *NOT_READ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_set(name: str, damage: Change, code: str, tmp_path: Path, golden: Golden) -> None:
    MAKERS[name](tmp_path / "s")
    damage(tmp_path / "s")
    with golden.refused(code):
        open_tokens(tmp_path / "s", vocab_size=257)


@pytest.mark.parametrize("name", MAKERS)
def test_a_whole_set_is_none_of_these(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path / "s")
    assert name.removesuffix(", raw") in known_formats()
    asked = Asked("uint16") if name.endswith("raw") else Asked()
    assert sum(one.n_tokens for one in open_foreign(tmp_path / "s", asked)) > 1000


def test_a_shape_that_does_not_fit_its_sample(tmp_path: Path, golden: Golden) -> None:
    """The first sample of a shard has 5 ids; its shape, one byte, is made to say 6."""
    items = [np.arange(5, dtype="<i4"), np.arange(300, dtype="<i4")]
    shard = write_mds(tmp_path / "s", items) / "shard.00000.mds"
    place = shard.read_bytes().index(bytes([4, 5, 0, 0]))
    patch("shard.00000.mds", place + 1, b"\6")(tmp_path / "s")
    with golden.refused("foreign-set-damaged"):
        open_tokens(tmp_path / "s")
    patch("shard.00000.mds", place, b"\x08")(tmp_path / "s")
    with golden.refused("foreign-set-damaged"):
        open_tokens(tmp_path / "s")


@pytest.mark.parametrize(("name", "suffix"), [("gz:6", ".gz"), ("snappy", ".snappy")])
def test_compressed_shards(name: str, suffix: str, tmp_path: Path, golden: Golden) -> None:
    shards = write_mds(tmp_path / "s s", some_items())

    def packed(index: dict[str, Any]) -> None:
        for fact in index["shards"]:
            plain = shards / fact["raw_data"]["basename"]
            plain.with_name(plain.name + suffix).write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
            fact.update(
                compression=name, zip_data={"basename": plain.name + suffix, "bytes": 1, "hashes": {}}
            )

    edit("index.json", packed)(shards)
    with golden.refused("mosaic-compressed") as caught:
        open_tokens(shards)
    if suffix == ".gz":
        command = str(caught.value).partition("(gzip")[2].partition("), or")[0]
        subprocess.run(["bash", "-c", f"gzip{command}"], check=True)
        assert open_tokens(shards).tokens[:].tolist() == np.concatenate(some_items()).tolist()


def test_two_formats_in_one_folder(tmp_path: Path, golden: Golden) -> None:
    exported("llm.c")(tmp_path / "s")
    exported("megatron")(tmp_path / "s")
    with golden.refused("several-formats"):
        open_tokens(tmp_path / "s")


def test_two_sets_of_megatron(tmp_path: Path, golden: Golden) -> None:
    exported("megatron")(tmp_path / "s")
    for end in (".bin", ".idx"):
        shutil.copy(tmp_path / f"s/{MEGATRON}{end}", tmp_path / f"s/b{end}")
    with golden.refused("megatron-several-sets"):
        open_tokens(tmp_path / "s")


def test_big_endian_is_refused(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "s").mkdir()
    np.save(tmp_path / "s/train_000000.npy", np.arange(100, dtype=">u4"))
    with golden.refused("npy-big-endian"):
        open_tokens(tmp_path / "s")


def test_ids_outside_the_vocabulary(tmp_path: Path, golden: Golden) -> None:
    write_litdata(tmp_path / "s", some_items(vocab_size=600))
    with golden.refused("id-outside-vocabulary"):
        open_tokens(tmp_path / "s", vocab_size=257)
    write_litdata(tmp_path / "n", [np.array([3, -1, 5], "<i4")])
    with golden.refused("id-outside-vocabulary"):
        open_tokens(tmp_path / "n")


def test_a_dtype_for_files_that_name_theirs(tmp_path: Path, golden: Golden) -> None:
    write_litdata(tmp_path / "s", some_items())
    with golden.refused("dtype-contradicts-format"):
        open_tokens(tmp_path / "s", dtype="uint16")
    np.save(tmp_path / "x.npy", np.arange(10))
    with golden.refused("dtype-not-for-format"):
        open_tokens(tmp_path / "x.npy", dtype="uint16")


def test_a_folder_of_something_else(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s/index.json").write_text("[]")
    (tmp_path / "s/state.json").write_text("{}")
    (tmp_path / "s/a.bin").write_bytes(bytes(100))
    with golden.refused("folder-not-a-set"):
        open_tokens(tmp_path / "s")


def test_shards_of_ours_that_lost_their_manifest_are_not_taken_for_others(
    tmp_path: Path, golden: Golden
) -> None:
    np.save(tmp_path / "shard_00000.npy", np.arange(10))
    np.save(tmp_path / "shard_00000.docs.npy", np.arange(2))
    with golden.refused("folder-not-a-set"):
        open_tokens(tmp_path)
