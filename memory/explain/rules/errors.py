"""Ends by the run's own error: refused memory, a full GPU, /dev/shm or disk, a dead worker, a crash."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from experiment_utils.json_values import mapping, text
from experiment_utils.quantities import format_bytes
from memory.explain.evidence.gpu_message import amount_bytes
from memory.explain.evidence.log_patterns import last_match, patterns
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.rules.table_row import (
    BEFORE_END,
    CERTAIN,
    LIKELY,
    NO,
    UNKNOWN,
    AdviceOf,
    TableRow,
    at_most,
    if_so,
)
from memory.explain.signals import ASKING, Signals
from memory.explain.verdict.advice import cheapest_first, no_workers, smaller_steps, uses_torch
from memory.explain.verdict.evidence_lines import (
    counters_line,
    ended_line,
    failed_row_line,
    peak_line,
    stack_line,
    stage_line,
)
from memory.explain.verdict.explanation import Advice

_CRASHES = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")
_OTHER_ROWS = (*ASKING, *_CRASHES, "SIGALRM", "SIGVTALRM", "SIGXCPU", "SIGKILL", "SIGBUS", "")
_MEANINGS = {
    "SIGPIPE": ": it wrote to a pipe that no process read any more",
    "SIGXFSZ": ": a file grew beyond its limit (ulimit -f)",
}
_SMALL_SHM_BYTES = 64 << 20
"""Size of /dev/shm in a container by default."""
_UNKNOWN_SENDER = "The kernel, for memory, or a person or a service: nothing says which"


def error_line(s: Signals) -> Iterable[str | None]:
    """The line of the log that names the error."""
    line = s.gpu.line if s.gpu else s.error.line
    yield f"{line} ({s.facts.log_name})" if line and s.facts else None


def sure(s: Signals, most: str = CERTAIN) -> str:
    """Confidence of an error that ended the run; of a log alone its end is not known."""
    return at_most(most, s.error.confidence, CERTAIN if s.died else LIKELY)


def _if(s: Signals, *kinds: str, most: str = CERTAIN) -> str:
    return sure(s, most) if s.error.kind in kinds and s.end != "ok" else NO


# Refused memory


def _says_refused(s: Signals, why: str) -> str:
    found = last_match(patterns("amount"), s.error.line)
    groups = found.groupdict() if found else {}
    plain = groups.get("bytes") or groups.get("rust")
    asked = int(plain[:18]) if plain else amount_bytes(groups.get("amount") or "0", groups.get("unit") or "B")
    return f"An allocation{f' of {format_bytes(asked)}' if asked else ''} was refused, {why}"


def _lift_rlimit(facts: RunFacts) -> Iterable[Advice]:
    lift = Advice("lift the limit of the process", "ulimit -v unlimited; ulimit -d unlimited")
    return (lift, *smaller_steps(facts), *no_workers(facts))


def _refused_advice(facts: RunFacts) -> Iterable[Advice]:
    """More memory only where a cgroup cannot be what refused: a cgroup kills."""
    if not isinstance(facts.outcome.get("rlimits"), dict) or facts.limit_at == "host":
        return cheapest_first(facts)
    what = "check what refuses memory here: overcommit, the number of maps or of threads"
    check = Advice(what, "sysctl vm.overcommit_memory vm.max_map_count; ulimit -a")
    return (*smaller_steps(facts), *no_workers(facts), check)


def _larger_heap(option: str) -> AdviceOf:
    def advice(facts: RunFacts) -> Iterable[Advice]:
        room_mb = min(8192, 3 * (facts.limit_bytes or 64 << 30) // 4 >> 20)
        return (Advice("a larger heap, below what the job may have", option.format(mb=room_mb)),)

    return advice


def _refused(
    name: str, sign: str, when: object, why: object, advice: object, cause: str | None = None
) -> TableRow:
    return TableRow(
        name, sign, when, why,  # type: ignore[arg-type]
        "memory_error", cause, (ended_line, *BEFORE_END), error_line, advice, "main",  # type: ignore[arg-type]
    )  # fmt: skip


_HEAP = "came to the limit of its own heap, which is neither the kernel's nor the job's"
_REFUSED = (
    _refused(
        "refused_by_rlimit",
        "the last error is of refused memory or threads, and a limit of the process is set (ulimit -v, -d)",
        lambda s: (s.rlimits and (_if(s, "no_thread", most=LIKELY) or _if(s, "memory_error",
        "maps_used_up"))) or NO,
        lambda s: _says_refused(s, f"because {' and '.join(s.rlimits)}"), _lift_rlimit, "rlimit",
    ),
    _refused(
        "heap_java", "the last error is that of Java's own heap", lambda s: _if(s, "heap_java"),
        f"Java {_HEAP}",
        _larger_heap("java -Xmx{mb}m"), "rlimit",
    ),
    _refused(
        "heap_node", "the last error is that of Node's own heap", lambda s: _if(s, "heap_node"),
        f"Node {_HEAP}",
        _larger_heap("node --max-old-space-size={mb}"), "rlimit",
    ),
    _refused(
        "maps_used_up", "torch could not map a shared tensor (ENOMEM), and no limit of the process is set",
        lambda s: NO if s.rlimits else _if(s, "maps_used_up"),
        lambda s: _says_refused(s, "and no rlimit is set: too many maps (vm.max_map_count), or no "
            "overcommit"),
        (Advice("keep fewer shared tensors, each is a map of its own; or raise the number of maps",
                "sysctl -w vm.max_map_count=1048576"),),
    ),
    _refused(
        "memory_refused", "the last error is of refused memory, and no limit of the process is set",
        lambda s: NO if s.rlimits else _if(s, "memory_error",
        most=LIKELY if s.error.is_programs else CERTAIN),
        lambda s: _says_refused(
            s, "as the program says itself; what refused it is not known"
            if s.error.is_programs else "and no rlimit is known: see vm.overcommit_memory"
        ), _refused_advice,
    ),
    _refused(
        "pinned_memory", "`CUDA error: out of memory` out of pin_memory or cudaHostAlloc",
        lambda s: _if(s, "pinned_memory", most=LIKELY),
        "The host refused page-locked memory (cudaHostAlloc, in pin_memory). The GPU's ran out only if an "
        "error of "
        "an earlier call was reported late",
        (Advice("see what limits locked memory and memory of the job", "ulimit -l; python -m memory"),
         Advice("read batches into memory that is not locked", "DataLoader(pin_memory=False)"),
         Advice("report an error where it arises", "CUDA_LAUNCH_BLOCKING=1")),
    ),
)  # fmt: skip

# /dev/shm and disks


def _is_bus(s: Signals) -> bool:
    return s.signal == "SIGBUS" or s.error.kind in ("bus_error", "worker_bus")


def _is_child(s: Signals) -> bool:
    return s.error.kind == "worker_bus" or (s.signal == "SIGBUS" and not s.signal_is_certain)


def _shm(s: Signals) -> str:
    """/dev/shm was full: an error that names it, or SIGBUS or ENOSPC while it was seen full."""
    is_full = s.shared.full >= 0.9
    if s.end == "ok":
        return NO
    if s.error.kind == "shm_full":
        return sure(s, CERTAIN if is_full else LIKELY)
    if is_full and _is_bus(s):
        return CERTAIN if s.signal_is_certain else LIKELY
    if is_full and s.error.kind == "disk_full" and not s.error.names_file:
        return sure(s, LIKELY)
    is_small = not s.shared.full or s.shared.total_bytes <= _SMALL_SHM_BYTES
    return if_so(s.error.kind == "worker_bus" and is_small)


def _unclear_bus(s: Signals) -> bool:
    by_own_code = s.signal == "SIGBUS" and not s.signal_is_certain and not s.child_was_there and s.has_samples
    return _is_bus(s) and not _shm(s) and not by_own_code and s.end != "ok"


def _had_room(s: Signals) -> bool:
    """/dev/shm was seen half empty, and the run put nothing there."""
    return s.shared.full <= 0.5 and s.shared.total_bytes > _SMALL_SHM_BYTES and not s.shared.dev_shm_rose


def _shm_lines(s: Signals) -> Iterable[str | None]:
    yield from error_line(s)
    used, total = format_bytes(s.shared.used_bytes), format_bytes(s.shared.total_bytes)
    yield (
        f"/dev/shm had up to {used} of {total} in use (memory.ring, outcome.json)"
        if s.shared.total_bytes
        else None
    )


def _says_shm(s: Signals) -> str:
    size = f" ({format_bytes(s.shared.total_bytes)})" if s.shared.total_bytes else ""
    return f"/dev/shm was full{size}: shared memory had no page left"


def _who_died(s: Signals) -> str:
    by_code = s.signal == "SIGBUS" and not s.signal_is_certain
    return (
        f"A process of it, by exit code {s.exit_code}," if by_code else "A worker" if _is_child(s) else "It"
    )


def _shm_room(facts: RunFacts) -> Iterable[Advice]:
    more = "give /dev/shm more room; a container has it from docker run --shm-size=8g"
    return (*no_workers(facts), Advice(more, "mount -o remount,size=8G /dev/shm"))


def _look_at_files(facts: RunFacts) -> Iterable[Advice]:
    if not facts.is_ours:
        return (
            Advice("see whether the files that it maps are whole, and whether their disk is full", "df -h"),
        )
    path = text(mapping(facts.evidence.run.get("data")).get("path"))
    command = f"python pretokenize_dataset.py verify {shlex.quote(path)}" if path else None
    return (Advice("see whether the token files are whole", command),)


_CUT = "a file that was mapped has been cut short since, or its disk is full or failed"
_AT = (ended_line, stage_line, stack_line)
_SPACE = (
    TableRow(
        "shm_full_in_worker", "/dev/shm was full or is small, and a worker ended by SIGBUS",
        lambda s: _shm(s) if _is_child(s) else NO, _says_shm,
        "shm_full", "shmem", _AT, _shm_lines, _shm_room, "child",
    ),
    TableRow(
        "shm_full", "the last error names /dev/shm, or /dev/shm was seen full with SIGBUS or ENOSPC",
        lambda s: NO if _is_child(s) else _shm(s), _says_shm,
        "shm_full", "shmem", _AT, _shm_lines, _shm_room, "main",
    ),
    TableRow(
        "truncated_file", "SIGBUS, while /dev/shm was seen with room, and the run put nothing there",
        lambda s: if_so(_unclear_bus(s) and _had_room(s),
        LIKELY if s.signal_is_certain or s.error else UNKNOWN),
        lambda s: f"{_who_died(s)} ended by SIGBUS, though /dev/shm had room: {_CUT}",
        "failed", "truncated_file", _AT, _shm_lines, _look_at_files, "main",
    ),
    TableRow(
        "bus_error", "SIGBUS, and /dev/shm was not seen: it was full, or a mapped file was cut short",
        lambda s: if_so(_unclear_bus(s) and not _had_room(s), LIKELY if s.shared.dev_shm_rose else UNKNOWN),
        lambda s: f"{_who_died(s)} ended by SIGBUS: /dev/shm was full, or {_CUT}",
        "shm_full", "shmem", _AT, _shm_lines, lambda facts: (*_shm_room(facts), *_look_at_files(facts)),
        "main",
        or_else=lambda s: ("truncated_file",),
    ),
    TableRow(
        "disk_full", "the last error is ENOSPC or EDQUOT, and /dev/shm was not full",
        lambda s: NO if _shm(s) else _if(s, "disk_full", most=CERTAIN if s.error.names_file else LIKELY),
        lambda s: "A disk or a quota is full" if s.error.names_file else "A disk, a quota or /dev/shm had "
            "no room",
        "failed", "disk_full", (ended_line,), error_line,
        (Advice("make room, then type the same command again", "df -h; df -h /dev/shm; quota -s"),),
    ),
)  # fmt: skip

# Workers, crashes, everything else


def _read_in_main(facts: RunFacts) -> Iterable[Advice]:
    if not facts.is_ours and uses_torch(facts):
        yield Advice("read without workers, so that the error is shown", "DataLoader(num_workers=0)")


_WORKERS = tuple(
    TableRow(name, sign, when, says, verdict, None, (counters_line, ended_line), error_line, _read_in_main,
        "child")
    for name, verdict, sign, says, when in (
        ("worker_killed_for_memory", "oom_cgroup",
         "the last error says that a worker was killed, and the kernel counted kills",
         "A worker process was killed for memory, and the main process failed for it",
         lambda s: _if(s, "worker_killed", "worker_died") if s.kills == "counted" else NO),
        ("worker_killed", "killed_from_outside",
         "the last error says that a worker was killed by SIGKILL; counters or U speak against memory",
         "A worker process was killed by SIGKILL, and not by the kernel for memory",
         lambda s: _if(s, "worker_killed", most=LIKELY)
         if s.kills == "none" or (s.kills == "no counter" and s.nearness == "far") else NO),
        ("worker_killed_by_unknown", "unknown",
         "the last error says that a worker was killed, and no counter could be read",
         f"A worker process was killed by SIGKILL. {_UNKNOWN_SENDER}",
         lambda s: _if(s, "worker_killed",
         most=UNKNOWN) if s.kills == "no counter" and s.nearness != "far" else NO),
        ("worker_died", "failed", "the last error says that a worker died, and not how",
            "A worker process died",
         lambda s: _if(s, "worker_died", most=LIKELY) if s.kills != "counted" else NO),
    )
)  # fmt: skip


def _is_own_number(s: Signals) -> bool:
    """137 or 135, of a program that had no child: its own exit status, by all signs."""
    return (
        s.signal in ("SIGKILL", "SIGBUS")
        and not s.signal_is_certain
        and s.has_samples
        and not s.child_was_there
    )


def _failed(s: Signals) -> str:
    if s.signal in _CRASHES:
        return NO
    is_log = s.end in ("log only", "unknown")
    has_own_row = is_log and s.error.kind not in ("", "exception") and bool(s.error.exception)
    by_log = is_log and (s.error.kind == "exception" or bool(s.says("crash")))
    by_number = _is_own_number(s) and s.kills != "counted"
    by_status = s.end == "error" and not s.says_cancelled
    unsure = s.timed_out_by.startswith("timeout") or has_own_row
    return if_so(
        by_status or s.says_failed or by_log or has_own_row or by_number, UNKNOWN if unsure else LIKELY
    )


def _says_failed(s: Signals) -> str:
    if _is_own_number(s):
        return f"It ended with exit code {s.exit_code}: its own, or that of a process that {s.signal} ended"
    if s.says("crash") and s.end in ("log only", "unknown"):
        return "A process of it crashed"
    if s.error.kind == "exception" and s.end != "log only":
        return "It ended by an error of its own, not for memory"
    if s.rlimits and not s.error:
        limit = "a limit of its own (ulimit -v, -d) may have refused it memory"
        return f"It ended by an error of its own. Its message is not known, and {limit}"
    return "It ended by an error of its own" + ", and no kill for memory was counted" * (s.kills == "none")


def _failed_lines(s: Signals) -> Iterable[str | None]:
    facts = s.facts
    if facts is None:
        return
    yield ended_line(facts)
    yield f"{s.says('crash').line} ({facts.log_name})" if s.says("crash") else None
    last, reason = s.error.exception, facts.reason if facts.state == "failed" else ""
    yield f"the run says: {reason} (status.json)" if reason and reason not in last else None
    yield f"its last error: {last} ({facts.log_name})" if last else None
    yield failed_row_line(facts)


def _read_log(facts: RunFacts) -> Iterable[Advice]:
    if facts.is_ours:
        yield Advice("read its own message", f"less {shlex.quote(f'{facts.evidence.path}/log.txt')}")


_OTHERS = tuple(
    TableRow(name, sign, when, says, "failed", "none", (counters_line, peak_line, stage_line),
        _failed_lines, _read_log, "main")
    for name, sign, when, says in (
        ("crashed", "SIGSEGV, SIGABRT, SIGILL, SIGFPE, SIGTRAP or SIGSYS",
            lambda s: if_so(s.signal in _CRASHES),
         lambda s: f"It crashed by {s.signal}"),
        ("other_signal", "any other signal",
         lambda s: if_so(s.signal not in _OTHER_ROWS, CERTAIN if s.signal_is_certain else LIKELY),
         lambda s: f"It was ended by {s.signal}{_MEANINGS.get(s.signal, '')}"),
        ("failed", "an exit status other than 0, the state `failed`, or a log that ends by an exception",
         _failed, _says_failed),
    )
)  # fmt: skip

ROWS = (*_SPACE, *_REFUSED, *_WORKERS, *_OTHERS)
