"""Token files are what np.save writes, and whatever is not one is refused with one clear message."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from data_loading.tokens.npy import NpyWriter, header, open_npy
from experiment_utils.errors import UserError
from tests.golden_text import Golden


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<u8"])
@pytest.mark.parametrize("lengths", [[], [0], [1], [3, 0, 5], [100_000, 7]])
def test_a_grown_file_equals_one_of_numpy(dtype: str, lengths: list[int], tmp_path: Path) -> None:
    parts = [np.arange(length) % 60_000 for length in lengths]
    with open(tmp_path / "ours.npy", "wb") as file:
        writer = NpyWriter(file, np.dtype(dtype))
        for part in parts:
            writer.append(part)
        writer.finish()
    np.save(tmp_path / "theirs.npy", np.concatenate([np.empty(0, int), *parts]).astype(dtype))
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<i4", "<i8", "u1"])
def test_whole_numbers_of_any_width_are_mapped_not_loaded(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(200).astype(dtype))
    tokens = open_npy(path)
    assert isinstance(tokens, np.memmap)
    assert not tokens.flags.writeable
    assert tokens.tolist() == list(range(200))
    assert tokens.tolist() == np.load(path, mmap_mode="r").tolist()


@pytest.mark.parametrize(
    ("array", "code"),
    [
        pytest.param(np.zeros(5), "npy-dtype", id="float"),
        pytest.param(np.zeros(5, bool), "npy-dtype", id="bool"),
        pytest.param(np.array([1, "a", None], object), "npy-pickled", id="object"),
        pytest.param(np.zeros(5, [("a", "<u2"), ("b", "<i4")]), "npy-records", id="structured"),
        pytest.param(np.array(["a", "b"]), "npy-dtype", id="string"),
        pytest.param(np.zeros((3, 4), np.uint16), "npy-dimensions", id="two_dimensions"),
        pytest.param(np.array(5, np.uint16), "npy-dimensions", id="no_dimension"),
        pytest.param(np.arange(5).astype(">u2"), "npy-big-endian", id="big_endian"),
        pytest.param(np.zeros(0, np.uint16), "no-tokens", id="empty"),
    ],
)
def test_wrong_arrays_are_refused(array: np.ndarray, code: str, tmp_path: Path, golden: Golden) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with golden.refused(code):
        open_npy(tmp_path / "a.npy")


def test_truncated(tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1000, dtype=np.uint16))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with golden.refused("npy-size"):
        open_npy(path)
    path.write_bytes(whole + b"\0\0")
    with golden.refused("npy-size"):
        open_npy(path)
    for length in (0, 3, 6, 9, 60, 127):
        path.write_bytes(whole[:length])
        with golden.refused("npy-damaged"):
            open_npy(path)


def test_any_damage_to_the_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1000, dtype=np.uint16))
    whole = path.read_bytes()
    for bit in range(8 * 128):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with suppress(UserError):  # else a blank is another blank now
            assert len(open_npy(path)) == 1000


def test_raw_tokens_without_header(tmp_path: Path, golden: Golden) -> None:
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "a.npy")
    with golden.refused("npy-damaged"):
        open_npy(tmp_path / "a.npy")


def test_files_of_other_kinds_are_named(tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "a.npy"
    with open(path, "wb") as file:
        np.savez(file, ids=np.arange(3))
    with golden.refused("npy-damaged"):
        open_npy(path)
    path.write_bytes(pickle.dumps([1, 2]))
    with golden.refused("npy-damaged"):
        open_npy(path)
    path.write_bytes(b"")
    with golden.refused("npy-damaged"):
        open_npy(path)
    path.write_bytes(header(np.dtype("<u2"), 10)[:50])
    with golden.refused("npy-damaged"):
        open_npy(path)


def test_missing_and_folder(tmp_path: Path, golden: Golden) -> None:
    with golden.refused("tokens-file-missing"):
        open_npy(tmp_path / "a.npy")
    (tmp_path / "a.npy").mkdir()
    with golden.refused("file-unreadable"):
        open_npy(tmp_path / "a.npy")
