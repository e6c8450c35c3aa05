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


# A GPU without room


def _gpu(s: Signals) -> str:
    return _error(s, "gpu_handle", most=LIKELY) or _error(s, "gpu_message", "gpu_oom", "gpu_cache")


def _gpu_cause(s: Signals) -> tuple[str | None, str]:
    """The cause of a GPU without room, and what says so."""
    if s.gpu_leak_bytes:
        return "leak", f"tensors on it grew by {format_bytes(s.gpu_leak_bytes)} a step (memory.jsonl)"
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


# Refused memory


def _refused(s: Signals) -> str:
    return _error(s, "maps_used_up", "memory_error")


def _by_rlimit(s: Signals) -> str:
    return (_refused(s) or _error(s, "no_thread", most=LIKELY)) if s.rlimits else NO


def _says_refused(s: Signals) -> str:
    if s.error.kind == "maps_used_up":
        why = "and no rlimit is set: too many maps (vm.max_map_count), or no overcommit"
    else:
        why = f"because {' and '.join(s.rlimits)}" if s.rlimits else "and no rlimit is known"
    return f"An allocation was refused, {why}"


# /dev/shm and disks


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


def _bus(s: Signals, *, had_room: bool) -> str:
    """SIGBUS that is not known to be of /dev/shm, which was seen half empty or was not seen."""
    seen_with_room = s.shared.full <= 0.5 and s.shared.total_bytes > _SMALL_SHM_BYTES
    if not _is_bus(s) or _shm(s) or s.end == "ok" or seen_with_room != had_room:
        return NO
    return LIKELY if had_room and (s.signal_is_certain or s.error) else UNKNOWN


# Workers, crashes, everything else


def _worker_killed(s: Signals, by: str) -> str:
    if s.kills == "counted":
        return _error(s, "worker_killed", "worker_died") if by == "kernel" else NO
    is_known = s.kills == "none" or s.nearness == "far"
    if by == "sender":
        return _error(s, "worker_killed", most=LIKELY) if is_known else NO
    return _error(s, "worker_killed", most=UNKNOWN) if by == "unknown" and not is_known else NO


def _failed(s: Signals) -> str:
    if s.signal in _CRASHES:
        return NO
    is_log = s.end in ("log only", "unknown")
    has_own_row = is_log and s.error.kind not in ("", "exception") and bool(s.error.exception)
    by_log = is_log and (s.error.kind == "exception" or bool(s.says("crash")))
    by_status = (s.end == "error" and not s.says_cancelled) or s.says_failed
    unsure = s.timed_out_by.startswith("timeout") or has_own_row
    return if_so(by_status or by_log or has_own_row, UNKNOWN if unsure else LIKELY)


def _says_failed(s: Signals) -> str:
    if s.says("crash") and s.end in ("log only", "unknown"):
        return "A process of it crashed"
    if s.error.kind == "exception" and s.end != "log only":
        return "It ended by an error of its own, not for memory"
    if s.rlimits and not s.error:
        return (
            "It ended by an error of its own; a limit of its own (ulimit -v, -d) may have refused it memory"
        )
    return "It ended by an error of its own" + ", and no kill for memory was counted" * (s.kills == "none")


