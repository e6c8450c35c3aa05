"""What every process of a run is doing: Python stacks where it can answer, else what the kernel knows."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory.files.procfs import list_folder, read_file
from memory.measure.process import Process, read_descendants, read_process
from memory.record.stack_requests import STACKS_SIGNAL, Asking, hidden_path, shown_path

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a disk or a file server, cannot be interrupted",
    "T": "stopped (kill -CONT goes on)",
    "t": "stopped by a debugger",
    "Z": "ended, not yet reaped by its parent",
    "I": "idle",
    "X": "dead",
}
_CALLS = {
    0: "read", 1: "write", 7: "poll", 9: "mmap", 16: "ioctl", 17: "pread64", 23: "select", 35: "nanosleep",
    43: "accept", 44: "sendto", 45: "recvfrom", 47: "recvmsg", 61: "wait4", 74: "fsync", 202: "futex",
    230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 270: "pselect6", 271: "ppoll",
    281: "epoll_pwait",
}  # fmt: skip
"""Those in which a process is found waiting, by number on x86-64 (syscalls(2))."""


_JUST_MADE_S = 0.1
"""A process that is just being made has its parent's handler, until it executes another program."""


@dataclass(frozen=True)
class Doing:
    """One process. stacks: Python's, of all its threads; None: `why`. kernel: what /proc tells instead."""

    pid: int
    name: str
    command: str
    anon_bytes: int | None
    stacks: str | None = None
    why: str | None = None
    kernel: dict[str, Any] = field(default_factory=dict)


def ask_all(pid: int, folder: str, attempt: int, proc: str = "/proc") -> list[Doing]:
    """Ask the process and its descendants, the main one first. Takes up to 2 s for each that keeps silent."""
    main = read_process(pid, proc)
    if main is None:
        return []
    everyone = [main, *sorted(read_descendants(main, proc), key=lambda one: -(one.anon_bytes or 0))]
    time.sleep(_JUST_MADE_S)
    answers = _answers(everyone, folder, attempt)
    found = []
    for one in everyone:
        text, why = answers.get(
            one.pid, (None, "its program does not answer (memory.record.black_box.install makes it)")
        )
        kernel = kernel_knows(one.pid, proc) if text is None else {}
        found.append(Doing(one.pid, one.name, _command(one.pid, proc), one.anon_bytes, text, why, kernel))
    return found


def _answers(everyone: list[Process], folder: str, attempt: int) -> dict[int, tuple[str | None, str | None]]:
    places = (Path(place(folder, attempt)) for place in (hidden_path, shown_path))
    path = next((place for place in places if place.exists()), None)
    if path is None or STACKS_SIGNAL is None:
        return {}
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        asking = Asking(
            str(path),
            [(one.pid, f"== {when} asked: {one.pid} {one.name} ==") for one in everyone],
            STACKS_SIGNAL,
        )
    except OSError as error:
        return {one.pid: (None, f"{path} cannot be written: {error.strerror}") for one in everyone}
    while not asking.step():
        time.sleep(0.005)
    return {
        answer.pid: (_main_first(answer.text.strip("\n")) if answer.text else None, answer.why or None)
        for answer in asking.answers
    }


def _main_first(stacks: str) -> str:
    """The oldest thread first, which is the main one; faulthandler has it last."""
    return "\n\n".join(reversed(stacks.split("\n\n")))


def kernel_knows(pid: int, proc: str = "/proc") -> dict[str, Any]:
    """state, what it waits in (wchan, and the system call), its kernel stack where that may be read, threads.

    Source: proc(5). wchan and syscall need the rights of a debugger (ptrace_scope); the rest is left out.
    """
    found: dict[str, Any] = {}
    stat = (read_file(f"{proc}/{pid}/stat") or b"").decode(errors="replace")
    letter = stat.rpartition(")")[2].split()[:1]
    if letter:
        found["state"] = f"{letter[0]} ({_STATES.get(letter[0], 'unknown')})"
    wchan = (read_file(f"{proc}/{pid}/wchan") or b"").decode(errors="replace").strip("\0\n ")
    if wchan and wchan != "0":
        found["waits_in"] = wchan
    call = (read_file(f"{proc}/{pid}/syscall") or b"").decode(errors="replace").split()
    if call and call[0].isdigit():
        number = int(call[0])
        known = _CALLS.get(number) if platform.machine() == "x86_64" else None
        found["system_call"] = f"{known} ({number})" if known else number
    stack = (read_file(f"{proc}/{pid}/stack") or b"").decode(errors="replace").split("\n")
    frames = [line.partition("] ")[2] for line in stack if "] " in line]
    if frames:
        found["kernel_stack"] = frames[:12]
    threads = list_folder(f"{proc}/{pid}/task")
    if threads:
        found["threads"] = len(threads)
    return found


def _command(pid: int, proc: str) -> str:
    content = read_file(f"{proc}/{pid}/cmdline") or b""
    return " ".join(content.replace(b"\0", b" ").decode(errors="replace").split())[:200]
