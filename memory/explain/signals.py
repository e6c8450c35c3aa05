"""Signals: everything that a rule may ask about a run, filled once from the evidence.

Evidence that does not exist is a value: `kills` is `no counter`, amounts are 0, texts are empty. A rule
never asks
whether a file was there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memory.explain.evidence.files_read import FilesRead
from memory.explain.evidence.gpu_message import GpuMessage
from memory.explain.evidence.leaks_seen import Leaking
from memory.explain.evidence.own_error import OwnError
from memory.explain.evidence.process_memory import (
    Neighbours,
    Victim,
    Workers,
)
from memory.explain.evidence.rise import Rise
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.slurm_rows import SlurmRows

ASKING = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
"""Signals that ask a program to stop."""


@dataclass(frozen=True)
class Said:
    """A line that a manager wrote: Slurm, the kernel, a container runtime, a daemon."""

    line: str = ""
    source: str = ""
    """The file that has it."""
    pid: int = 0
    name: str = ""
    is_sure: bool = True
    """It names a process or job of this run, or there is nothing else that could say more."""

    def __bool__(self) -> bool:
        return bool(self.line)


@dataclass(frozen=True)
class Parts:
    """Bytes of U by kind, at the highest U."""

    u: int = 0
    main: int = 0
    """Anon of the main process."""
    kernel: int = 0
    page_tables: int = 0
    locked: int = 0
    """Page cache that is locked in memory."""
    cache_before_kill: int = 0
    """Page cache at the last look before a kill, if it filled the limit."""


@dataclass(frozen=True)
class SharedMemory:
    """Shared memory and /dev/shm, when U or /dev/shm was highest."""

    share: float = 0.0
    """Share of U."""
    mapped_by: int = 0
    """Processes that have a good part of it mapped."""
    is_of_workers: bool = False
    """Most is mapped by children, each a part of its own: batches on their way."""
    before_bytes: int = 0
    """In /dev/shm before the run began."""
    full: float = 0.0
    """Most that was used of /dev/shm, 0 to 1; 0 if it is not known."""
    total_bytes: int = 0
    used_bytes: int = 0


@dataclass(frozen=True)
class PressureSigns:
    """Signs of a cgroup that drops pages and reads them again, over the looks at its limit."""

    seconds: float = 0.0
    refaulted_bytes_per_s: float = 0.0
    stalled_share: float = 0.0
    faults_per_s: float = 0.0
    high_events: int = 0
    swap_rose_bytes: int = 0
    usage_share: float = 0.0
    """Highest usage, page cache included, of the limit."""
    rss_bytes: int = 0
    """Highest sum of RSS, mapped files included."""
    rss_files_bytes: int = 0


@dataclass(frozen=True)
class Signals:
    """All that the rules ask."""

    facts: RunFacts
    """The evidence, for lines that are shown and for advice; no condition reads it."""

    # How it ended
    end: str = "unknown"
    """`running`, `waiting`, `ok`, `error` (an exit status of its own), `signal`, `lost` (no word of its end),
    `log only`, `no evidence`."""
    exit_code: int = 0
    signal: str = ""
    signal_is_certain: bool = False
    """The kernel reported it of the main process. Not certain: an exit code of 128 + n, as shells pass it on.
    """
    asked_by: str = ""
    """Signal that asked the run to stop, as the supervisor received it or the run ended by it."""
    asked_from: str = ""
    """Name of the process that sent it."""
    says_cancelled: bool = False
    """status.json says cancelled, or Slurm's row ended by a signal that asks."""
    is_orphan: bool = False
    """Its supervisor vanished: SIGTERM may come of that."""
    stopped_itself: bool = False
    """It was asked to stop, and exited with a status other than 0."""
    timed_out_by: str = ""
    """`timeout`, `timeout by signal`, `timeout in a script`, `cpu limit`, `job end`."""
    stage: str = ""
    has_run: bool = False
    """Files of the run itself, not a log or accounting alone."""
    has_samples: bool = False
    is_ours: bool = False
    """A run of experiments.py."""
    says_failed: bool = False
    """status.json says failed."""

    # Counters of the kernel
    kills: str = "no counter"
    """For memory in the run's cgroup while it lived: `counted`, `none`, `no counter`."""
    kill_count: int = 0
    group_kills: int = 0
    limit_hits: int = 0
    never_at_limit: bool = False
    """Killed for memory while the known limit was never met."""
    lived_on_s: float = 0.0
    """Seconds that the main process was seen alive after the last kill; 0 if it was not."""
    parent_killed: bool = False
    """A cgroup above counted kills, the run's own none."""
    limit_is_above: bool = False
    """The limit is that of a cgroup above the run's own."""
    kernel_named: bool = False
    """The kernel's log named the victim to the supervisor, where no counter could be read."""
    victim: Victim | None = None
    victim_is_named: bool = False
    victim_vanished_then: bool = False
    """A child vanished as the counter rose."""

    # Limits
    limit_bytes: int = 0
    limit_at: str = "unknown"
    """`cgroup`, `host` (none below the machine's memory), `unseen` (its cgroup could not be read), `unknown`.
    """
    peak_share: float = 0.0
    """Highest U of the limit of that moment."""
    nearness: str = "unknown"
    """`near` (85% or more), `far`, `unknown`."""
    last_share: float = 0.0
    host_is_short: bool = False
    peak_of_host: float = 0.0
    """Highest U of the machine's memory; 0 if that is not known."""
    needed_bytes: int = 0
    """The run's own estimate of its peak."""
    has_made_a_step: bool = False
    rlimits: tuple[str, ...] = ()
    """Limits of the process on its memory: `RLIMIT_AS (ulimit -v) is 2.0 GB`."""

    # What U was made of, and how it moved
    parts: Parts = Parts()
    rise: Rise | None = None
    rose_by: str = ""
    """The part that rose most: `anon`, `shmem`, `kernel`, `locked`."""
    leak: Leaking | None = None
    workers: Workers = Workers()
    neighbours: Neighbours = Neighbours()
    files: FilesRead = FilesRead()
    shared: SharedMemory = SharedMemory()
    pressure: PressureSigns = PressureSigns()

    # What was said
    error: OwnError = OwnError()
    gpu: GpuMessage | None = None
    gpu_leak_bytes: int = 0
    said: dict[str, Said] = field(default_factory=dict)
    """By kind of `log_patterns.MANAGERS`."""
    slurm: SlurmRows = SlurmRows()

    def says(self, kind: str) -> Said:
        """The line of a manager; an empty one if it said nothing."""
        return self.said.get(kind, Said())

    @property
    def was_killed(self) -> bool:
        """By SIGKILL, or in a way that left no word."""
        return self.signal == "SIGKILL" or self.end == "lost"

    @property
    def died(self) -> bool:
        """It ended, and not well."""
        return self.end in ("error", "signal", "lost")
