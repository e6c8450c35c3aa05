"""The type of a path's file system is read from the mounts of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_loading.readers.file_systems import file_system_of

MOUNTS = rb"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:50 / /home rw shared:2 - nfs4 server:/home rw,vers=4.2
31 30 0:51 / /home/me/fast\040disk rw - lustre mds@tcp:/fast rw
32 22 0:52 / /hidden rw - nfs server:/hidden rw
33 22 0:53 / /hidden rw - tmpfs tmpfs rw
34 22 0:54 / /fused rw - fuse.sshfs me@there: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/x/a.npy", "ext4"), ("/home/me/a.npy", "nfs4"), ("/home/me/fast disk/a", "lustre"),
     ("/homeless/a", "ext4"), ("/hidden/a", "tmpfs"), ("/fused/a", "fuse.sshfs")],
)  # fmt: skip
def test_file_system_is_that_of_deepest_mount(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind
    assert file_system_of(Path(path), b"") is None


def test_file_systems_of_this_machine_are_known() -> None:
    assert file_system_of(Path("/proc/self/status")) == "proc"
