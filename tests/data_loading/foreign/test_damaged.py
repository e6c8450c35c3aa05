"""What is wrong with a damaged set is told: which file, what was expected, what mends it."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading import open_tokens
from data_loading.foreign.foreign_set import open_foreign
from data_loading.foreign.layout import Asked
from data_loading.foreign.recognize import known_formats
from experiment_utils.errors import UserError
from tests.data_loading.foreign.files import (
    some_items,
    write_litdata,
    write_mds,
    write_save_to_disk,
    write_templar,
)
from tests.data_loading.formats.conftest import set_of, written

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


def tell(name: str, edit: Callable[[dict[str, Any]], None]) -> Change:
    """Another content of a JSON file."""

    def change(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        edit(value)
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
DAMAGES: list[tuple[str, Change, str]] = [
    ("litdata", cut("index.json", 40), r"index\.json is no JSON object: is it cut short"),
    ("mosaicml-streaming", cut("index.json", 40), r"index\.json is no JSON object: is it cut short"),
    ("llm.c", cut(LLM_C, 2), r"a_train_000001\.bin has 1,\d+ tokens, its header says 1,\d+"),
    ("llm.c", cut(LLM_C), "which is no whole number of uint16"),
    ("llm.c", patch(LLM_C, 0, b"\1\2\3\4"), r"a_train_000001\.bin begins with 67305985 and version 1"),
    ("llm.c", patch(LLM_C, 4, b"\2"), "version 2, which is no header of llm.c"),
    ("llm.c", remove("a_train_000002.bin"), "number 000002 is missing"),
    ("llm.c", lambda folder: os.truncate(folder / LLM_C, 500), "is shorter than its header"),
    ("MyPT", cut("train/shard_00000.bin", 4), r"shards have .* tokens, dataset_metadata\.json says"),
    ("MyPT", cut("val/shard_00001.bin"), "no whole number of uint32"),
    ("MyPT", remove("val"), r"val/ has 0 shards, dataset_metadata\.json says 1"),
    ("MyPT", rename("val/shard_00001.bin", "val/shard_00002.bin"), "shard 00001 is missing"),
    ("MyPT", remove("tokenizer_state.json"), r"tokenizer_state\.json is missing or no JSON object"),
    ("MyPT", cut("dataset_metadata.json"), r"dataset_metadata\.json is missing or no JSON object"),
    ("Megatron", cut(f"{MEGATRON}.bin", 2), r"tells of 1,\d+ tokens, the \.bin has 1,\d+"),
    (
        "Megatron",
        cut(f"{MEGATRON}.idx", 8),
        r"\.idx has [\d,]+ bytes, its 300 sequences and 301 indices make",
    ),
    ("Megatron", remove(f"{MEGATRON}.bin"), r"a_text_document\.bin is missing"),
    ("Megatron", patch(f"{MEGATRON}.idx", 17, b"\7"), "has dtype code 7, float32, which are no ids"),
    ("Megatron", patch(f"{MEGATRON}.idx", 17, b"\x39"), r"dtype code \d+; known are 1 with 1 to 8"),
    ("Megatron", patch(f"{MEGATRON}.idx", 34, b"\x39"), "do not lie one behind the other"),
    ("Megatron", patch(f"{MEGATRON}.idx", 0, b"TNTIDX\0\0"), "older kinds .* --dataset-impl mmap"),
    ("litdata", cut("chunk-0-1.bin"), r"chunk-0-1\.bin .* has [\d,]+ bytes, index\.json says"),
    ("litdata", remove("chunk-0-2.bin"), r"chunk-0-2\.bin, which index\.json names, is missing"),
    ("litdata", patch("chunk-0-0.bin", 0, b"\6"), "does not begin with the number of its items, 5"),
    ("litdata", patch("chunk-0-0.bin", 8, b"\xff\xff"), "its items do not go on from byte 28 to the end"),
    ("litdata", tell("index.json", lambda index: index["chunks"].clear()), "names no chunk"),
    (
        "litdata",
        tell("index.json", lambda index: index["config"].update(compression="zstd")),
        r"with compression zstd, which cannot be mapped.*litdata\.optimize\(\.\.\., compression=None\)",
    ),
    (
        "litdata",
        tell("index.json", lambda index: index["config"].update(data_format=["jpeg"])),
        r"data_format \['jpeg'\]; expected one 1-D tensor",
    ),
    (
        "mosaicml-streaming",
        cut("shard.00001.mds"),
        r"shard\.00001\.mds .* has [\d,]+ bytes, index\.json says",
    ),
    (
        "mosaicml-streaming",
        remove("shard.00002.mds"),
        r"shard\.00002\.mds, which index\.json names, is missing",
    ),
    ("mosaicml-streaming", patch("shard.00000.mds", 0, b"\6"), "the number of its samples, 5"),
    ("mosaicml-streaming", patch("shard.00000.mds", 8, b"\xff\xff"), "its samples do not go on"),
    (
        "mosaicml-streaming",
        tell("index.json", lambda index: index.update(version=3)),
        "of version 3; expected 2",
    ),
    (
        "mosaicml-streaming",
        tell("index.json", lambda index: index["shards"][1].pop("samples")),
        r"says of a shard what is not understood \(KeyError\('samples'\)\)",
    ),
    (
        "mosaicml-streaming",
        tell("index.json", lambda index: index["shards"][0].update(column_encodings=["jpeg"])),
        r"has the columns tokens \(jpeg\); expected one of ids",
    ),
    ("Hugging Face save_to_disk", cut(ARROW, 8), r"data-00000-of-00002\.arrow .*cut short"),
    (
        "Hugging Face save_to_disk",
        cut(ARROW, 700),
        r"data-00000-of-00002\.arrow .*(no whole Arrow|cut short|read)",
    ),
    (
        "Hugging Face save_to_disk",
        remove(ARROW),
        r"data-00000-of-00002\.arrow, which state\.json names, is missing",
    ),
    (
        "Hugging Face save_to_disk",
        tell("state.json", lambda state: state.pop("_data_files")),
        r"state\.json is missing or names no _data_files",
    ),
    ("templar", cut("sample_ids_000001.bin", 8), "is truncated"),
    (
        "templar",
        remove("sample_ids_000000.bin"),
        r"sample_ids_000000\.bin, which belongs to train_000000\.npy",
    ),
    ("templar", remove("train_000001.npy"), r"there is sample_ids_000001\.bin, but no train_000001\.npy"),
    ("templar", cut("train_000000.npy", 4), r"train_000000\.npy is truncated"),
    (
        "templar",
        lambda folder: np.save(folder / "train_000000.npy", np.arange(999, dtype="<u4")),
        r"10 sample ids of sample_ids_000000\.bin .* do not divide the 999 tokens",
    ),
    (
        "templar, raw",
        cut("train_000001.npy", 2),
        r"100 sample ids of sample_ids_000001\.bin .* do not divide the 9,999 tokens",
    ),
    (
        "templar, raw",
        cut("train_000001.npy", 5000),
        r"train_000000\.npy has 100 tokens for each of its sample ids, train_000001\.npy has 75",
    ),
]


@pytest.mark.parametrize(
    ("name", "damage", "told"), DAMAGES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_damaged_set(name: str, damage: Change, told: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path / "s")
    damage(tmp_path / "s")
    with pytest.raises(UserError, match=told) as caught:
        open_tokens(tmp_path / "s", vocab_size=257)
    assert re.search("Copy|make it|Make it|Write|Leave|dataset|MDSWriter|move the", str(caught.value))


@pytest.mark.parametrize("name", MAKERS)
def test_a_whole_set_is_none_of_these(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path / "s")
    assert name.removesuffix(", raw") in known_formats()
    asked = Asked("uint16") if name.endswith("raw") else Asked()
    assert sum(one.n_tokens for one in open_foreign(tmp_path / "s", asked)) > 1000


def test_a_shape_that_does_not_fit_its_sample(tmp_path: Path) -> None:
    """The first sample of a shard has 5 ids; its shape, one byte, is made to say 6."""
    items = [np.arange(5, dtype="<i4"), np.arange(300, dtype="<i4")]
    shard = write_mds(tmp_path / "s", items) / "shard.00000.mds"
    place = shard.read_bytes().index(bytes([4, 5, 0, 0]))
    patch("shard.00000.mds", place + 1, b"\6")(tmp_path / "s")
    with pytest.raises(UserError, match="sample 0 is not as long as its shape says"):
        open_tokens(tmp_path / "s")
    patch("shard.00000.mds", place, b"\x08")(tmp_path / "s")
    with pytest.raises(UserError, match="sample 0 is no 1-D array"):
        open_tokens(tmp_path / "s")


@pytest.mark.parametrize(
    ("name", "suffix", "compress"), [("gz:6", ".gz", gzip.compress), ("bz2", ".bz2", bz2.compress)]
)
def test_the_command_for_compressed_shards_mends_them(
    name: str, suffix: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    if shutil.which("gzip" if suffix == ".gz" else "bzip2") is None:
        pytest.skip("this machine lacks the program")
    shards = write_mds(tmp_path / "s s", some_items())

    def packed(index: dict[str, Any]) -> None:
        for fact in index["shards"]:
            plain = shards / fact["raw_data"]["basename"]
            plain.with_name(plain.name + suffix).write_bytes(compress(plain.read_bytes()))
            plain.unlink()
            fact.update(
                compression=name, zip_data={"basename": plain.name + suffix, "bytes": 1, "hashes": {}}
            )

    tell("index.json", packed)(shards)
    with pytest.raises(
        UserError, match=rf"is compressed \({name}\), .* Decompress it once: for f in "
    ) as caught:
        open_tokens(shards)
    command = str(caught.value).split("Decompress it once: ")[1]
    subprocess.run(["bash", "-c", command], check=True)
    assert open_tokens(shards).tokens[:].tolist() == np.concatenate(some_items()).tolist()


def test_two_formats_in_one_folder(tmp_path: Path) -> None:
    exported("llm.c")(tmp_path / "s")
    exported("megatron")(tmp_path / "s")
    with pytest.raises(
        UserError, match=r"begins with 20240520 \(llm\.c\), and .*\(Megatron\): it is not clear"
    ):
        open_tokens(tmp_path / "s")


def test_two_sets_of_megatron(tmp_path: Path) -> None:
    exported("megatron")(tmp_path / "s")
    for end in (".bin", ".idx"):
        shutil.copy(tmp_path / f"s/{MEGATRON}{end}", tmp_path / f"s/b{end}")
    with pytest.raises(UserError, match=r"holds 2 sets of Megatron: .*s/a_text_document, .*s/b\. Say which"):
        open_tokens(tmp_path / "s")


def test_big_endian_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    np.save(tmp_path / "s/train_000000.npy", np.arange(100, dtype=">u4"))
    with pytest.raises(UserError, match="is big-endian"):
        open_tokens(tmp_path / "s")


def test_ids_outside_the_vocabulary(tmp_path: Path) -> None:
    write_litdata(tmp_path / "s", some_items(vocab_size=600))
    with pytest.raises(
        UserError, match=r"\(litdata, int32\) holds the id 59\d, outside the vocabulary of 257 ids"
    ):
        open_tokens(tmp_path / "s", vocab_size=257)
    write_litdata(tmp_path / "n", [np.array([3, -1, 5], "<i4")])
    with pytest.raises(UserError, match="holds the id -1, outside the vocabulary"):
        open_tokens(tmp_path / "n")


def test_a_dtype_is_not_said_of_what_says_it_itself(tmp_path: Path) -> None:
    write_litdata(tmp_path / "s", some_items())
    with pytest.raises(
        UserError, match=r"holds int32 \(litdata says so\), not uint16\. Leave dataset\.dtype out"
    ):
        open_tokens(tmp_path / "s", dtype="uint16")
    np.save(tmp_path / "x.npy", np.arange(10))
    with pytest.raises(
        UserError, match=r"it is said of raw ids .* x\.npy holds none|holds none\. Leave it out"
    ):
        open_tokens(tmp_path / "x.npy", dtype="uint16")


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s/index.json").write_text("[]")
    (tmp_path / "s/state.json").write_text("{}")
    (tmp_path / "s/a.bin").write_bytes(bytes(100))
    with pytest.raises(
        UserError, match=r"nothing in it shows tokens of another program \(llm\.c, Megatron, MyPT"
    ):
        open_tokens(tmp_path / "s")


def test_shards_of_ours_that_lost_their_manifest_are_not_taken_for_others(tmp_path: Path) -> None:
    np.save(tmp_path / "shard_00000.npy", np.arange(10))
    np.save(tmp_path / "shard_00000.docs.npy", np.arange(2))
    with pytest.raises(UserError, match=r"without a manifest\.json"):
        open_tokens(tmp_path)
