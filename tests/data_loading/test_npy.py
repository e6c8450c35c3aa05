"""Token files are what np.save writes, and whatever is not one is refused with one clear message."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.npy import NpyWriter, header, open_npy
from experiment_utils.errors import UserError


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<u8"])
@pytest.mark.parametrize("lengths", [[], [0], [1], [3, 0, 5], [100_000, 7]])
def test_a_grown_file_is_byte_for_byte_what_numpy_saves(
    dtype: str, lengths: list[int], tmp_path: Path
) -> None:
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


BAD: dict[str, tuple[Any, str]] = {
    "float": (np.zeros(5), "holds float64; expected a 1-D array of little-endian integers"),
    "bool": (np.zeros(5, bool), "holds bool; expected"),
    "object": (np.array([1, "a", None], object), "pickled Python objects, which are never loaded"),
    "structured": (np.zeros(5, [("a", "<u2"), ("b", "<i4")]), "records with fields a, b"),
    "string": (np.array(["a", "b"]), "holds <U1; expected"),
    "two_dimensions": (np.zeros((3, 4), np.uint16), r"has 2 dimensions, shape \(3, 4\)"),
    "no_dimension": (np.array(5, np.uint16), "has 0 dimensions"),
    "big_endian": (np.arange(5).astype(">u2"), r"is big-endian \(>u2\).*astype\('<u2'\)"),
    "empty": (np.zeros(0, np.uint16), "holds no tokens"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_arrays_are_refused(case: str, tmp_path: Path) -> None:
    array, message = BAD[case]
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(UserError, match=rf"a\.npy.* {message}") as caught:
        open_npy(tmp_path / "a.npy")
    assert len(caught.value.problems) == 1


def test_truncated(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1000, dtype=np.uint16))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(
        UserError, match="is truncated: 1,000 tokens of uint16 make 2,128 bytes, the file has 2,127"
    ):
        open_npy(path)
    path.write_bytes(whole + b"\0\0")
    with pytest.raises(UserError, match="is longer than its header says"):
        open_npy(path)
    for length in (0, 3, 6, 9, 60, 127):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"is no whole \.npy file"):
            open_npy(path)


def test_any_damage_to_the_header_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1000, dtype=np.uint16))
    whole = path.read_bytes()
    for bit in range(8 * 128):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with suppress(UserError):  # else a blank is another blank now
            assert len(open_npy(path)) == 1000


def test_raw_tokens_without_header(tmp_path: Path) -> None:
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "a.npy")
    with pytest.raises(UserError, match=r"is no whole \.npy file.*np\.fromfile"):
        open_npy(tmp_path / "a.npy")


def test_files_of_other_kinds_are_told_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with open(path, "wb") as file:
        np.savez(file, ids=np.arange(3))
    with pytest.raises(UserError, match=r"it is an \.npz archive"):
        open_npy(path)
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(UserError, match=r"it is a pickle\. It is never loaded"):
        open_npy(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="it is empty"):
        open_npy(path)
    path.write_bytes(header(np.dtype("<u2"), 10)[:50])
    with pytest.raises(UserError, match="its header is damaged or cut short"):
        open_npy(path)


def test_missing_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such token file"):
        open_npy(tmp_path / "a.npy")
    (tmp_path / "a.npy").mkdir()
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        open_npy(tmp_path / "a.npy")
