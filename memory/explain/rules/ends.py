"""Ends that others brought about: the kernel for memory, Slurm, signals, timers, managers; and good ends."""

from __future__ import annotations

from experiment_utils.json_values import text
from experiment_utils.quantities import format_bytes
from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, UNKNOWN, TableRow, at_most, if_so
from memory.explain.signals import ASKING, Said, Signals
from memory.explain.verdict.evidence_lines import of_limit, place
from memory.explain.verdict.templates import first

_NEAR, _FAR = 0.95, 0.8
_NEAR_REQUEST = 0.9
"""MaxRSS of --mem: a sample, which misses the last moment."""


# The kernel, for memory


def _is_ours(s: Signals) -> str:
    """Confidence that a process of this run was killed: others can be in the cgroup."""
    if s.victim_is_named or (s.signal == "SIGKILL" and s.signal_is_certain):
        return CERTAIN
    is_crowded = s.limit_at != "cgroup" or s.neighbours.share > 0.5
    return LIKELY if s.signal == "SIGKILL" or (s.victim and s.victim.pid) or not is_crowded else UNKNOWN


def _by_line(s: Signals, said: Said) -> str:
    """By the kernel's log: as read by the supervisor, or where no counter says that it killed nothing."""
    if not said or (s.kills == "none" and said.source != "outcome.json"):
        return NO
    return CERTAIN if s.has_run and said.is_sure else LIKELY


def _by_machine(s: Signals) -> str:
    if s.says("kernel_host") or s.says("kernel_cgroup"):
        return _by_line(s, s.says("kernel_host"))
    if s.limit_at == "host" and s.kills == "counted":
        return at_most(CERTAIN if s.host_is_short else LIKELY, _is_ours(s))
    is_far = 0 < s.peak_share < _FAR and s.limit_at == "cgroup" and not s.limit_hits
    died = s.kills == "counted" or s.signal == "SIGKILL"
    return if_so(died and s.host_is_short and (s.limit_at == "host" or is_far))


def _says_in_cgroup(s: Signals) -> str:
    if s.limit_above:
        return (
            f"The kernel killed {s.victim or 'a process'} for memory at the limit of a cgroup above its own"
        )
    is_above = text(s.facts.outcome.get("cgroup_path")).startswith(s.facts.limit_at.rstrip("/") + "/")
    where = f" of {'its parent ' * is_above}{place(s.facts.limit_at)}" if s.limit_at == "cgroup" else ""
    at = f" ({format_bytes(s.limit_bytes)}{where})" if s.limit_bytes else ""
    after = ". The run itself ended with 0: the work of that process is missing, unless it was done again"
    whom = s.victim or "a process"
    return f"The kernel killed {whom} for memory at the cgroup's limit{at}{after * (s.end == 'ok')}"


def _uncounted(s: Signals) -> str:
    if s.kills == "counted" or not s.was_killed:
        return NO
    if s.limit_at == "request":
        return if_so(s.last_share >= _NEAR_REQUEST, UNKNOWN)
    share = max(s.last_share, s.peak_share) if s.end == "lost" else s.last_share
    is_near = s.limit_at == "cgroup" and share >= _NEAR
    return if_so(is_near, UNKNOWN if s.kills == "none" and s.end != "lost" else LIKELY)


# Slurm


def _slurm_oom(s: Signals) -> str:
    said = s.says("slurm_oom")
    if s.slurm.out_of_memory:
        return CERTAIN
    if not said or s.kills == "none" or (s.end == "error" and s.exit_code and not s.slurm.source):
        return NO
    return LIKELY if "Exceeded" in said.line else CERTAIN


def _says_slurm_oom(s: Signals) -> str:
    ids = ", ".join(row.id for row in s.slurm.out_of_memory[:4]) or "a step of this job"
    after = ". The job counts as COMPLETED: its script continued after it" * (s.slurm.state == "COMPLETED")
    return f"Slurm saw an OOM kill in {ids}{after}"


