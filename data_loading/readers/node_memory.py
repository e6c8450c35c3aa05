"""One copy in memory of what several processes of a machine want, gone with the last of them.

The copy is a file without a name (memfd_create(2)); a socket of the abstract namespace (unix(7)), named after
its content, hands it to other processes of the same user. Neither leaves anything behind, whatever kills
whom. When the process that serves ends, another one that holds the copy goes on serving it.
"""

from __future__ import annotations

import array
import fcntl
import hashlib
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from experiment_utils.errors import UserError

_READY = b"r"
_AGAIN_S = 0.05
_LONGEST_WAIT_S = 3600.0
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_ANSWER_S = 5.0
_held: dict[str, int] = {}
"""Copies of this process, by name: descriptors, served while it lives."""
_lock = threading.Lock()
_serving: set[socket.socket] = set()


def node_memory(key: str, size_bytes: int, fill: Callable[[mmap.mmap], None]) -> mmap.mmap:
    """The copy named by `key`, mapped read-only: made by `fill` once on this machine, or what another made.

    key: says what the content is. Processes of one Slurm job share it; others have their own.

    Raises:
        UserError: another process has been making it for an hour.
    """
    name = _name_of(key)
    with _lock:
        if name not in _held:
            descriptor, serving = _made_or_received(name, size_bytes, fill)
            _held[name] = descriptor
            threading.Thread(
                target=_serve, args=(name, descriptor, serving), name="node_memory", daemon=True
            ).start()
    return mmap.mmap(_held[name], size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)


def _name_of(key: str) -> str:
    whole = f"{os.getuid()} {os.environ.get('SLURM_JOB_ID', '')} {key}"
    return f"\0highwater-{hashlib.sha256(whole.encode()).hexdigest()[:32]}"


def _made_or_received(
    name: str, size_bytes: int, fill: Callable[[mmap.mmap], None]
) -> tuple[int, socket.socket | None]:
    """The copy, and the socket that serves it where this process has to."""
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while time.monotonic() < deadline:
        making = _bound(f"{name}-making")
        if making is not None:
            with making:
                descriptor = _received(name)
                if descriptor is not None:
                    return descriptor, None
                return _made(size_bytes, fill), _listening(name)
        descriptor = _received(name)
        if descriptor is not None:
            return descriptor, None
        time.sleep(_AGAIN_S)
    raise UserError(
        "another process of this job has been loading the tokens into memory for an hour. Read them with "
        "reader=mmap or reader=pread",
        code="node-memory-timeout",
    )


def _made(size_bytes: int, fill: Callable[[mmap.mmap], None]) -> int:
    descriptor = os.memfd_create("highwater-tokens", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size_bytes)
        with mmap.mmap(descriptor, size_bytes) as written:
            fill(written)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _bound(name: str) -> socket.socket | None:
    """A socket that nobody else has as long as it is open; None where somebody has it."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        found.bind(name)
    except OSError:
        found.close()
        return None
    return found


def _listening(name: str) -> socket.socket | None:
    serving = _bound(name)
    if serving is not None:
        serving.listen(socket.SOMAXCONN)
        _serving.add(serving)
    return serving


def _received(name: str) -> int | None:
    """The descriptor that a process of this user serves; None where none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asking:
        try:
            asking.connect(name)
        except OSError:
            return None
        if not _is_of_this_user(asking):
            return None
        asking.settimeout(_ANSWER_S)
        with suppress(OSError):
            data, descriptors, _, _ = socket.recv_fds(asking, 1, 1)
            if data == _READY and descriptors:
                return descriptors[0]
    return None


def _serve(name: str, descriptor: int, serving: socket.socket | None) -> None:
    """Hand the copy to whoever asks, or stand by until the one who does so now has ended."""
    while serving is None:
        _wait_for_end(name)
        serving = _listening(name)
    while True:
        with suppress(OSError):
            asking, _ = serving.accept()
            answering = threading.Thread(
                target=_answer, args=(asking, descriptor), name="node_memory", daemon=True
            )
            answering.start()


def _answer(asking: socket.socket, descriptor: int) -> None:
    with asking, suppress(OSError):
        if _is_of_this_user(asking):
            asking.sendmsg([_READY], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])
            asking.recv(1)


def _wait_for_end(name: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as waiting:
        try:
            waiting.connect(name)
            data, descriptors, _, _ = socket.recv_fds(waiting, 1, 1)
            for received in descriptors:
                os.close(received)
            while data:
                data = waiting.recv(1)
        except OSError:
            time.sleep(_AGAIN_S)


def _is_of_this_user(other: socket.socket) -> bool:
    credentials = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.getuid())


def _leave_serving_to_the_parent() -> None:
    """A forked process would keep the name and answer nobody."""
    while _serving:
        _serving.pop().close()


os.register_at_fork(after_in_child=_leave_serving_to_the_parent)
