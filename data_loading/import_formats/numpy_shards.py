"""Folders of numbered .npy files: those of templar with the ids of their samples, and raw ones (OLMo).

Source: github.com/tplr-ai/templar, src/tplr/sharded_dataset.py (reader: PREFIX_000000.npy with NumPy's
header, 1-D; sample_ids_000000.bin, uint64, one for each slice of seqlen tokens, taken for raw) and
scripts/dataset_prep/02_consolidate_shards.py (writer of the sample ids: np.save, so that they do have a
header, which templar reads as 16 more samples). Their slices are no documents: they are cut anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_loading.import_formats.byte_ranges import Runs
from data_loading.import_formats.format import Asked, Kind, Layout, begins
from data_loading.import_formats.numbered import missing_numbers
from data_loading.import_formats.raw_dtype import dtype_of
from data_loading.tokens.npy import open_npy
from experiment_utils.errors import UserError

_TOKENS = re.compile(r"(?P<prefix>.*?)[-_.]?(?P<number>\d+)\.npy")
_DIGITS = re.compile(r"(\d+)")
_IDS = re.compile(r"sample_ids_(\d+)\.bin")
_ID = np.dtype("<u8")
_SPLITS = {"train": "train", "val": "val", "validation": "val", "eval": "val"}
_NPY = b"\x93NUMPY"


class Templar(Kind):
    name = "templar"

    def sign(self, path: Path) -> str | None:
        ids = [file.name for file in path.glob("sample_ids_*.bin") if _IDS.fullmatch(file.name)]
        return f"{min(ids)} beside .npy files" if ids and _tokens(path) else None

    def open(self, path: Path, asked: Asked) -> dict[str, Layout]:
        shards = _tokens(path)
        told = "train" if "train" in shards else min(shards)
        numbered = _numbered(shards[told])
        for number, file in numbered.items():
            if not (path / f"sample_ids_{number}.bin").is_file():
                raise self.damaged(path, f"sample_ids_{number}.bin, which belongs to {file.name}, is missing")
        for file in path.glob("sample_ids_*.bin"):
            found = _IDS.fullmatch(file.name)
            if found and found[1] not in numbered:
                raise self.damaged(path, f"there is {file.name}, but no {told}_{found[1]}.npy")
        layouts = _layouts(self, path, shards, asked)
        self._check_slices(path, numbered, (layouts.get(told) or layouts["all"]).tokens.dtype)
        return layouts

    def _check_slices(self, path: Path, numbered: dict[str, Path], dtype: np.dtype) -> None:
        """All shards have slices of one length, and no more tokens than these."""
        first: tuple[int, Path] | None = None
        for number, file in numbered.items():
            tokens = self._slice_tokens(path / f"sample_ids_{number}.bin", file, dtype)
            first = first or (tokens, file)
            if tokens != first[0]:
                raise self.damaged(
                    path,
                    f"{first[1].name} has {first[0]:,} tokens for each of its sample ids, {file.name} has "
                    f"{tokens:,}: one of them was cut short, or has the sample ids of another shard",
                )

    def _slice_tokens(self, ids: Path, tokens: Path, dtype: np.dtype) -> int:
        """One id for each slice: they divide the tokens evenly."""
        size = ids.stat().st_size
        count = len(open_npy(ids)) if begins(ids, len(_NPY)) == _NPY else size // _ID.itemsize
        has_header = begins(tokens, len(_NPY)) == _NPY
        length = len(open_npy(tokens)) if has_header else tokens.stat().st_size // dtype.itemsize
        if size % _ID.itemsize or count == 0 or length % count:
            raise self.damaged(
                ids.parent,
                f"the {count:,} sample ids of {ids.name} ({size:,} bytes) do not divide the {length:,} "
                f"tokens of {tokens.name} into slices of one length: one of them was cut short or is of "
                "another shard (move the sample ids away to read the tokens without them)",
            )
        return length // count


class NumpyFile(Kind):
    """One array, whatever the file is called; one that is called .npy is a set of ours."""

    name = "NumPy"

    def sign(self, path: Path) -> str | None:
        is_one = path.suffix != ".npy" and path.is_file() and begins(path, len(_NPY)) == _NPY
        return f"{path.name} begins with {_NPY!r}" if is_one else None

    def open(self, path: Path, asked: Asked) -> dict[str, Layout]:
        return {"all": _layout(path, [path], asked)}


class NumpyShards(Kind):
    """A weak sign: only names of files, and that some begin as NumPy's do or none does."""

    name = "numbered .npy files"

    def sign(self, path: Path) -> str | None:
        found = _tokens(path)
        names = {_DIGITS.sub("0", file.name) for files in found.values() for file in files}
        if not found or ("all" in found and len(names) > 1):
            return None
        return f"{min(map(min, found.values())).name}"

    def open(self, path: Path, asked: Asked) -> dict[str, Layout]:
        return _layouts(self, path, _tokens(path), asked)


def _tokens(path: Path) -> dict[str, list[Path]]:
    """Token files of a folder by the split that their prefix names; `all` for any other, in order."""
    found: dict[str, list[Path]] = {}
    if not path.is_dir():
        return found
    for file in sorted(path.glob("*.npy"), key=_by_number):
        name = _TOKENS.fullmatch(file.name)
        if name is not None and not file.name.endswith(".docs.npy"):
            found.setdefault(_SPLITS.get(name["prefix"], "all"), []).append(file)
    return found


def _by_number(file: Path) -> list[int | str]:
    """2 before 10, however many digits they have."""
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(file.name)]


def _numbered(files: Sequence[Path]) -> dict[str, Path]:
    return {name["number"]: file for file in files if (name := _TOKENS.fullmatch(file.name))}


def _layouts(kind: Kind, path: Path, shards: dict[str, list[Path]], asked: Asked) -> dict[str, Layout]:
    parts = {}
    for split, files in shards.items():
        gap = missing_numbers(list(_numbered(files))) if len(_numbered(files)) == len(files) else None
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


def _layout(path: Path, files: list[Path], asked: Asked) -> Layout:
    have = [file for file in files if begins(file, len(_NPY)) == _NPY]
    if not have:
        dtype, told = dtype_of(files, asked)
        return Layout(Runs.of_files(dtype, files), None, tuple(files), told=told)
    if len(have) < len(files):
        other = next(file for file in files if file not in have)
        raise UserError(
            f"{path}: {have[0].name} has the header of NumPy, {other.name} has none: one is damaged",
            code="shards-header-mixed",
        )
    arrays = [open_npy(file) for file in files]
    dtypes = {array.dtype: file for array, file in zip(arrays, files, strict=True)}
    if len(dtypes) > 1:
        told = " and ".join(f"{dtype.name} in {file.name}" for dtype, file in dtypes.items())
        raise UserError(
            f"{path}: its files are of different dtypes, {told}. Write them again, all of one",
            code="shards-dtypes-mixed",
        )
    offsets = [array.offset for array in arrays if isinstance(array, np.memmap)]
    runs = Runs(
        arrays[0].dtype, files, np.arange(len(files)), np.array(offsets), np.array([len(a) for a in arrays])
    )
    return Layout(runs, None, tuple(files))