def _polled(s: Signals) -> str:
    if s.kills == "counted" or s.end in ("ok", "running"):
        return NO
    died = s.was_killed or s.signal or s.slurm.a_row_was_killed
    by_rows = s.slurm.polls_rss and s.slurm.rss_bytes > 0.95 * s.slurm.asked_bytes > 0 and died
    return CERTAIN if s.says("slurm_poll") else if_so(by_rows)


_SLURM_ENDS = {
    "slurm_timeout": (("TIMEOUT", "DEADLINE"), "timeout", "none", "Its time limit was reached"),
    "slurm_preempted": (
        ("PREEMPTED",), "killed_from_outside", "preemption", "A job of higher priority took its place",
    ),
    "slurm_node_failed": (
        ("NODE_FAIL", "BOOT_FAIL"), "killed_from_outside", "node_failure", "Its node failed",
    ),
    "slurm_requeued": ((), "killed_from_outside", "requeue", "It was put back into the queue"),
    "slurm_cancelled": (("CANCELLED", "REVOKED"), "killed_from_outside", "scancel", "It was cancelled"),
}  # fmt: skip


def _is_sure(s: Signals, kind: str) -> bool:
    """A step that was cancelled can have been preempted, and ended within its grace time."""
    by_user = s.facts.job is not None and bool(s.facts.job.row.cancelled_by)
    return kind != "slurm_cancelled" or s.says(kind).is_sure or by_user


def _ended_by_slurm(s: Signals, kind: str) -> str:
    if s.end in ("ok", "running", "waiting") or s.kills == "counted" or _polled(s):
        return NO
    said, row = next((name for name in _SLURM_ENDS if s.says(name)), ""), s.slurm.ended_by
    own_end = s.end == "error" and not s.asked_by and s.state != "cancelled"
    if said and not (own_end and row is None and "STEP " not in s.says(said).line):
        return if_so(said == kind, CERTAIN if _is_sure(s, kind) else LIKELY)
    return if_so(row is not None and row.state in _SLURM_ENDS[kind][0], CERTAIN)


# Signals, timers, managers


def _asked(s: Signals) -> str:
    killed_after = s.signal == "SIGKILL" and bool(s.asked_by)
    is_asked = s.signal in ASKING or s.state == "cancelled" or killed_after
    stopped = s.end == "error" and s.asked_by in ASKING[:4] and s.kills != "counted" and s.state != "failed"
    if not (is_asked or stopped) or s.timed_out_by.startswith("timeout") or s.end == "ok":
        return NO
    return CERTAIN if is_asked and (s.signal_is_certain or s.state == "cancelled" or killed_after) else LIKELY


_TIMED_OUT = {
    "timeout": ("timeout(1) stopped it", CERTAIN),
    "timeout in a script": ("timeout(1) stopped a command of it, by its exit code", UNKNOWN),
    "cpu limit": ("The kernel killed it at its own limit of CPU time (ulimit -t)", LIKELY),
}


def _outside(s: Signals) -> str:
    """SIGKILL that the kernel did not count."""
    if s.signal != "SIGKILL" or s.says("kernel_cgroup") or s.says("kernel_host") or s.timed_out_by:
        return NO
    is_far = 0 < s.peak_share < 0.9
    if s.kills == "none":
        return CERTAIN if is_far and s.signal_is_certain else LIKELY
    return if_so(s.kills == "no counter" and s.limit_at == "cgroup" and is_far)


def _who(s: Signals) -> str:
    return f"{'It' if s.signal_is_certain else 'A process of it'} was killed by SIGKILL"


def _by_unknown(s: Signals) -> str:
    if s.kills == "no counter" and (s.signal == "SIGKILL" or (s.end == "error" and s.exit_code == 247)):
        return if_so(not _outside(s) and s.timed_out_by != "cpu limit", UNKNOWN)
    is_over = s.end in ("log only", "unknown", "lost") or (s.end == "error" and s.exit_code == 0)
    return if_so(s.says("sigkill") and is_over and s.state != "cancelled", UNKNOWN)


