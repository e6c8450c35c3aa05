"""Ends that are not for memory by the kernel: signals, timers, managers, SIGKILL from unknown, good ends."""

from __future__ import annotations

from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, UNKNOWN, TableRow, at_most, if_so
from memory.explain.signals import ASKING, Signals
from memory.explain.verdict.evidence_lines import of_limit


def _asked(s: Signals) -> str:
    killed_after = s.signal == "SIGKILL" and bool(s.asked_by)
    is_asked = s.signal in ASKING or s.says_cancelled or killed_after
    stopped = s.stopped_itself and bool(s.asked_by) and s.kills != "counted"
    if not (is_asked or stopped) or s.timed_out_by.startswith("timeout") or s.end == "ok":
        return NO
    known = s.signal_is_certain or s.says_cancelled or bool(s.asked_from) or killed_after
    return CERTAIN if is_asked and known and not s.is_orphan else LIKELY


def _says_asked(s: Signals) -> str:
    by = f" by {s.asked_by}" if s.asked_by else ""
    killed = ", and killed when it did not" * (s.signal == "SIGKILL")
    return f"It was asked to stop{by}{killed}{'. Its supervisor was killed before' * s.is_orphan}"


_TIMED_OUT = {
    "timeout": ("timeout(1) stopped it", CERTAIN),
    "timeout by signal": ("timeout(1) stopped it", LIKELY),
    "timeout in a script": ("timeout(1) stopped a command of it, by its exit code", UNKNOWN),
    "cpu limit": ("The kernel killed it at its own limit of CPU time (ulimit -t)", LIKELY),
    "job end": ("It was stopped as the job's time limit was reached", LIKELY),
}


def _outside(s: Signals) -> str:
    """SIGKILL that the kernel did not count."""
    if s.signal != "SIGKILL" or s.kernel_named or s.timed_out_by == "cpu limit":
        return NO
    if s.lived_on_s:
        return LIKELY
    if s.kills == "counted" or (s.kills == "no counter" and s.limit_at != "cgroup"):
        return NO
    is_far = 0 < s.peak_share < 0.9
    by_wait = s.kills == "none" and is_far and s.signal_is_certain
    return CERTAIN if by_wait else LIKELY if s.kills == "none" or is_far else UNKNOWN


def _says_outside(s: Signals) -> str:
    who = "It" if s.signal_is_certain else "A process of it"
    if s.lived_on_s:
        return f"{who} was killed by SIGKILL after the kernel had killed another process for memory"
    why = "and not by the kernel for memory" if s.kills == "none" else "and no counter says for what"
    return f"{who} was killed by SIGKILL, {why}"


def _by_unknown(s: Signals) -> str:
    if s.kills == "no counter" and s.end == "error" and s.exit_code == 247:
        return UNKNOWN
    if s.signal == "SIGKILL":
        unseen = not s.kernel_named and s.kills == "no counter" and s.limit_at != "cgroup"
        return if_so(unseen and s.timed_out_by != "cpu limit", UNKNOWN)
    is_over = s.end in ("log only", "unknown", "lost") or (s.end == "error" and s.exit_code == 0)
    is_well = s.says_cancelled or s.slurm.state == "COMPLETED"
    return if_so(s.says("sigkill") and is_over and not is_well, UNKNOWN)


def _managed(s: Signals, kind: str, most: str) -> str:
    """A manager's line decides where no counter does, and no exit status says otherwise."""
    if not s.says(kind) or s.end == "ok":
        return NO
    if s.kills == "none" or (s.end == "error" and s.exit_code > 0):
        return UNKNOWN
    return at_most(most, CERTAIN if s.says(kind).is_sure else LIKELY)


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
    if s.kills != "counted":
        return ""
    return ". In its cgroup the kernel killed for memory: another process than this run's, by all signs"


def _says_running(s: Signals) -> str:
    now = f": U is {of_limit(s.facts, s.facts.u_series[-1][1])}" if s.facts.u_series else ""
    return f"It is running{now}{_kill_of_others(s)}"


def _says_lost(s: Signals) -> str:
    if s.facts.records and not (s.has_samples or s.facts.state or s.facts.open_stages):
        return "How it ended is not known: it had no supervisor. Every stage that it began also ended"
    both = ", and neither did its supervisor: both were killed" if s.has_samples else ": it was killed"
    return f"It left no word of its end{both}, or the machine went down"


_AFTER = "ended counters stage peak"
ROWS = (
    TableRow(
        "asked_to_stop", "SIGTERM, SIGINT, SIGHUP and their like came, or status.json says cancelled",
        _asked, _says_asked, "terminated", "none", f"sender {_AFTER}", "resume", "main",
    ),
    TableRow(
        "out_of_time",
        "exit status 124, a signal from timeout(1), SIGXCPU, or the end that Slurm had set",
        lambda s: if_so(s.timed_out_by and s.kills != "counted", _TIMED_OUT.get(s.timed_out_by, ("", NO))[1]),
        lambda s: _TIMED_OUT[s.timed_out_by][0],
        "timeout", "none", f"time {_AFTER}", "more_time resume",
    ),
    TableRow(
        "killed_from_outside",
        "SIGKILL, and the kernel counted no kill, or the main process lived on after the last one",
        _outside, _says_outside, "killed_from_outside", "none", f"lived_on {_AFTER}", "ask_sender resume",
        "main",
    ),
    TableRow(
        "killed_by_unknown",
        "SIGKILL by the exit status (also 247, which is -9) or by the log, and neither a counter nor a limit "
        "could be read",
        _by_unknown,
        lambda s: f"{'It' if s.signal_is_certain else 'A process of it'} was killed by SIGKILL. The kernel, "
        "for memory, or a person or a service: nothing says which",
        "unknown", None, "sigkill ended peak stage", "ask_kernel", "signalled",
    ),
    *(
        TableRow(
            kind, "the log has a line of such a manager, and no counter or exit status speaks against it",
            lambda s, kind=kind: _managed(s, kind, LIKELY), says,  # type: ignore[misc]
            verdict, cause, f"{kind} counters ended before_end", f"remedy_{kind}",
        )
        for kind, (verdict, cause, says) in _MANAGERS.items()
    ),
)  # fmt: skip

GOOD_OR_UNKNOWN = (
    TableRow(
        "running", "its process lives, or it was heard of within half a minute",
        lambda s: if_so(s.end == "running"), _says_running, "healthy", "none", "stage peak limit counters",
    ),
    TableRow(
        "ended_well", "exit status 0, or the state `done`",
        lambda s: if_so(s.end == "ok", CERTAIN),
        lambda s: f"It ended well{f', after {s.asked_by} had asked it to stop' if s.asked_by else ''}"
        f"{_kill_of_others(s)}",
        "healthy", "none", "ended peak limit counters", "run_with_us_if_unwatched",
    ),
    TableRow(
        "lost", "it left files, does not run, and nothing says how it ended",
        lambda s: if_so(s.end == "lost", UNKNOWN), _says_lost,
        "unknown", None, "before_end", "run_with_us_if_unwatched",
    ),
    TableRow(
        "no_evidence", "there is no file of a run, no log and no row",
        lambda s: if_so(s.end == "no evidence", CERTAIN), "There is no evidence here of any run",
        "unknown", None, "", "run_with_us_if_unwatched",
    ),
)  # fmt: skip
