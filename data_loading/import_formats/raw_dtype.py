"""The dtype of ids without a header, guessed from their values.

Ids read as a narrower dtype have a zero at every second (or fourth) place; ids read as a wider one exceed any
vocabulary. So the widest dtype that stays below the vocabulary is the right one, if there are enough ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from conf import AUTO
from data_loading.import_formats.format import Asked
from experiment_utils.errors import UserError
from memory.files.file_kinds import KINDS_LIKE_IDS, not_expected

READINGS = tuple(np.dtype(name) for name in ("<i8", "<u4", "<u2"))
_BLOCK_IDS = 1 << 20
_ENOUGH_IDS, _ENOUGH_KINDS = 1024, 16
"""This many ids of this many values, all with zeros in their upper halves, are no accident."""


def dtype_of(paths: Sequence[Path], asked: Asked, usual: str | None = None) -> tuple[np.dtype, str | None]:
    """Return (dtype, reason for it; None if the user gave it) of files of ids only.

    Args:
        paths: The files.
        asked: Dtype and vocabulary that are known.
        usual: Dtype of the program that writes such files, for files that are too short for a guess.

    Raises:
        UserError: Several dtypes are possible, or none, or the size of the vocabulary is not known.
    """
    names = " and ".join(map(str, paths))
    for path in paths:
        if path.stat().st_size == 0:
            raise UserError(f"{path} holds no tokens: it is empty. Copy or make it again", code="no-tokens")
        other = not_expected(path, "ids without a header", KINDS_LIKE_IDS)
        if other is not None:
            raise UserError(other, code="other-kind-of-file")
    if asked.dtype != AUTO:
        dtype = np.dtype(asked.dtype).newbyteorder("<")
        for path in paths:
            _check_length(path, dtype)
        return dtype, None
    if asked.vocab_size is None:
        raise UserError(
            f"{names}: the ids may be uint16 or uint32. Name the dtype: dataset.dtype=uint16 or "
            "dataset.dtype=uint32, or name the tokenizer (in Python open_tokens(FILE, dtype='uint16'), or "
            "vocab_size=...)",
            code="dtype-needs-vocabulary",
        )
    possible = [dtype for dtype in READINGS if all(_fits(path, dtype, asked.vocab_size) for path in paths)]
    below = f"below the {asked.vocab_size:,} of the vocabulary"
    if not possible:
        sizes = ", ".join(f"{path} of {path.stat().st_size:,} bytes" for path in paths)
        raise UserError(
            f"{sizes}: read as uint16, as uint32 or as int64, not all ids are {below}. It was made with "
            "another tokenizer (set tokenizer=...), was cut short, or holds no raw ids",
            code="dtype-fits-none",
        )
    widest = possible[0]
    if len(possible) == 1 or _is_no_accident(paths[0], widest):
        return widest, f"read as {widest.name}, all ids are {below}"
    if usual in [dtype.name for dtype in possible]:
        return np.dtype(str(usual)).newbyteorder("<"), f"its program writes {usual}"
    choices = [dtype.name for dtype in reversed(possible)]
    raise UserError(
        f"{names} may be {' or '.join(choices)}: read as either, all ids are {below}. Choose: "
        f"{' or '.join(f'dataset.dtype={name}' for name in choices)} (in Python open_tokens(FILE, "
        f"dtype={choices[0]!r}))",
        code="dtype-ambiguous",
    )


def _check_length(path: Path, dtype: np.dtype) -> None:
    size = path.stat().st_size
    if size % dtype.itemsize:
        raise UserError(
            f"{path} has {size:,} bytes, which is no whole number of {dtype.name}: it was cut short, or is "
            "of another dtype (dataset.dtype=...)",
            code="size-not-of-dtype",
        )


def _fits(path: Path, dtype: np.dtype, vocab_size: int) -> bool:
    """Whether all ids, read so, are below the vocabulary. Stops at the first that is not."""
    if path.stat().st_size % dtype.itemsize:
        return False
    ids = np.memmap(path, dtype, mode="r")
    for start in range(0, len(ids), _BLOCK_IDS):
        block = ids[start : start + _BLOCK_IDS]
        if int(block.max()) >= vocab_size or int(block.min()) < 0:
            return False
    return True


def _is_no_accident(path: Path, dtype: np.dtype) -> bool:
    ids = np.memmap(path, dtype, mode="r")
    return len(ids) >= _ENOUGH_IDS and len(np.unique(ids[:_BLOCK_IDS])) >= _ENOUGH_KINDS
