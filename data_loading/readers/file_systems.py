"""Types of file systems."""

from __future__ import annotations

import os
import re
from pathlib import Path

NETWORK_FILE_SYSTEMS = (
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs",
    "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs",
)  # fmt: skip
"""On these a page fault is a request of one page over the network, and a lost server hangs the process."""


def file_system_of(path: Path, mounts: bytes | None = None) -> str | None:
    """Return the type of the file system of a path, from /proc/self/mountinfo (proc(5)); None if unknown."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_bytes()
        except OSError:
            return None
    where, longest, kind = os.fsencode(os.path.realpath(path)), -1, None
    for line in mounts.splitlines():
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), fields[4])
        inside = where == point or where.startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= longest:  # the later of two mounts on one point hides the other
            longest, kind = len(point), os.fsdecode(after.split()[0])
    return kind
