"""Ends by the run's own error: a full GPU, refused memory, /dev/shm or disk, a dead worker, a crash."""

from __future__ import annotations

from experiment_utils.quantities import format_bytes
from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, UNKNOWN, TableRow, at_most, if_so
from memory.explain.signals import ASKING, Signals

_CRASHES = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")
_OTHER_ROWS = (*ASKING, "SIGXCPU", "SIGKILL", "SIGBUS", "")
_SMALL_SHM_BYTES = 64 << 20
"""Size of /dev/shm in a container by default."""


def _error(s: Signals, *kinds: str, most: str = CERTAIN) -> str:
    """Confidence of an error that ended the run; of a log alone its end is not known."""
    if s.error.kind not in kinds or s.end == "ok":
        return NO
    return at_most(most, s.error.confidence, CERTAIN if s.died else LIKELY)


def _gpu(s: Signals) -> str:
    return _error(s, "gpu_handle", most=LIKELY) or _error(s, "gpu_message", "gpu_oom", "gpu_cache")


def _gpu_cause(s: Signals) -> tuple[str | None, str]:
    """The cause of a GPU without room, and what says so."""
    if s.gpu_leak:
        return "leak", s.gpu_leak.line
    if s.gpu is None:
        return None, "no number says what held it"
    asked, idle, total = s.gpu.asked_bytes, s.gpu.unallocated_bytes, s.gpu.total_bytes
    held = s.gpu.allocated_bytes
    if total and s.gpu.others_bytes > 0.25 * total:
        return "neighbours", f"other processes hold {format_bytes(s.gpu.others_bytes)} of it"
    if asked and idle and idle >= min(max(asked, 0.1 * (held or 0)), 0.25 * (held or 4 * asked)):
        return "fragmentation", f"torch holds {format_bytes(idle)} that no tensor uses, in pieces too small"
    if asked and total and asked > total:
        return "size", "this one tensor is larger than the device"
    return ("growth", f"tensors held {format_bytes(held)} already") if held else (None, "no number says more")


def _says_gpu(s: Signals) -> str:
    more = f" for {format_bytes(s.gpu.asked_bytes)} more" if s.gpu and s.gpu.asked_bytes else ""
    return f"The GPU had no room{more}: {_gpu_cause(s)[1]}"


def _refused(s: Signals) -> str:
    by_limit = _error(s, "no_thread", most=LIKELY) if s.rlimits else NO
    return by_limit or _error(s, "maps_used_up", "memory_error")


def _says_refused(s: Signals) -> str:
    if s.error.kind == "maps_used_up":
        return "An allocation was refused: too many maps (vm.max_map_count), or no overcommit"
    why = f"because {' and '.join(s.rlimits)}" if s.rlimits else "and no rlimit is known"
    return f"An allocation was refused, {why}"


def _is_bus(s: Signals) -> bool:
    return s.signal == "SIGBUS" or s.error.kind in ("bus_error", "worker_bus")


def _shm(s: Signals) -> str:
    """/dev/shm was full: an error that names it, or SIGBUS or ENOSPC while it was seen full."""
    is_full = s.shared.full >= 0.9
    if s.end == "ok":
        return NO
    if s.error.kind == "shm_full":
        return _error(s, "shm_full", most=CERTAIN if is_full else LIKELY)
    if is_full and _is_bus(s):
        return CERTAIN if s.signal_is_certain else LIKELY
    if is_full and not s.error.names_file:
        return _error(s, "disk_full", most=LIKELY)
    is_small = not s.shared.full or s.shared.total_bytes <= _SMALL_SHM_BYTES
    return if_so(s.error.kind == "worker_bus" and is_small)


def _bus(s: Signals) -> str:
    """SIGBUS that is not known to be of /dev/shm, which was seen half empty or was not seen."""
    if not _is_bus(s) or _shm(s) or s.end == "ok":
        return NO
    return LIKELY if _had_room(s) and (s.signal_is_certain or s.error) else UNKNOWN


def _had_room(s: Signals) -> bool:
    return s.shared.full <= 0.5 and s.shared.total_bytes > _SMALL_SHM_BYTES


def _worker(s: Signals) -> str:
    """A worker died; the kernel's kills for memory have rows of their own."""
    if s.kills == "counted":
        return NO
    is_known = s.kills == "none" or s.nearness == "far"
    return _error(s, "worker_died", most=LIKELY) or _error(
        s, "worker_killed", most=LIKELY if is_known else UNKNOWN
    )


def _worker_verdict(s: Signals) -> str:
    if s.error.kind == "worker_died":
        return "failed"
    return "killed_from_outside" if s.kills == "none" or s.nearness == "far" else "unknown"


_WORKER = {
    "failed": "A worker process died",
    "killed_from_outside": "A worker process was killed by SIGKILL, and not by the kernel for memory",
    "unknown": "A worker process was killed by SIGKILL. The kernel, for memory, or a person or a service: "
    "nothing says which",
}


