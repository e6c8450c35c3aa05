"""Ends by the kernel for memory: at a cgroup's limit, at a limit above, or as the machine ran out."""

from __future__ import annotations

from experiment_utils.quantities import format_bytes
from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, UNKNOWN, TableRow, at_most, if_so
from memory.explain.signals import Signals
from memory.explain.verdict.evidence_lines import place

_NEAR = 0.95
_FAR = 0.8


def _is_ours(s: Signals) -> str:
    """Confidence that a process of this run was killed: others may be in the cgroup."""
    if s.victim_is_named or s.group_kills:
        return CERTAIN
    if s.signal == "SIGKILL":
        return CERTAIN if s.signal_is_certain or s.victim_vanished_then or not s.lived_on_s else LIKELY
    if s.victim_vanished_then:
        return LIKELY
    is_crowded = s.limit_at != "cgroup" or s.neighbours.share > 0.5
    return UNKNOWN if is_crowded else LIKELY


def _by_machine(s: Signals) -> str:
    if s.says("kernel_host"):
        return at_most(CERTAIN if s.has_run else LIKELY, CERTAIN if s.says("kernel_host").is_sure else LIKELY)
    if s.says("kernel_cgroup") or s.lived_on_s or (s.kills != "counted" and s.signal != "SIGKILL"):
        return NO
    if s.limit_at == "host" and s.kills == "counted":
        return at_most(CERTAIN if s.host_is_short else LIKELY, _is_ours(s))
    is_far = 0 < s.peak_share < _FAR and s.limit_at == "cgroup" and not s.limit_hits
    return if_so(s.host_is_short and (s.limit_at == "host" or is_far))


def _in_cgroup(s: Signals) -> str:
    return NO if s.kills != "counted" or s.lived_on_s or _by_machine(s) else _is_ours(s)


def _says_in_cgroup(s: Signals) -> str:
    where = f" of {place(s.facts.limit_at)}" if s.limit_at == "cgroup" else ""
    at = f"at the cgroup's limit{f' ({format_bytes(s.limit_bytes)}{where})' if s.limit_bytes else ''}"
    if s.never_at_limit:
        at = f"at a limit below {format_bytes(s.limit_bytes)}, which was never met: most likely that of a "
        at += "cgroup inside it (a container, systemd-run)"
    whom = "every process of the cgroup (memory.oom.group=1)" if s.group_kills else s.victim or "a process"
    after = ". The run itself ended with 0: the work of that process is missing, unless it was done again"
    after *= s.end == "ok"
    return f"The kernel killed {whom} for memory {at}{after}"


def _uncounted(s: Signals) -> str:
    if s.kills == "counted" or not s.was_killed or s.limit_at != "cgroup":
        return NO
    share = max(s.last_share, s.peak_share) if s.end == "lost" else s.last_share
    return if_so(share >= _NEAR, UNKNOWN if s.kills == "none" and s.end != "lost" else LIKELY)


def _named_in_log(s: Signals) -> str:
    said = s.says("kernel_cgroup")
    if s.kernel_named:
        return if_so(said, CERTAIN)
    if not said or (s.lived_on_s and not said.is_sure) or s.kills == "none":
        return NO
    return at_most(CERTAIN if s.has_run else LIKELY, CERTAIN if said.is_sure else LIKELY)


_ABOVE = "The kernel killed processes for memory in a cgroup above the run's own"
ROWS = (
    TableRow(
        "machine_full",
        "the machine was short of memory (the kernel's log, counters, MemAvailable)",
        _by_machine,
        lambda s: "The machine ran out of memory, and the kernel killed "
        f"{s.victim or 'a process' + ' of this run' * s.has_run}"
        + ", though others held most of it" * (0 < s.peak_of_host < 0.5),
        "oom_host",
        lambda s: "neighbours" if 0 < s.peak_of_host < 0.5 else None,
        "kernel_host machine counters ended before_end", "room_on_machine", "seen",
    ),
    TableRow(
        "killed_in_cgroup",
        "oom_kill or oom_group_kill rose while the run lived, and the main process did not live on after it",
        _in_cgroup, _says_in_cgroup,
        "oom_cgroup", None, "counters ended before_end", "cheapest_first", "seen",
    ),
    TableRow(
        "named_in_kernel_log",
        "no counter says otherwise, and the kernel's log names a process of the run",
        _named_in_log,
        lambda s: f"The kernel's log says that it killed {s.says('kernel_cgroup').name or s.victim or 'it'} "
        "at a cgroup's limit",
        "oom_cgroup", None, "kernel_cgroup ended before_end", "cheapest_first", "seen",
    ),
    TableRow(
        "killed_above",
        "a cgroup above counted kills, the run's own none, and the run ended by SIGKILL",
        lambda s: if_so(s.parent_killed and s.signal == "SIGKILL"), _ABOVE,
        "oom_cgroup", "neighbours", "above ended before_end", "more_memory", "seen",
    ),
    TableRow(
        "killed_uncounted",
        "SIGKILL, or no word of its end, with U at the limit (95%), and no counter of kills could be read",
        _uncounted,
        "It was killed with U at the limit: most likely by the kernel, for memory",
        "oom_cgroup", None, "ended counters before_end", "cheapest_first", "seen",
    ),
    TableRow(
        "limit_above",
        "U was near the limit, or the kernel killed, and the limit is that of a cgroup above the run's own",
        lambda s: if_so(s.limit_is_above and (s.nearness == "near" or s.kills == "counted"), CERTAIN),
        "The limit is that of a parent of the run's own cgroup: all that runs there counts",
        shows="parent_limit",
    ),
)  # fmt: skip
