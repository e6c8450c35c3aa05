"""Folders of numbered .npy files: templar's, with the ids of their samples, and raw ones (OLMo).

Source: github.com/tplr-ai/templar, src/tplr/sharded_dataset.py (reader: PREFIX_000000.npy with NumPy's
header, 1-D; sample_ids_000000.bin, uint64, one for each slice of seqlen tokens, taken for raw) and
scripts/dataset_prep/02_consolidate_shards.py (writer of the sample ids: np.save, so that they do have a
header, which templar reads as 16 more samples). Its slices are cut anywhere: they are not documents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, SplitLayout, begins, first_gap
from data_loading.import_formats.raw_dtype import dtype_of
from data_loading.tokens.npy import open_npy
from experiment_utils.errors import UserError

_TOKENS = re.compile(r"(?P<prefix>.*?)[-_.]?(?P<number>\d+)\.npy")
_DIGITS = re.compile(r"(\d+)")
_SAMPLE_IDS = re.compile(r"sample_ids_(\d+)\.bin")
_SAMPLE_ID = np.dtype("<u8")
_SPLITS = {"train": "train", "val": "val", "validation": "val", "eval": "val"}
_NPY = b"\x93NUMPY"


class Templar(Kind):
    """A folder of shards with a file of sample ids for each."""

    name = "templar"

    def sign(self, path: Path) -> str | None:
        ids = [file.name for file in path.glob("sample_ids_*.bin") if _SAMPLE_IDS.fullmatch(file.name)]
        return f"{min(ids)} next to .npy files" if ids and _tokens(path) else None

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        shards = _tokens(path)
        split = "train" if "train" in shards else min(shards)
        numbered = _numbered(shards[split])
        ids = {
            name[1]: file
            for file in path.glob("sample_ids_*.bin")
            if (name := _SAMPLE_IDS.fullmatch(file.name))
        }
        for number in sorted(ids.keys() ^ numbered.keys()):
            missing = f"sample_ids_{number}.bin" if number in numbered else f"{split}_{number}.npy"
            raise self.damaged(path, f"{missing} is missing")
        layouts = _layouts(self, path, shards, asked)
        dtype = (layouts.get(split) or layouts["all"]).tokens.dtype
        slices: dict[float, Path] = {}
        for number, file in numbered.items():
            count, tokens = _count(ids[number], _SAMPLE_ID), _count(file, dtype)
            slices[tokens / count if count else 0.5] = file
            if len(slices) > 1 or not min(slices).is_integer():
                raise self.damaged(
                    path,
                    f"the {int(count):,} sample ids of {ids[number].name} do not divide the {int(tokens):,} "
                    f"tokens of {file.name} into slices of the same length as all. One of the files was cut "
                    "short or is of another shard (remove the sample ids to read the tokens without them)",
                )
        return layouts


class NumpyFile(Kind):
    """One array in a file of any other name than .npy, which is a set of ours."""

    name = "NumPy"

    def sign(self, path: Path) -> str | None:
        is_one = path.suffix != ".npy" and path.is_file() and begins(path, len(_NPY)) == _NPY
        return f"{path.name} begins with {_NPY!r}" if is_one else None

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        return {"all": _layout(path, [path], asked)}


class NumpyShards(Kind):
    """A folder of numbered .npy files. A weak sign: only their names show it."""

    name = "numbered .npy files"

    def sign(self, path: Path) -> str | None:
        found = _tokens(path)
        names = {_DIGITS.sub("0", file.name) for files in found.values() for file in files}
        if not found or ("all" in found and len(names) > 1):
            return None
        return f"{min(map(min, found.values())).name}"

    def open(self, path: Path, asked: Asked) -> dict[str, SplitLayout]:
        return _layouts(self, path, _tokens(path), asked)


def _count(path: Path, dtype: np.dtype) -> float:
    """Return the number of values in a file with or without NumPy's header; not whole if it was cut."""
    return len(open_npy(path)) if _has_header(path) else path.stat().st_size / dtype.itemsize


def _has_header(path: Path) -> bool:
    return begins(path, len(_NPY)) == _NPY


def _tokens(path: Path) -> dict[str, list[Path]]:
    """Return the token files of a folder by the split in their prefix, `all` for any other, in order."""
    found: dict[str, list[Path]] = {}
    if not path.is_dir():
        return found
    for file in sorted(path.glob("*.npy"), key=_by_number):
        name = _TOKENS.fullmatch(file.name)
        if name is not None and not file.name.endswith(".docs.npy"):
            found.setdefault(_SPLITS.get(name["prefix"], "all"), []).append(file)
    return found


def _by_number(file: Path) -> list[int | str]:
    """Sort key: 2 before 10."""
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(file.name)]


def _numbered(files: Sequence[Path]) -> dict[str, Path]:
    return {name["number"]: file for file in files if (name := _TOKENS.fullmatch(file.name))}


def _layouts(kind: Kind, path: Path, shards: dict[str, list[Path]], asked: Asked) -> dict[str, SplitLayout]:
    parts = {}
    for split, files in shards.items():
        gap = first_gap(list(_numbered(files))) if len(_numbered(files)) == len(files) else None
        if gap is not None:
            raise kind.damaged(path, f"of {files[0].name} to {files[-1].name} number {gap} is missing")
        parts[split] = _layout(path, files, asked)
    if set(parts) == {"train", "val"}:
        return parts
    if len(parts) > 1:
        names = ", ".join(str(files[0]) for files in shards.values())
        raise UserError(
            f"{path} holds several sets ({names}). Put each into a folder of its own",
            code="shards-several-sets",
        )
    return {"all": next(iter(parts.values()))}


def _layout(path: Path, files: list[Path], asked: Asked) -> SplitLayout:
    have = [file for file in files if _has_header(file)]
    if not have:
        dtype, reason = dtype_of(files, asked)
        return SplitLayout(Runs.of_files(dtype, files), None, tuple(files), dtype_reason=reason)
    if len(have) < len(files):
        other = next(file for file in files if file not in have)
        raise UserError(
            f"{path}: {have[0].name} has the header of NumPy, {other.name} has none: one is damaged",
            code="shards-header-mixed",
        )
    arrays = [open_npy(file) for file in files]
    dtypes = {array.dtype: file for array, file in zip(arrays, files, strict=True)}
    if len(dtypes) > 1:
        found = " and ".join(f"{dtype.name} in {file.name}" for dtype, file in dtypes.items())
        raise UserError(
            f"{path}: its files have different dtypes, {found}. Write them again with one dtype",
            code="shards-dtypes-mixed",
        )
    offsets = [array.offset for array in arrays if isinstance(array, np.memmap)]
    runs = Runs(
        arrays[0].dtype, files, np.arange(len(files)), np.array(offsets), np.array([len(a) for a in arrays])
    )
    return SplitLayout(runs, None, tuple(files))
