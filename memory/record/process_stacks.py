"""Python stacks of every process of a run: its own answer, else py-spy's, else what the kernel knows."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memory.files.procfs import exists, list_folder, read_file
from memory.measure.process import read_descendants, read_process
from memory.record.stack_requests import NO_HANDLER, StackRequests, hidden_path, shown_path

HOW_TO_GET_MORE = "for its stacks: memory.black_box.install() in the program, or `pip install py-spy`"
_NEW_PROCESS_S = 0.1
"""A process that is being created has its parent's handler until it executes another program."""
_PY_SPY_S = 10.0


@dataclass(frozen=True)
class ProcessStacks:
    """One process of a run."""

    pid: int
    name: str
    command: str
    anon_bytes: int | None
    stacks: str | None = None
    """Python stacks of all its threads, the main thread first."""
    why: str | None = None
    """Why there are none, and how to get them."""
    kernel: dict[str, Any] = field(default_factory=dict)
    """Without stacks: `state`, `waits_in`, `threads`, as far as /proc shows them."""


def ask_all(pid: int, folder: str, attempt: int, proc: str = "/proc") -> list[ProcessStacks]:
    """Ask a process and its descendants for their stacks; takes up to 2 s for each that does not answer.

    Args:
        pid: main process of the run.
        folder: the run's.
        attempt: number of the run's attempt.

    Returns:
        The main process first, then those with the most anonymous memory.
    """
    main = read_process(pid, proc)
    if main is None:
        return []
    processes = [main, *sorted(read_descendants(main, proc), key=lambda one: -(one.anon_bytes or 0))]
    time.sleep(_NEW_PROCESS_S)
    answers, silent = _answers([(one.pid, one.name) for one in processes], folder, attempt)
    found = []
    for one in processes:
        stacks = answers.get(one.pid) or _py_spy(one.pid)
        result = ProcessStacks(one.pid, one.name, _command(one.pid, proc), one.anon_bytes, stacks)
        if stacks is None:
            why = f"{silent.get(one.pid, NO_HANDLER)}; {HOW_TO_GET_MORE}"
            result = replace(result, why=why, kernel=_kernel_state(one.pid, proc))
        found.append(result)
    return found


def _answers(
    processes: list[tuple[int, str]], folder: str, attempt: int
) -> tuple[dict[int, str], dict[int, str]]:
    """Stacks by process id, and why others did not answer."""
    path = hidden_path(folder, attempt)
    if not exists(path):
        path = shown_path(folder, attempt)
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        requests = StackRequests(
            path, [(pid, f"== {when} asked: {pid} {name} ==") for pid, name in processes]
        )
    except FileNotFoundError:
        return {}, {}
    except OSError as error:
        return {}, {pid: f"{path} cannot be written: {error.strerror}" for pid, _ in processes}
    while not requests.step():
        time.sleep(0.005)
    # the main thread is the last, as faulthandler writes it
    threads = {pid: text.strip("\n").split("\n\n")[::-1] for pid, text in requests.stacks.items()}
    return {pid: "\n\n".join(stacks) for pid, stacks in threads.items()}, requests.silent


def _py_spy(pid: int) -> str | None:
    """Stacks by py-spy, which reads the memory of a process from outside, without stopping it.

    None if py-spy is not installed, ptrace is not allowed, or the process does not run Python.
    """
    program = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if program is None:
        return None
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PY_SPY_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    _, _, threads = done.stdout.partition("\n\n")  # the process and its Python version come first
    return threads.rstrip("\n") or None if done.returncode == 0 else None


def _kernel_state(pid: int, proc: str) -> dict[str, Any]:
    """State, the kernel function in which it waits, and number of threads (proc(5))."""
    status = (read_file(f"{proc}/{pid}/status") or b"").decode(errors="replace")
    found: dict[str, Any] = {}
    _, is_known, state = status.partition("\nState:\t")
    if is_known:
        found["state"] = state.partition("\n")[0]  # such as `S (sleeping)`
    wchan = (read_file(f"{proc}/{pid}/wchan") or b"").decode(errors="replace").strip("\0\n ")
    if wchan and wchan != "0":
        found["waits_in"] = wchan
    threads = list_folder(f"{proc}/{pid}/task")
    if threads:
        found["threads"] = len(threads)
    return found


def _command(pid: int, proc: str) -> str:
    content = read_file(f"{proc}/{pid}/cmdline") or b""
    return " ".join(content.replace(b"\0", b" ").decode(errors="replace").split())[:200]