def _managed(s: Signals, kind: str) -> str:
    """A manager's line decides where no counter does, and no exit status says otherwise."""
    if not s.says(kind) or s.end == "ok":
        return NO
    return UNKNOWN if s.kills == "none" or (s.end == "error" and s.exit_code > 0) else LIKELY


_MANAGERS = {
    "container_oom": ("oom_cgroup", None, "Kubernetes, Docker, systemd or PBS says that a process of the "
        "container, unit or job was killed for memory"),
    "memory_daemon": ("killed_from_outside", "oom_daemon", "A service that watches memory (systemd-oomd, "
        "earlyoom, Ray, Dask, the kubelet) killed it before the kernel did"),
    "manager_poll": ("killed_from_outside", "rss_polling", "The batch system's poll killed it: its "
        "processes together held more than the job had requested"),
    "manager_timeout": ("timeout", "none", "The batch system killed it when its time was up"),
}  # fmt: skip


def _kill_of_others(s: Signals) -> str:
    others = ". In its cgroup the kernel killed for memory: another process than this run's, by all signs"
    return others * (s.kills == "counted")


def _says_running(s: Signals) -> str:
    now = f": U is {of_limit(s, s.facts.u_series[-1][1])}" if s.facts.u_series else ""
    return f"It is running{now}{_kill_of_others(s)}"


_AT_END = "ended u stage stack"
_AFTER = "ended counters stage peak"
ROWS = (
    TableRow(
        "machine_full", "the machine was short of memory (the kernel's log, counters, MemAvailable)",
        _by_machine,
        lambda s: f"The machine ran out of memory, and the kernel killed {s.victim or 'a process'}"
        + ", though others held most of it" * (0 < s.peak_of_host < 0.5),
        "oom_host", lambda s: "neighbours" if 0 < s.peak_of_host < 0.5 else None,
        f"kernel_host machine counters {_AT_END}", "smaller_steps room_on_machine", "seen",
    ),
    TableRow(
        "killed_in_cgroup", "oom_kill rose while the run lived",
        lambda s: NO if s.kills != "counted" or _by_machine(s) else _is_ours(s), _says_in_cgroup,
        "oom_cgroup", None, f"counters {_AT_END}", "cheapest_first", "seen",
    ),
    TableRow(
        "named_in_kernel_log", "no counter says otherwise, and the kernel's log names a process of the run",
        lambda s: _by_line(s, s.says("kernel_cgroup")),
        lambda s: "The kernel's log says that it killed "
        f"{s.says('kernel_cgroup').name or s.victim or 'it'} at a cgroup's limit",
        "oom_cgroup", None, f"kernel_cgroup {_AT_END}", "cheapest_first", "seen",
    ),
    TableRow(
        "killed_uncounted",
        "SIGKILL, or no word of its end, with U at the limit (95%; MaxRSS at 90% of --mem), and no counted "
        "kill",
        _uncounted, "It was killed with its memory at the limit: most likely by the kernel",
        "oom_cgroup", None, f"counters max_rss {_AT_END}", "cheapest_first", "seen",
    ),
    TableRow(
        "slurm_out_of_memory",
        "a row of the job or of a step says OUT_OF_MEMORY; without a counter, a line of slurmstepd or srun",
        _slurm_oom, _says_slurm_oom,
        "oom_cgroup", None, "slurm_oom_rows requested max_rss slurm_oom u", "cheapest_first", "seen",
    ),
    TableRow(
        "rss_polled",
        "slurmd's line of its poll (OverMemoryKill); or that setting, and RSS at 95% of the request",
        _polled,
        "Slurm's poll killed it (OverMemoryKill): RSS, in which mapped files count once for each process, "
        "was above what it had requested",
        "killed_from_outside", "rss_polling", "slurm_poll polled peak counters ended",
        "read_less smaller_steps no_workers more_memory", "seen",
    ),
    *(
        TableRow(
            kind, f"Slurm's line, or its row of the job or step: {' or '.join(states) or 'requeued'}",
            lambda s, kind=kind: _ended_by_slurm(s, kind),  # type: ignore[misc]
            lambda s, kind=kind, says=says:  # type: ignore[misc]
            says + ", or preempted and ended within its grace time" * (not _is_sure(s, kind)),
            verdict, cause, f"{kind} slurm_row ended counters", kind,
        )
        for kind, (states, verdict, cause, says) in _SLURM_ENDS.items()
    ),
    TableRow(
        "asked_to_stop", "SIGTERM, SIGINT, SIGHUP and their like came, or status.json says cancelled",
        _asked,
        lambda s: f"It was asked to stop{f' by {s.asked_by}' if s.asked_by else ''}"
        f"{', and killed when it did not' * (s.signal == 'SIGKILL')}",
        "terminated", "none", f"sender {_AFTER}", "resume", "main",
    ),
    TableRow(
        "out_of_time", "exit status 124, a signal from timeout(1), or SIGXCPU",
        lambda s: if_so(s.timed_out_by and s.kills != "counted", _TIMED_OUT.get(s.timed_out_by, ("", NO))[1]),
        lambda s: _TIMED_OUT[s.timed_out_by][0],
        "timeout", "none", f"time {_AFTER}", "more_time resume",
    ),
    TableRow(
        "killed_from_outside", "SIGKILL, and the kernel counted no kill",
        _outside,
        lambda s: f"{_who(s)}, and {'not by the kernel' if s.kills == 'none' else 'no counter says'} for "
        f"{'memory' if s.kills == 'none' else 'what'}",
        "killed_from_outside", "none", _AFTER, "ask_sender", "main",
    ),
    TableRow(
        "killed_by_unknown",
        "SIGKILL by the exit status (also 247, which is -9) or by the log, and nothing says who sent it",
        _by_unknown,
        lambda s: f"{_who(s)}. The kernel, for memory, or a person or a service: nothing says which",
        "unknown", None, "sigkill ended peak stage", "ask_kernel", "signalled",
    ),
    *(
        TableRow(
            kind, "the log has a line of such a manager, and no counter or exit status speaks against it",
            lambda s, kind=kind: _managed(s, kind), says,  # type: ignore[misc]
            verdict, cause, f"{kind} counters ended u", f"remedy_{kind}",
        )
        for kind, (verdict, cause, says) in _MANAGERS.items()
    ),
    TableRow(
        "slurm_notes", "accounting has earlier starts of the job, or other tasks of its array",
        lambda s: if_so(s.facts.slurm and len(s.facts.slurm.jobs) > 1, CERTAIN),
        "Accounting says more of the job", shows="slurm_notes",
    ),
)  # fmt: skip

