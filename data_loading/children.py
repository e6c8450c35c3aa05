"""Child processes with one task each, and what passes between them and the parent.

What passes lies in files in memory that both have open. A socket only says which: one byte a message,
so that no side ever waits for the other to read.
"""

from __future__ import annotations

import faulthandler
import math
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from experiment_utils.errors import UserError
from memory import Process, format_bytes, snapshot
from memory.process import read_process

_ROOT = Path(__file__).resolve().parents[1]
_KEPT_BYTES = 4 << 20
"""What a mailbox keeps of its memory from one object to the next."""

_POLL_S = 0.001

_NOT_HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Ctrl-C reaches the whole group, and what some sites' Slurm sends a job reaches all its processes; what then
happens to the children is for the parent to say. They end when it does.
"""

_ONE_THREAD = {
    "FASTOKENS_BPE_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class WorkerDied(UserError):
    """A child that was to work ended without an answer."""

    code = "worker-died"


class Task(Protocol):
    """What a child does; pickled by the parent."""

    def run(self, channel: Channel) -> None:
        """The child ends when this returns."""
        ...


class Mailbox:
    """A file in memory through which two processes pass one object at a time."""

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = os.memfd_create("highwater")
        self._file = os.fdopen(descriptor, "r+b", buffering=0)

    def fileno(self) -> int:
        return self._file.fileno()

    def put(self, message: Any) -> None:
        self._file.seek(0)
        pickle.dump(message, self._file, protocol=5)

    def get(self) -> Any:
        self._file.seek(0)
        message = pickle.load(self._file)
        if os.fstat(self.fileno()).st_size > _KEPT_BYTES:
            self._file.truncate(0)
        return message

    def close(self) -> None:
        self._file.close()


class Channel:
    """The child's end. Everything raises EOFError or OSError when the parent is gone."""

    def __init__(self, socket: int, mailboxes: list[Mailbox]) -> None:
        self._socket, self._mailboxes = socket, mailboxes

    def take(self) -> tuple[int, Any]:
        """The next message, and the mailbox in which its answer is to lie."""
        box = _read_byte(self._socket)
        return box, self._mailboxes[box].get()

    def answer(self, box: int, message: Any) -> None:
        self._mailboxes[box].put(message)
        os.write(self._socket, bytes([box]))


def _read_byte(descriptor: int) -> int:
    byte = os.read(descriptor, 1)
    if not byte:
        raise EOFError
    return byte[0]


class Child:
    """The parent's end: a process that runs `task`, with so many mailboxes.

    A fresh interpreter, since the parent may have threads, torch and gigabytes; or, `forked`, a copy of this
    one, which is there in milliseconds with all that the task needs, open and mapped.
    """

    def __init__(self, task: Task, mailboxes: int = 1, *, forked: bool = False) -> None:
        self._mailboxes = [Mailbox() for _ in range(mailboxes)]
        self._free = list(range(mailboxes))
        self._seen: Process | None = None
        self._socket, theirs = socket.socketpair()
        self._process: _Process
        if forked:
            _parents_ends.add(self._socket)
            self._process = _Fork(task, theirs, self._mailboxes)
        else:
            self._process = _interpreter(task, theirs, self._mailboxes)
        theirs.close()
        self.note_memory()

    @property
    def pid(self) -> int:
        return self._process.pid

    def give(self, message: Any) -> None:
        """Into a free mailbox. A child that has died is found out by the next `answer`."""
        box = self._free.pop()
        self._mailboxes[box].put(message)
        with suppress(OSError):
            self._socket.send(bytes([box]))

    def fileno(self) -> int:
        return self._socket.fileno()

    def answer(self) -> Any:
        """The next answer, when there is one. Raises EOFError or OSError when the child is dead."""
        box = _read_byte(self.fileno())
        message = self._mailboxes[box].get()
        self._free.append(box)
        return message

    def note_memory(self) -> None:
        """Remember how much it holds; costs 15 microseconds."""
        found = read_process(self.pid)
        if found is not None and found.rss_bytes is not None:
            self._seen = found

    def exit_status(self) -> int:
        """Of a child that has closed its end: it is given a moment to be gone."""
        try:
            return self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def last_seen(self) -> str:
        """`it held 240 MB (peak 262 MB) when last seen`."""
        if self._seen is None:
            return "its memory was never seen"
        held, peak = self._seen.anon_bytes or self._seen.rss_bytes or 0, self._seen.peak_rss_bytes
        return (
            f"it held {format_bytes(held)}" + (f" (peak {format_bytes(peak)})" if peak else "")
        ) + " when last seen"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.close()
        for box in self._mailboxes:
            box.close()


