"""Choice of the reader: the one that was requested, or what files, disk and cluster suggest."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from conf import AUTO
from data_loading.readers.block_checks import CheckedReader
from data_loading.readers.extents import Extents, extents_of
from data_loading.readers.file_systems import NETWORK_FILE_SYSTEMS, file_system_of
from data_loading.readers.in_memory import InMemoryReader, room_bytes
from data_loading.readers.mapped import MappedReader
from data_loading.readers.positional import PositionalReader
from data_loading.readers.read_plan import Plan
from data_loading.readers.reader import Reader
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

READERS = (AUTO, "mmap", "pread", "memory")
VERIFY = ("set", "blocks")
_ASK_SLURM_S = 5
_SMALL_IN_A_PAGE = 8


@dataclass(frozen=True)
class ReaderOptions:
    """Settings of a reader; the bytes that it reads do not depend on them."""

    reader: str = AUTO
    """mmap, pread, memory or auto."""
    at_random: bool = True
    """Whether windows are read in another order than the file's."""
    max_resident_bytes: int | None = None
    """Most that mmap adds to RSS; None: no bound."""
    verify: str = "set"
    """set: checksums were compared when the set was opened. blocks: each block again before its first use."""
    plan: Plan | None = None
    """Windows and their order, for tokens that are fetched before their use."""

    def __post_init__(self) -> None:
        if self.verify not in VERIFY:
            raise UserError(f"verify {self.verify!r}: choices are {', '.join(VERIFY)}", code="verify-unknown")
        if self.max_resident_bytes is not None and self.max_resident_bytes < 1:
            raise UserError(
                f"max_resident {self.max_resident_bytes}: expected a number of bytes, at least 1",
                code="max-resident-invalid",
            )


def reader_of(tokens: Tokens, options: ReaderOptions) -> tuple[Reader, str]:
    """Return the reader of tokens, and a line that says what it is and why.

    Raises:
        UserError: an unknown reader, or one that cannot serve these tokens.
    """
    own = tokens.own_reader(options)
    if own is not None:
        return own
    reader, why = open_reader(extents_of(tokens.tokens), options)
    if options.verify == "blocks":
        reader = CheckedReader(reader, *tokens.checksums)
    return reader, why


def open_reader(extents: Extents, options: ReaderOptions) -> tuple[Reader, str]:
    """Return the reader, and a line that says what it is and why.

    Raises:
        UserError: an unknown reader, or one that cannot serve these tokens.
    """
    name, why, bound = options.reader, "as requested", options.max_resident_bytes
    size, room = sum(buffer.nbytes for buffer in extents.buffers), room_bytes()
    if name == AUTO:
        name, why = _suggested(extents, options, size, room)
    if name not in READERS:
        raise UserError(f"reader {name!r}: choices are {', '.join(READERS)}", code="reader-unknown")
    if bound is not None and name != "mmap":
        raise UserError(
            f"max_resident={bound:,} bytes bounds what reader=mmap maps; reader={name} maps nothing. "
            "Remove it",
            code="max-resident-without-mmap",
        )
    if name == "memory":
        return InMemoryReader(extents), f"a copy of it in RAM in each process (memory: {why})"
    is_around = _is_read_around(extents, options, size, room)
    hints: dict[str, bool] = {"at_random": options.at_random and not is_around, "gives_hints": not is_around}
    if name == "pread":
        if None in extents.paths:
            raise UserError(
                "reader=pread reads files, and these tokens are in memory: use reader=mmap or auto",
                code="reader-needs-file",
            )
        return PositionalReader(extents, **hints), f"read as needed, 0 MB of it held in RAM (pread: {why})"
    held = f"at most {bound / 1e6:,.0f} MB of it in RSS" if bound is not None else "0 MB of it held in RAM"
    return MappedReader(extents, max_resident_bytes=bound, **hints), f"memory-mapped, {held} (mmap: {why})"


def _is_read_around(extents: Extents, options: ReaderOptions, size: int, room: int | None) -> bool:
    """Whether the kernel may read around what is requested.

    For windows much smaller than a page, in a set that fits in the page cache: reading around has soon read
    all, and page by page it takes an epoch.
    """
    if not options.at_random or options.plan is None or options.plan.windows is None or room is None:
        return False
    in_a_page = mmap.PAGESIZE // (options.plan.windows.width * extents.dtype.itemsize)
    return in_a_page >= _SMALL_IN_A_PAGE and 2 * size <= room


def _suggested(extents: Extents, options: ReaderOptions, size: int, room: int | None) -> tuple[str, str]:
    path = next(filter(None, extents.paths), None)
    if path is None:
        return "mmap", "the tokens are in memory"
    if options.max_resident_bytes is not None:
        return "mmap", "its pages in RSS are bounded"
    kind = file_system_of(path)
    if kind is not None and kind.split(".")[0] in NETWORK_FILE_SYSTEMS:
        return "pread", f"the files are on a network file system ({kind})"
    if slurm_counts_page_cache():
        return "pread", "Slurm counts mapped pages as memory of the job (JobAcctGatherParams without UsePss)"
    if room is not None and size > room:
        return "pread", f"its {size / 1e9:,.1f} GB do not fit in memory, which has {room / 1e9:,.1f} GB free"
    return "mmap", "the files are on a local disk" if kind else "the file system is not known"


@cache
def slurm_counts_page_cache() -> bool:
    """Return whether Slurm kills jobs by their RSS (slurm.conf(5): OverMemoryKill, without UsePss)."""
    if "SLURM_JOB_ID" not in os.environ or (scontrol := shutil.which("scontrol")) is None:
        return False
    try:
        shown = subprocess.run(
            [scontrol, "show", "config"], capture_output=True, text=True, timeout=_ASK_SLURM_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    parameters = re.search(r"^JobAcctGatherParams\s*=\s*(.*)$", shown, re.MULTILINE)
    named = [word.strip() for word in (parameters.group(1) if parameters else "").lower().split(",")]
    return "overmemorykill" in named and "usepss" not in named
