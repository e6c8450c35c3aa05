"""Child processes that get every signal this process gets, and that it never leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any

from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE, FAILED, INTERRUPTED, LEASE_LOST, USER_ERROR
from experiment_utils.modules import entry_words
from memory.supervision.options import command_line as supervised
from memory.supervision.outcome import signal_name
from slurm.plans.gpu_slots import GpuSlot
from training.attempt.run_files import next_attempt, read_config, read_status
from training.distributed.place import place_of
from training.interrupt import SIGNALS, is_left_alone

CORE = entry_words("core")
POLL_S = 0.05


def run_command(
    folder: Path, *, quiet: bool, is_brief: bool = False, members: Sequence[Path] = ()
) -> list[str]:
    """Command of a run's process, or of its supervisor, which exits as the run does (`exit_status`).

    The run checkpoints and stops when this process is gone. It has no supervisor with memory.supervise=false.

    Args:
        folder: of the run. One of several ranks runs if the environment says so
            (`training.distributed.place`).
        quiet: log.txt alone gets its lines.
        is_brief: the terminal gets the few that a run of a sweep needs.
        members: runs of an ensemble, which one process trains; its supervisor writes into `folder`.
    """
    flags = ["--quiet"] if quiet else ["--brief"] if is_brief else []
    folders = [str(member) for member in members] or [str(folder)]
    if is_supervised(folder):
        run = [sys.executable, *CORE, *folders, *flags]
        own = place_of(folder.name).folder(folder)
        own.mkdir(exist_ok=True)
        return supervised(run, own, attempt=attempt_of_start(folder), parent=os.getpid())
    return [sys.executable, *CORE, *folders, "--parent", str(os.getpid()), *flags]


def attempt_of_start(folder: Path) -> int:
    """Number of the attempt that a process started now makes; 1 if the run's files are damaged."""
    try:
        return next_attempt(folder)
    except UserError:  # the run reports it
        return 1


def is_supervised(folder: Path) -> bool:
    """Whether a run has a supervisor, which needs Linux."""
    if not sys.platform.startswith("linux") or read_status(folder).get("state") == "done":
        return False
    try:
        memory = read_config(folder).get("memory")
    except Exception:  # the run says what is wrong with it
        return True
    return not isinstance(memory, dict) or memory.get("supervise", True) is not False


@dataclass
class Child:
    """A run's process."""

    process: subprocess.Popen[bytes]
    slot: int
    errors: IO[bytes] | None
    """Its stderr, if it has no terminal."""
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """Exit status of the run; INTERRUPTED also if SIGINT ended it early, FAILED for other signals."""
        code = self.process.returncode
        if code in (DONE, FAILED, USER_ERROR, INTERRUPTED, LEASE_LOST):
            return code
        return INTERRUPTED if code == -signal.SIGINT else FAILED

    @property
    def killed_by(self) -> str | None:
        """Name of the signal that ended it, if one did."""
        return signal_name(-self.process.returncode) if self.process.returncode < 0 else None

    @property
    def seconds(self) -> float:
        return self.ended_s - self.started_s

    def last_error(self) -> str | None:
        """Last line that it wrote to stderr, if that was kept."""
        if self.errors is None:
            return None
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), None)


class Children:
    """Within the `with` block SIGNALS are passed on to the children, each time; blocked ones are let in.

    `requested` is the first signal that came: nothing more should be started then.
    """

    def __init__(
        self,
        slots: int = 1,
        *,
        shares_cores: bool = True,
        kept: Collection[signal.Signals] = (),
        gpus: Sequence[GpuSlot] = (),
    ) -> None:
        """Prepare a number of slots.

        Args:
            slots: children that run in parallel.
            shares_cores: each runs on its share of the cores of this process.
            kept: signals that are not passed on.
            gpus: the GPU that each slot sees; without any it sees what this process sees.
        """
        self.slots = slots
        self._gpus = gpus
        self._kept = frozenset(kept)
        self._shares = slots if shares_cores else 1
        self.requested: int | None = None
        self._running: list[Child] = []
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Children:
        for number in SIGNALS:
            if not is_left_alone(number):
                self._previous[number] = signal.signal(number, self._pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for child in self._running:
                child.process.send_signal(signal.SIGTERM)
        while self._running:
            self.wait()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @property
    def free(self) -> bool:
        """Whether one more is allowed to start."""
        return self.requested is None and len(self._running) < self.slots

    def start(self, command: list[str], *, quiet: bool) -> Child:
        """Start one in a free slot. quiet: it gets no terminal, and its stderr is kept."""
        taken = {child.slot for child in self._running}
        slot = next(slot for slot in range(self.slots) if slot not in taken)
        errors = tempfile.TemporaryFile() if quiet else None  # noqa: SIM115  lives as long as the child
        sys.stdout.flush()
        with _on_cores(slot if self._shares > 1 else 0, self._shares), _signals_held_back():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if quiet else None,
                stdout=subprocess.DEVNULL if quiet else None,
                stderr=errors,
                env={**os.environ, **self._gpus[slot].environment} if self._gpus else None,
            )
        child = Child(process, slot, errors)
        self._running.append(child)
        if self.requested is not None and self.requested not in self._kept:  # while the child was being made
            process.send_signal(self.requested)
        return child

    def wait(self) -> Child:
        """Wait for the next child that ends, and return it."""
        while True:
            for child in self._running:
                if child.process.poll() is not None:
                    child.ended_s = time.monotonic()
                    self._running.remove(child)
                    return child
            if len(self._running) == 1:
                self._running[0].process.wait()
            else:
                time.sleep(POLL_S)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.requested = self.requested or number
        for child in self._running if number not in self._kept else ():
            child.process.send_signal(number)


@contextlib.contextmanager
def _signals_held_back() -> Any:
    """A child that is started in the block has these signals blocked until it is ready to handle them.

    Otherwise one that comes while it imports ends it without a log line (`training.interrupt.Interrupt`).
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _on_cores(slot: int, slots: int) -> Any:
    """Let a child that is started in the block use the slot's share of the cores."""
    if slots == 1 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, share_of(all_cores, slot, slots))
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def share_of(cores: Iterable[int], slot: int, slots: int) -> list[int]:
    """Cores of a slot; if there are more slots than cores, some share one."""
    of_all = sorted(cores)
    first, end = (place * len(of_all) // slots for place in (slot, slot + 1))
    return of_all[first:end] or [of_all[slot % len(of_all)]]
