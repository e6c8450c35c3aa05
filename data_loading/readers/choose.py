"""Which reader serves tokens best here: what was asked for, or what files, disk and cluster suggest."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from conf import AUTO
from data_loading.readers.extents import Extents
from data_loading.readers.in_memory import InMemoryReader
from data_loading.readers.mapped import MappedReader
from data_loading.readers.plan import Plan
from data_loading.readers.positional import PositionalReader
from data_loading.readers.reader import Reader
from data_loading.readers.room import room_bytes, size_bytes
from experiment_utils.errors import UserError
from memory.kernel_files import read_long_file

READERS = (AUTO, "mmap", "pread", "memory")
VERIFY = ("set", "blocks")
NETWORK_FILE_SYSTEMS = (
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs",
    "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs",
)  # fmt: skip
"""On these a page fault is a request of one page over the network, and a lost server hangs the process."""
_ASK_SLURM_S = 5
_SMALL_IN_A_PAGE = 8


@dataclass(frozen=True)
class ReaderOptions:
    """How tokens are read; the bytes are the same.

    reader: mmap, pread, memory or auto. at_random: in an order that is not the file's.
    max_resident_bytes: what mmap may add to RSS; None: whatever the page cache holds. verify: set: checksums
    were held when the set was opened; blocks: each block again before its first use in this process. plan:
    what is read, for tokens that are fetched before their use.
    """

    reader: str = AUTO
    at_random: bool = True
    max_resident_bytes: int | None = None
    verify: str = "set"
    plan: Plan | None = None

    def __post_init__(self) -> None:
        if self.verify not in VERIFY:
            raise UserError(f"verify {self.verify!r}: choices are {', '.join(VERIFY)}", code="verify-unknown")
        if self.max_resident_bytes is not None and self.max_resident_bytes < 1:
            raise UserError(
                f"max_resident {self.max_resident_bytes}: expected a number of bytes, at least 1",
                code="max-resident-invalid",
            )


def open_reader(extents: Extents, options: ReaderOptions) -> tuple[Reader, str]:
    """The reader, and what it is and why, in a line.

    Raises:
        UserError: an unknown reader, or one that cannot serve these tokens.
    """
    name, why = options.reader, "as asked for"
    size, room = size_bytes(extents.buffers), room_bytes()
    if name == AUTO:
        name, why = _suggested(extents, options, size, room)
    is_around = _is_read_around(extents, options, size, room)
    bound = options.max_resident_bytes
    if bound is not None and name != "mmap":
        raise UserError(
            f"max_resident={bound:,} bytes bounds what reader=mmap maps; reader={name} maps nothing. Take it "
            "away",
            code="max-resident-without-mmap",
        )
    if name not in READERS:
        raise UserError(f"reader {name!r}: choices are {', '.join(READERS)}", code="reader-unknown")
    if name == "pread" and None in extents.paths:
        raise UserError(
            "reader=pread reads files, and these tokens are in memory: take reader=mmap or auto",
            code="reader-needs-file",
        )
    if name == "pread":
        reader: Reader = PositionalReader(extents, at_random=options.at_random, reads_around=is_around)
        return reader, f"read as needed, 0 MB of it held in RAM (pread: {why})"
    if name == "memory":
        return InMemoryReader(extents), f"one copy of it in RAM for all processes of the job (memory: {why})"
    held = f"at most {bound / 1e6:,.0f} MB of it in RSS" if bound is not None else "0 MB of it held in RAM"
    mapped = MappedReader(
        extents, at_random=options.at_random, reads_around=is_around, max_resident_bytes=bound
    )
    return mapped, f"memory-mapped, {held} (mmap: {why})"


def _is_read_around(extents: Extents, options: ReaderOptions, size: int, room: int | None) -> bool:
    """Whether the kernel may read around what is asked for: of windows much smaller than a page, in a set
    that can stay in the page cache, it has soon read all, where page by page takes an epoch.
    """
    if not options.at_random or options.plan is None or options.plan.windows is None or room is None:
        return False
    in_a_page = mmap.PAGESIZE // (options.plan.windows.width * extents.dtype.itemsize)
    return in_a_page >= _SMALL_IN_A_PAGE and 2 * size <= room


def _suggested(extents: Extents, options: ReaderOptions, size: int, room: int | None) -> tuple[str, str]:
    paths = [path for path in extents.paths if path is not None]
    if not paths:
        return "mmap", "the tokens are in memory"
    if options.max_resident_bytes is not None:
        return "mmap", "its pages in RSS are bounded"
    kind = file_system_of(paths[0])
    if kind is not None and kind.split(".")[0] in NETWORK_FILE_SYSTEMS:
        return "pread", f"the files lie on a network file system ({kind})"
    if slurm_counts_page_cache():
        return (
            "pread",
            "Slurm counts mapped pages against this job's memory (JobAcctGatherParams without UsePss)",
        )
    if room is not None and size > room:
        return (
            "pread",
            f"its {size / 1e9:,.1f} GB are more than the {room / 1e9:,.1f} GB that memory has room for",
        )
    return "mmap", "the files lie on a local disk" if kind else "nothing speaks against it"


def file_system_of(path: Path, mounts: bytes | None = None) -> str | None:
    """The type of the file system that a path is on, from /proc/self/mountinfo (proc(5)); None: not known."""
    mounts = read_long_file("/proc/self/mountinfo") if mounts is None else mounts
    where, longest, kind = os.fsencode(os.path.realpath(path)), -1, None
    for line in (mounts or b"").splitlines():
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), fields[4])
        inside = where == point or where.startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= longest:  # the later of two mounts on one point hides the other
            longest, kind = len(point), os.fsdecode(after.split()[0])
    return kind


@cache
def slurm_counts_page_cache() -> bool:
    """Whether Slurm kills jobs by their RSS (slurm.conf(5): OverMemoryKill, without UsePss)."""
    if "SLURM_JOB_ID" not in os.environ or (scontrol := shutil.which("scontrol")) is None:
        return False
    try:
        told = subprocess.run(
            [scontrol, "show", "config"], capture_output=True, text=True, timeout=_ASK_SLURM_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    parameters = re.search(r"^JobAcctGatherParams\s*=\s*(.*)$", told, re.MULTILINE)
    named = [word.strip() for word in (parameters.group(1) if parameters else "").lower().split(",")]
    return "overmemorykill" in named and "usepss" not in named