class _Process(Protocol):
    """What is asked of either kind of process; wait raises subprocess.TimeoutExpired."""

    pid: int

    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


def _interpreter(task: Task, theirs: socket.socket, mailboxes: Sequence[Mailbox]) -> _Process:
    work = Mailbox()
    work.put(task)
    numbers = [theirs.fileno(), work.fileno(), *(box.fileno() for box in mailboxes)]
    command = (
        "import signal, sys; "
        f"[signal.signal(number, signal.SIG_IGN) for number in {[*map(int, _NOT_HEEDED)]}]; "
        f"sys.path.insert(0, {str(_ROOT)!r}); "
        f"from data_loading.child_main import main; main({', '.join(map(str, numbers))})"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", command],
        env={**os.environ, **_ONE_THREAD},
        pass_fds=numbers,
        stdin=subprocess.DEVNULL,
    )
    work.close()
    return process


_parents_ends: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""Of forked children: a child that kept those of its siblings would outlive the parent with them."""


class _Fork:
    """A copy of this process that runs a task."""

    def __init__(self, task: Task, theirs: socket.socket, mailboxes: Sequence[Mailbox]) -> None:
        self._status: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                _run_forked(task, theirs, mailboxes)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)

    def wait(self, timeout: float | None = None) -> int:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            else:
                time.sleep(_POLL_S)
        return self._status

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)


def _run_forked(task: Task, theirs: socket.socket, mailboxes: Sequence[Mailbox]) -> None:
    from data_loading.child_main import run

    for number in _NOT_HEEDED:
        signal.signal(number, signal.SIG_IGN)
    faulthandler.disable()  # the parent tells how a child ended
    for ours in list(_parents_ends):
        ours.close()
    run(task, Channel(theirs.fileno(), list(mailboxes)))


def with_news(children: Sequence[Child], timeout_s: float) -> list[Child]:
    """Those that have answered or died, as soon as there is one, or when the time is over."""
    poll = select.poll()
    for child in children:
        poll.register(child, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}
    return [child for child in children if child.fileno() in ready]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def oom_kills() -> int | None:
    """How often the kernel has killed for memory in the cgroup that limits this job."""
    job = snapshot().job
    return None if job is None or job.events is None else job.events.get("oom_kill")


def how_it_died(child: Child, kills_before: int | None) -> str:
    """What is known about the end of a child, in words."""
    status = child.exit_status()
    who = f"process {child.pid}"
    if status >= 0:
        return f"{who} ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    words = f"{who} was killed by {name}"
    if status == -signal.SIGKILL:
        words += f", {_why_killed(kills_before)}"
    if status == -signal.SIGBUS:
        words += ", most likely because a file that it had mapped was truncated"
    return f"{words}; {child.last_seen()}"


def _why_killed(kills_before: int | None) -> str:
    now, job = oom_kills(), snapshot().job
    if now is None or kills_before is None or now <= kills_before:
        return "most likely because the machine or the job ran out of memory"
    limit = f", whose limit is {format_bytes(job.limit_bytes)}" if job and job.limit_bytes else ""
    return f"because the job ran out of memory: {now - kills_before} more OOM kills in its cgroup{limit}"
