"""Room on the disk for a token set, before the work begins and during it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from data_loading.pretokenizer.blocks import token_dtype
from data_loading.pretokenizer.engines.base import Engine
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.token_forecast import forecast
from data_loading.pretokenizer.writer import STARTS
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.disk_errors import another_disk
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_duration
from memory import format_bytes

_EXPANSION = 16
"""Most text of a compressed byte, up to which samples are not needed."""
_LOOK_S = 5.0
_SOON_S = 300.0
RESERVE_BYTES = 64 << 20
UNSURE = 2
"""Factor by which a size that samples suggest can be wrong."""


def free_bytes(path: Path) -> int:
    """Bytes that a user can still write on the disk of `path`."""
    found = os.statvfs(_existing(path))
    return found.f_bavail * found.f_frsize


def device_of(path: Path) -> int:
    """The same number for two paths on one disk."""
    return _existing(path).stat().st_dev


def _existing(path: Path) -> Path:
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return place


def held_bytes(folder: Path) -> int:
    """Size on disk of the files of a folder; 0 if there is none."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def check_room(
    inputs: Inputs, tokenizer: Tokenizer, engine: Engine, files: SetFiles, log: Callable[[str], None]
) -> None:
    """Check that there is room for the set; the files of an earlier attempt count as room.

    No samples are read if even the longest set that the text could become has room.

    Raises:
        UserError: there is far too little room for the tokens that samples of the text suggest.
    """
    here = files.tokens.parent
    room = free_bytes(here) + held_bytes(files.partial)
    if inputs.total_bytes is None or _most_bytes(inputs, tokenizer) <= room:
        return
    found = forecast(inputs, tokenizer, engine)
    needed = found.disk_bytes
    if needed is None or needed <= room:
        return
    problem = (
        f"{files.tokens} needs about {format_bytes(needed)}, and {here} has room for {format_bytes(room)}"
    )
    if needed <= room * (1 if found.is_complete else UNSURE) or inputs.may_shrink:
        log(f"WARNING: {problem}. When it is full, what is done is kept")
        return
    raise UserError(
        f"{problem}: nothing was begun. Make room, or tokenize to another disk: "
        f"{another_disk(files.asked_for)}",
        code="disk-space",
    )


def _most_bytes(inputs: Inputs, tokenizer: Tokenizer) -> int:
    """An id for each byte, and a document for every other one."""
    of_each = token_dtype(tokenizer.vocab_size).itemsize + STARTS.itemsize // 2
    sizes = [
        (part.total_bytes or 0) * (1 if part.sample_starts is None else _EXPANSION) for part in inputs.parts
    ]
    return sum(sizes) * of_each


class DiskWatch:
    """Looks at the disk from time to time during the work, and warns once before it is full.

    total_bytes: of the inputs; None if their end is not known. before: bytes of them and tokens that an
    earlier attempt has done.
    """

    def __init__(
        self,
        files: SetFiles,
        token_bytes: int,
        total_bytes: int | None,
        log: Callable[[str], None],
        before: tuple[int, int] = (0, 0),
    ) -> None:
        self._files, self._token_bytes, self._total, self._log = files, token_bytes, total_bytes, log
        self._done, self._tokens = before
        self._started = self._looked = time.monotonic()
        self._warned = False

    def update(self, done_bytes: int, tokens: int) -> None:
        now = time.monotonic()
        if self._warned or now - self._looked < _LOOK_S:
            return
        self._looked = now
        written = (tokens - self._tokens) * self._token_bytes
        read = done_bytes - self._done
        if written <= 0 or read <= 0:
            return
        free = free_bytes(self._files.tokens.parent)
        full_s = free / written * (now - self._started)
        if self._total is not None:
            is_short = written / read * (self._total - done_bytes) > free
        else:
            is_short = free < RESERVE_BYTES or full_s < _SOON_S
        if is_short:
            self._warned = True
            self._log(
                f"WARNING: {self._files.tokens.parent} has room for {format_bytes(free)} more. At this speed "
                f"it will be full in {format_duration(full_s)}, before the text is at its end. Make room "
                "meanwhile. When it is full, what is done is kept, and the same command resumes"
            )
