"""Signals: everything that a rule can ask about a run, filled once from the evidence.

Evidence that does not exist is a value: `kills` is `no counter`, amounts are 0, texts are empty. A rule never
asks whether a file was there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memory.explain.evidence.gpu_message import GpuMessage
from memory.explain.evidence.growth import Leaking, Rise
from memory.explain.evidence.own_error import OwnError
from memory.explain.evidence.process_memory import Neighbours, Victim, Workers
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
    name: str = ""
    """The process that it names."""
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
    """Page cache in the last sample before a kill, if it filled the limit."""


@dataclass(frozen=True)
class SharedMemory:
    """Shared memory and /dev/shm, when U or /dev/shm was highest."""

    held_bytes: int = 0
    share: float = 0.0
    """Share of U."""
    mapped_by: int = 0
    """Processes that have a good part of it mapped."""
    is_of_workers: bool = False
    """Files in /dev/shm that children have mapped, the main process in part: batches on their way."""
    before_bytes: int = 0
    """In /dev/shm before the run began."""
    full: float = 0.0
    """Most that was used of /dev/shm, 0 to 1; 0 if it is not known."""
    total_bytes: int = 0
    used_bytes: int = 0


@dataclass(frozen=True)
class Signals:
    """Everything that the rules ask. A field of the same name in `RunFacts` has the same meaning."""

    facts: RunFacts
    """The evidence, for lines that are shown and for advice; no condition reads it."""

    # How it ended
    end: str = "unknown"
    """`running`, `waiting` in the queue, `ok`, `error` (an exit status of its own), `signal`, `lost` (no word
    of its end), `log only`, `no evidence`."""
    how_it_ended: str = ""
    exit_code: int = 0
    signal: str = ""
    signal_is_certain: bool = False
    asked_by: str = ""
    """Signal that asked the run to stop, as the supervisor received it or the run ended by it."""
    state: str = ""
    """In status.json: `failed`, `cancelled`, ..."""
    timed_out_by: str = ""
    """`timeout`, `timeout in a script`, `cpu limit`."""
    has_run: bool = False
    """Files of the run itself, not a log or accounting alone."""
    has_samples: bool = False
    is_ours: bool = False
    job_id: str = ""

    # Counters of the kernel
    kills: str = "no counter"
    """For memory in the run's cgroup while it lived: `counted`, `none`, `no counter`."""
    kill_count: int = 0
    limit_hits: int = 0
    victim: Victim | None = None
    victim_is_named: bool = False

    # Limits
    limit_bytes: int = 0
    limit_at: str = "unknown"
    """`cgroup`, `host` (none below the machine's memory), `unseen` (its cgroup could not be read), `request`
    (--mem of a job that left nothing else), `unknown`."""
    peak_share: float = 0.0
    """Highest U of the limit; of a job that left nothing else its MaxRSS of its request."""
    nearness: str = "unknown"
    """`near` (85% or more), `far`, `unknown`."""
    last_share: float = 0.0
    limit_above: str = ""
    """A cgroup above that has a limit of its own, if the run's limit was not the one that was met."""
    unseen_cgroup: str = ""
    """The cgroup that counts the run's memory, if no file of it could be read."""
    host_bytes: int = 0
    host_left_bytes: int = 0
    """The least that the machine had available in the last minute."""
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
    cache_per_anon: float = 0.0
    """Bytes of page cache that came with each byte of anon, in a quick rise."""
    shared: SharedMemory = SharedMemory()
    usage_share: float = 0.0
    """Highest usage, page cache included, of the limit."""
    swap_rose_bytes: int = 0
    high_events: int = 0
    """Allocations above memory.high, which the kernel delays."""

    # What was said
    error: OwnError = OwnError()
    gpu: GpuMessage | None = None
    gpu_leak: Leaking | None = None
    """Leak of tensors on the GPU, by the run's own watch."""
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
