"""Journal of a token set, from which a killed job resumes after its last finished block.

The hidden folder of the set has two kinds of files. `journal.json`: a state whose data are on the device.
`blocks.N.jsonl`: a line for each block since then, written when its data are with the kernel. A killed
process loses nothing of either. After a power cut a line can describe data that never reached the device,
so each has a CRC of its data, and counts only if that is right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.pretokenizer.blocks import Place
from data_loading.pretokenizer.writer import Written, crc_of_files
from data_loading.tokens.shard_layout import ONE_FILE, Layout
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

SYNC_TOKENS = 1 << 25
"""Tokens after which the data are synced in the background, and a new file of lines begins. A small number
keeps the last sync short."""
_VERSION = 2
_ENGINE = "engine.json"


@dataclass(frozen=True)
class Progress:
    """A state from which a job resumes."""

    written: Written = Written()
    """Content of the files."""
    place: Place = Place(None, 0)
    """Beginning of the text behind it."""
    done_bytes: int = 0
    """Bytes of the source before that place."""


class Journal:
    """Notes each block after it was written.

    Args:
        folder: Hidden folder of the set.
        job: Digest of everything that decides the bytes of the set.
        progress: State at which this attempt begins.
        checksums: Checksums of the data before that state.
        sync: Writes all data to the device.
    """

    def __init__(
        self,
        folder: Path,
        job: str,
        progress: Progress,
        checksums: Sequence[str],
        sync: Callable[[], None],
    ) -> None:
        self._folder, self._job, self._sync = folder, job, sync
        self._generation = _next_generation(folder)
        self._synced_tokens, self._noted = progress.written.tokens, len(checksums)
        self._held: list[bytes] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._settling: Future[None] | None = None
        self._settle(progress, list(checksums), self._generation)
        self._lines = self._open()

    def note(self, progress: Progress, checksums: Sequence[str], crc: int) -> None:
        """Note a block that is in the files. Raises OSError if the disk is full.

        Args:
            progress: State of the files with the block.
            checksums: All checksums so far.
            crc: CRC-32 of the data of the block.
        """
        new = checksums[self._noted :]
        data = f"{json.dumps({**_plain(progress), 'checksums': new, 'crc': crc})}\n".encode()
        self._noted += len(new)
        if self._held is not None:
            self._held.append(data)
            return
        self._lines.write(data)
        if self._settling is not None and self._settling.done():
            self._settling.result()
            self._settling = None
        tokens = progress.written.tokens
        if self._settling is None and tokens - self._synced_tokens >= SYNC_TOKENS:
            self._synced_tokens = tokens
            self._generation += 1
            self._lines.close()
            self._lines = self._open()
            self._settling = self._thread.submit(self._settle, progress, list(checksums), self._generation)

    @property
    def is_held(self) -> bool:
        """Whether notes do not count yet."""
        return self._held is not None

    def hold(self) -> None:
        """Keep lines in memory from now on: no job resumes from them."""
        self._held = []

    def release(self) -> None:
        """Write the lines in memory. From now on each note counts."""
        for data in self._held or []:
            self._lines.write(data)
        self._held = None

    def _open(self) -> Any:
        return open(self._folder / f"blocks.{self._generation}.jsonl", "ab", buffering=0)

    def _settle(self, progress: Progress, checksums: Sequence[str], generation: int) -> None:
        """Make `progress` the state that needs no lines, and remove older lines."""
        self._sync()
        state = {"version": _VERSION, "job": self._job, "generation": generation}
        atomic_files.write_json(
            self._folder / "journal.json", {**state, **_plain(progress), "checksums": checksums}
        )
        for number, path in _generations(self._folder):
            if number < generation:
                path.unlink()

    def close(self) -> None:
        """Close its files without another note."""
        self._lines.close()
        self._thread.shutdown()


def write_engine(folder: Path, facts: dict[str, Any]) -> None:
    """Note the engine of the data once it is known to be exact."""
    atomic_files.write_json(folder / _ENGINE, facts)


def read_engine(folder: Path) -> dict[str, Any]:
    """The engine that an earlier attempt has noted; empty if there is none."""
    try:
        return atomic_files.read_object(folder / _ENGINE) or {}
    except ValueError:
        return {}


def read_job(folder: Path) -> str | None:
    """Digest of the job whose unfinished set is in the folder; None if no job can resume."""
    state = _read_state(folder)
    return None if state is None else state["job"]


def read_progress(folder: Path, dtype: np.dtype, layout: Layout = ONE_FILE) -> tuple[Progress, list[str]]:
    """Read the state of an unfinished set, and the checksums so far. Data behind that state do not count."""
    state = _read_state(folder)
    if state is None:
        raise UserError(
            f"{folder} was changed while it was read. Run the same command again", code="changed-while-read"
        )
    progress, checksums = _progress(state), state["checksums"]
    for line in _lines(folder, state["generation"]):
        after = _progress(line)
        if crc_of_files(folder, dtype, progress.written, after.written, layout) != line["crc"]:
            break
        progress = after
        checksums += line["checksums"]
    return progress, checksums


def _plain(progress: Progress) -> dict[str, Any]:
    """A JSON object of it. `dataclasses.asdict` would copy marks deeply, which is slow."""
    return {
        "written": vars(progress.written),
        "place": vars(progress.place),
        "done_bytes": progress.done_bytes,
    }


def _progress(plain: dict[str, Any]) -> Progress:
    return Progress(Written(**plain["written"]), Place(**plain["place"]), plain["done_bytes"])


def _lines(folder: Path, generation: int) -> Iterator[dict[str, Any]]:
    """The whole lines since the state of that generation, in order."""
    for number, path in _generations(folder):
        if number < generation:
            continue
        for line in path.read_bytes().split(b"\n"):
            try:
                yield json.loads(line)
            except ValueError:
                break  # a kill cut it short, or it is the end


def _read_state(folder: Path) -> dict[str, Any] | None:
    try:
        state = atomic_files.read_object(folder / "journal.json")
    except ValueError:
        return None
    return state if state is not None and state.get("version") == _VERSION else None


def _generations(folder: Path) -> list[tuple[int, Path]]:
    return sorted((int(path.name.split(".")[1]), path) for path in folder.glob("blocks.*.jsonl"))


def _next_generation(folder: Path) -> int:
    return max((number for number, _ in _generations(folder)), default=-1) + 1