GOOD_OR_UNKNOWN = (
    TableRow(
        "running", "its process lives, it was heard of within half a minute, or its job runs or waits",
        lambda s: if_so(s.end in ("running", "waiting")),
        first(lambda s: "" if s.has_run else f"Job {s.how_it_ended}", _says_running),
        "healthy", "none", "ended stage peak counters",
    ),
    TableRow(
        "ended_well", "exit status 0, the state `done`, or Slurm's row says COMPLETED",
        lambda s: if_so(s.end == "ok", CERTAIN),
        lambda s: f"It ended well{f', after {s.asked_by} had asked it to stop' if s.asked_by else ''}"
        f"{_kill_of_others(s)}",
        "healthy", "none", "ended peak counters", "run_with_us_if_unwatched",
    ),
    TableRow(
        "lost", "it left files, does not run, and nothing says how it ended",
        lambda s: if_so(s.end == "lost", UNKNOWN),
        lambda s: "It left no word of its end" + (
            ", and neither did its supervisor: both were killed" if s.has_samples else ": it was killed"
        ) + ", or the machine went down",
        "unknown", None, "u stage stack", "run_with_us_if_unwatched",
    ),
    TableRow(
        "no_evidence", "there is no file of a run, no log and no row",
        lambda s: if_so(s.end == "no evidence", CERTAIN), "There is no evidence here of any run",
        "unknown", None, "", "run_with_us_if_unwatched",
    ),
)  # fmt: skip