_AT_END = "ended stage stack"
_CUT = "a file that was mapped has been cut short since, or its disk is full or failed"
ROWS = (
    TableRow(
        "gpu_full",
        "the last error is of a full GPU. leak: the run's own watch saw tensors grow. neighbours: others "
        "hold a "
        "quarter. fragmentation: torch's pool has idle what was asked for, or a quarter. size: one tensor "
        "is larger",
        _gpu,
        lambda s: "The GPU had no room"
        + (f" for {format_bytes(s.gpu.asked_bytes)} more" if s.gpu and s.gpu.asked_bytes else "")
        + f": {_gpu_cause(s)[1]}",
        "oom_gpu", lambda s: _gpu_cause(s)[0], "error gpu ended stage", "room_on_gpu", "main",
    ),
    TableRow(
        "shm_full", "the last error names /dev/shm, or it was full or small with SIGBUS or ENOSPC",
        _shm, "/dev/shm was full: shared memory had no page left",
        "shm_full", "shmem", f"error shm {_AT_END}", "no_workers larger_shm", "signalled",
    ),
    TableRow(
        "truncated_file", "SIGBUS, while /dev/shm was seen with room, and the run put nothing there",
        lambda s: _bus(s, had_room=True), f"SIGBUS ended it, though /dev/shm had room: {_CUT}",
        "failed", "truncated_file", f"error shm {_AT_END}", "whole_files", "signalled",
    ),
    TableRow(
        "bus_error", "SIGBUS, and /dev/shm was not seen: it was full, or a mapped file was cut short",
        lambda s: _bus(s, had_room=False), f"SIGBUS ended it: /dev/shm was full, or {_CUT}",
        "shm_full", "shmem", f"error shm {_AT_END}", "no_workers larger_shm whole_files", "signalled",
        or_else=lambda s: ("truncated_file",),
    ),
    TableRow(
        "disk_full", "the last error is ENOSPC or EDQUOT, and /dev/shm was not full",
        lambda s: NO if _shm(s) else _error(s, "disk_full", most=CERTAIN if s.error.names_file else LIKELY),
        lambda s: "A disk or a quota is full" if s.error.names_file else "A disk, a quota or /dev/shm is "
        "full",
        "failed", "disk_full", "error ended", "room_on_disk",
    ),
    TableRow(
        "refused_by_rlimit",
        "the last error is of refused memory or threads, and a limit of the process is set (ulimit -v, -d)",
        _by_rlimit, _says_refused,
        "memory_error", "rlimit", "error ended before_end", "lift_rlimit smaller_steps no_workers", "main",
    ),
    TableRow(
        "memory_refused", "the last error is of refused memory, and no limit of the process is set",
        lambda s: NO if s.rlimits else _refused(s), _says_refused,
        "memory_error", None, "error ended before_end", "after_refusal", "main",
    ),
    TableRow(
        "pinned_memory", "`CUDA error: out of memory` out of pin_memory or cudaHostAlloc",
        lambda s: _error(s, "pinned_memory", most=LIKELY),
        "The host refused page-locked memory (cudaHostAlloc, in pin_memory), unless an earlier error of "
        "the GPU "
        "was reported late",
        "memory_error", None, "error ended before_end", "pinned_memory", "main",
    ),
    *(
        TableRow(
            name, sign, lambda s, by=by: _worker_killed(s, by),  # type: ignore[misc]
            f"A worker process was killed {how}",
            verdict, None, "error counters ended", "read_in_main", "child",
        )
        for name, verdict, by, sign, how in (
            ("worker_killed_for_memory", "oom_cgroup", "kernel",
             "the last error says that a worker was killed, and the kernel counted kills",
             "for memory, and the main process failed for it"),
            ("worker_killed", "killed_from_outside", "sender",
             "the last error says that a worker was killed by SIGKILL; counters or U speak against memory",
             "by SIGKILL, and not by the kernel for memory"),
            ("worker_killed_by_unknown", "unknown", "unknown",
             "the last error says that a worker was killed, and no counter could be read",
             "by SIGKILL. The kernel, for memory, or a person or a service: nothing says which"),
        )
    ),
    TableRow(
        "worker_died", "the last error says that a worker died, and not how",
        lambda s: _error(s, "worker_died", most=LIKELY) if s.kills != "counted" else NO,
        "A worker process died", "failed", None, "error counters ended", "read_in_main", "child",
    ),
    TableRow(
        "ended_by_signal", "SIGSEGV, SIGABRT, SIGFPE or any other signal that no other row is for",
        lambda s: if_so(s.signal not in _OTHER_ROWS),
        lambda s: f"It {'crashed' if s.signal in _CRASHES else 'was ended'} by {s.signal}",
        "failed", "none", "own_error counters peak stage", "read_log", "main",
    ),
    TableRow(
        "failed", "an exit status other than 0, the state `failed`, or a log that ends by an exception",
        _failed, _says_failed, "failed", "none", "own_error counters peak stage", "read_log", "main",
    ),
)  # fmt: skip