def _failed(s: Signals) -> str:
    if s.signal in _CRASHES:
        return NO
    is_log = s.end in ("log only", "unknown")
    has_own_row = is_log and s.error.kind not in ("", "exception") and bool(s.error.exception)
    by_log = is_log and (s.error.kind == "exception" or bool(s.says("crash")))
    by_status = (s.end == "error" and s.state != "cancelled") or s.state == "failed"
    unsure = s.timed_out_by.startswith("timeout") or has_own_row
    return if_so(by_status or by_log or has_own_row, UNKNOWN if unsure else LIKELY)


def _says_failed(s: Signals) -> str:
    if s.says("crash") and s.end in ("log only", "unknown"):
        return "A process of it crashed"
    if s.error.kind == "exception" and s.end != "log only":
        return "It ended by an error of its own, not for memory"
    limited = "; a limit of its own (ulimit -v, -d) can have refused it memory" * bool(
        s.rlimits and not s.error
    )
    return "It ended by an error of its own" + (
        limited or ", and no kill for memory was counted" * (s.kills == "none")
    )


_AT_END = "ended stage stack"
ROWS = (
    TableRow(
        "gpu_full",
        "the last error is of a full GPU. leak: the run's own watch saw tensors grow. neighbours: others "
        "hold a "
        "quarter. fragmentation: torch's pool has idle what was asked for, or a quarter. size: one tensor is "
        "larger",
        _gpu, _says_gpu,
        "oom_gpu", lambda s: _gpu_cause(s)[0], "error gpu ended stage",
        "room_on_gpu smaller_steps_on_gpu", "main",
    ),
    TableRow(
        "shm_full", "the last error names /dev/shm, or it was full or small with SIGBUS or ENOSPC",
        _shm, "/dev/shm was full: shared memory had no page left",
        "shm_full", "shmem", f"error shm {_AT_END}", "no_workers stale_files larger_shm", "signalled",
    ),
    TableRow(
        "bus_error", "SIGBUS: a mapped file was cut short; or /dev/shm was full, unless it was seen with "
                     "room",
        _bus,
        lambda s: f"SIGBUS ended it{', though /dev/shm had room' * _had_room(s)}: "
        f"{'/dev/shm was full, or ' * (not _had_room(s))}a file that was mapped has been cut short since, or "
        "its disk is full or failed",
        lambda s: "failed" if _had_room(s) else "shm_full",
        lambda s: "truncated_file" if _had_room(s) else "shmem",
        f"error shm {_AT_END}", "no_workers larger_shm whole_files", "signalled",
        or_else=lambda s: () if _had_room(s) else ("truncated_file",),
    ),
    TableRow(
        "disk_full", "the last error is ENOSPC or EDQUOT, and /dev/shm was not full",
        lambda s: NO if _shm(s) else _error(s, "disk_full", most=CERTAIN if s.error.names_file else LIKELY),
        lambda s: f"A disk{' or a quota is' if s.error.names_file else ', a quota or /dev/shm is'} full",
        "failed", "disk_full", "error ended", "room_on_disk",
    ),
    TableRow(
        "memory_refused", "the last error is of refused memory; or of threads, and ulimit -v or -d is set",
        _refused, _says_refused,
        "memory_error", lambda s: "rlimit" if s.rlimits else None,
        f"error u {_AT_END}", "after_refusal smaller_steps no_workers", "main",
    ),
    TableRow(
        "pinned_memory", "`CUDA error: out of memory` out of pin_memory or cudaHostAlloc",
        lambda s: _error(s, "pinned_memory", most=LIKELY),
        "The host refused page-locked memory (cudaHostAlloc, in pin_memory), unless an earlier error of the "
        "GPU was reported late",
        "memory_error", None, f"error u {_AT_END}", "pinned_memory", "main",
    ),
    TableRow(
        "worker_died", "the last error says that a worker died, or that SIGKILL ended it; no kill was "
                       "counted",
        _worker, lambda s: _WORKER[_worker_verdict(s)],
        _worker_verdict, None, "error counters ended", "read_in_main", "child",
    ),
    TableRow(
        "ended_by_signal", "SIGSEGV, SIGABRT, SIGFPE or any other signal that no other row is for",
        lambda s: if_so(s.signal not in _OTHER_ROWS),
        lambda s: f"It {'crashed' if s.signal in _CRASHES else 'was ended'} by {s.signal}",
        "failed", "none", "own_error counters peak stage", "read_log", "main",
    ),
    TableRow(
        "failed", "an exit status other than 0, the state `failed`, or a log that ends by an exception",
        _failed, _says_failed,
        "failed", "none", "own_error crash slurm_row counters peak stage", "read_log", "main",
    ),
)  # fmt: skip
