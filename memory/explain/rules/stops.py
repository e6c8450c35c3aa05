"""Ends from outside that are not the kernel's: signals, timers, managers and daemons; and SIGKILL from
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from experiment_utils.json_values import mappings, seconds, text, unsigned
from memory.explain.evidence.log_patterns import MANAGERS
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.rules.table_row import (
    BEFORE_END,
    CERTAIN,
    COUNTED,
    LIKELY,
    NO,
    UNKNOWN,
    TableRow,
    at_most,
    if_so,
)
from memory.explain.signals import ASKING, Signals
from memory.explain.verdict.advice import resume
from memory.explain.verdict.evidence_lines import counters_line, ended_line, peak_line, stage_line
from memory.explain.verdict.explanation import Advice
from memory.sacct import real_limit

_AFTER: tuple = (ended_line, counters_line, stage_line, peak_line)


def said_lines(*kinds: str) -> object:
    """Lines of managers, by kind."""

    def lines(s: Signals) -> Iterable[str | None]:
        for kind in kinds:
            yield f"{s.says(kind).line} ({s.facts.log_name})" if s.says(kind) and s.facts else None

    return lines


# Asked to stop


def _asked(s: Signals) -> str:
    killed_after = s.signal == "SIGKILL" and bool(s.asked_by)
    is_asked = s.signal in ASKING or s.says_cancelled
    stopped = s.stopped_itself and bool(s.asked_by) and s.kills != "counted"
    if not (is_asked or killed_after or stopped) or s.timed_out_by.startswith("timeout") or s.end == "ok":
        return NO
    known = (
        s.signal_is_certain or s.says_cancelled or bool(s.asked_from) or killed_after
    ) and not s.is_orphan
    return CERTAIN if (is_asked or killed_after) and known else LIKELY


def _says_asked(s: Signals) -> str:
    by = f" by {s.asked_by}" if s.asked_by else ""
    killed = ", and killed when it did not" if s.signal == "SIGKILL" else ""
    orphan = ". So it is when its supervisor is killed, which left no word" if s.is_orphan else ""
    return f"It was asked to stop{by}{killed}{orphan}"


def _asked_lines(s: Signals) -> Iterable[str | None]:
    facts = s.facts
    if facts is None:
        return
    for sent in mappings(facts.outcome.get("signals_passed_on"))[-1:]:
        pid, name = unsigned(sent.get("from_pid")), text(sent.get("from_name"))
        sender = f" from pid {pid}{f' ({name})' if name else ''}" if pid else ""
        yield f"{text(sent.get('signal'))} came to the supervisor{sender} (outcome.json)"
    yield f"the run says: {facts.reason} (status.json)" if facts.reason else None


# Time that was up

_TIMED_OUT = {
    "timeout": ("exit status 124, or the limit that was given to timeout(1) had passed",
    "timeout(1) stopped it", CERTAIN),
    "timeout by signal": ("the signal came from timeout(1)", "timeout(1) stopped it", LIKELY),
    "timeout in a script": ("exit status 124, and no timeout(1) in the command", "timeout(1) stopped a "
        "command of it, by its exit code", UNKNOWN),
    "cpu limit": ("SIGXCPU, or SIGKILL with RLIMIT_CPU used up", "The kernel killed it at its own limit of "
        "CPU time (ulimit -t)", LIKELY),
    "timer": ("SIGALRM or SIGVTALRM", "It was ended by a timer of its own", LIKELY),
    "job end": ("it was stopped within 90 s of the end that Slurm had set", "It was stopped as the job's "
        "time limit was reached", LIKELY),
}  # fmt: skip


def _timeout_lines(s: Signals) -> Iterable[str | None]:
    facts = s.facts
    if facts is None:
        return
    if s.timed_out_by == "cpu limit":
        used_s = seconds(facts.outcome.get("cpu_s")) or 0.0
        yield (
            f"it had used {used_s:.1f} s of CPU, and may use {facts.cpu_limit_s or 0:,} (RLIMIT_CPU; "
            "outcome.json)"
        )
    elif s.timed_out_by == "job end":
        late_s = facts.after_job_end_s or 0.0
        yield f"it ended {late_s:+.0f} s from the end that Slurm had set (SLURM_JOB_END_TIME, outcome.json)"
    elif s.timed_out_by == "timeout" and s.exit_code != 124:
        began_s, ended_s = (seconds(facts.outcome.get(f"{name}_s")) or 0.0 for name in ("started", "ended"))
        yield f"it lived {ended_s - began_s:.1f} s under timeout(1) (outcome.json)"
    elif s.exit_code == 124:
        yield "exit code 124 is what timeout(1) returns (outcome.json)"


def _more_time(name: str) -> object:
    def advice(facts: RunFacts) -> Iterable[Advice]:
        if name == "job end":
            yield longer(facts)
        elif name == "cpu limit":
            yield Advice("lift its limit of CPU time, where it is set", "ulimit -t unlimited")
        else:
            yield Advice("give it more time")
        yield from resume(facts)

    return advice


def longer(facts: RunFacts) -> Advice:
    """Twice the time limit that was reached, if it is known."""
    job = facts.slurm.job if facts.slurm else None
    begin_s, end_s = facts.job_time_s("START"), facts.job_time_s("END")
    had_s = job.row.timelimit_s if job else None
    if not had_s and begin_s and end_s:
        had_s = real_limit(end_s - begin_s)
    if not had_s or had_s <= 0:
        return Advice("more time for the job (--time)")
    days, minutes = divmod(-(-2 * int(had_s) // 60), 24 * 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:00"
    return Advice(
        f"more time for the job; it had {had_s / 60:.0f} min", f"--time={f'{days}-' * bool(days)}{clock}"
    )


# SIGKILL


def _outside(s: Signals) -> str:
    """SIGKILL that the kernel did not count."""
    if s.signal != "SIGKILL" or s.kernel_named or s.timed_out_by == "cpu limit":
        return NO
    if s.lived_on_s:
        return LIKELY
    if s.kills == "counted" or (s.kills == "no counter" and s.limit_at != "cgroup"):
        return NO
    if not s.signal_is_certain and s.has_samples and not s.child_was_there:
        return UNKNOWN
    is_far = 0 < s.peak_share < 0.9
    by_wait = s.kills == "none" and is_far and s.signal_is_certain
    return CERTAIN if by_wait else LIKELY if s.kills == "none" or is_far else UNKNOWN


def _says_outside(s: Signals) -> str:
    who = "It" if s.signal_is_certain else "A process of it"
    if not s.lived_on_s:
        why = "and not by the kernel for memory" if s.kills == "none" else "and no counter says for what"
        return f"{who} was killed by SIGKILL, {why}"
    other = s.victim.name if s.victim is not None and not s.victim.is_main else ""
    name = f" ({other})" if other else ""
    return (
        f"{who} was killed by SIGKILL, {s.lived_on_s:.0f} s or more after the kernel had killed another "
        f"process{name} "
        "of the cgroup for memory"
    )


def _lived_on(s: Signals) -> Iterable[str | None]:
    lived = f"the main process was seen alive for {s.lived_on_s:.1f} s after the last kill (memory.ring)"
    yield lived if s.lived_on_s else None


def _ask_sender(facts: RunFacts) -> Iterable[Advice]:
    job = facts.job_id
    slurms = "`scancel`, " if facts.in_slurm or job else ""
    yield Advice(
        f"ask who sends it: {slurms}an administrator, a service such as systemd-oomd",
        f"sacct -j {job} --format=JobID,State%40,ExitCode" if job else None,
    )
    yield from resume(facts)


def _ask_kernel(facts: RunFacts) -> Iterable[Advice]:
    job, nodes = facts.job_id, facts.slurm.job.row.nodes if facts.slurm and facts.slurm.job else ""
    if job:
        yield Advice(
            "ask Slurm about each step", f"sacct -j {job} --format=JobID,State%40,ExitCode,MaxRSS,ReqMem"
        )
    where = f" on {nodes}" if nodes else ""
    yield Advice(f"the kernel's log{where} names what it killed", "dmesg -T | grep -i 'killed process'")
    yield from _ask_sender(facts) if facts.outcome else ()


_UNKNOWN_SENDER = "The kernel, for memory, or a person or a service: nothing says which"


def _sigkill_in_log(s: Signals) -> str:
    is_over = s.end in ("log only", "unknown", "lost") or (s.end == "error" and s.exit_code in (0, 247))
    return if_so(
        s.says("sigkill") and is_over and not s.says_cancelled and s.slurm.state != "COMPLETED", UNKNOWN
    )


# Managers


def _said(s: Signals, kind: str, most: str) -> str:
    """A manager's line decides where no counter does, and no exit status says otherwise."""
    if not s.says(kind) or s.end == "ok":
        return NO
    if s.kills == "none" or (s.end == "error" and s.exit_code > 0):
        return UNKNOWN
    return at_most(most, CERTAIN if s.says(kind).is_sure else LIKELY)


def _remedy(kind: str, otherwise: str) -> object:
    def advice(facts: RunFacts) -> Iterable[Advice]:
        found = (row.remedy for row in MANAGERS if row.kind == kind and row.regex.search(facts.log))
        yield Advice(next(filter(None, found), otherwise))

    return advice


_MANAGERS = {
    "container_oom": ("oom_cgroup", None, LIKELY, "hold less, or raise the limit of the container or unit",
        "Kubernetes, Docker, systemd or PBS says that a process of the container, unit or job was killed "
        "for memory: at "
        "its limit, or as the machine ran out"),
    "memory_daemon": ("killed_from_outside", "oom_daemon", LIKELY,
        "hold less, start fewer tasks at a time, or request the whole machine",
        "A service that watches memory (systemd-oomd, earlyoom, Ray, Dask, the kubelet) killed it before "
        "the kernel did"),
    "manager_poll": ("killed_from_outside", "rss_polling", LIKELY, "more memory for the job",
        "The batch system's poll killed it: the memory of its processes, summed up, was above what the job "
        "had requested"),
    "manager_timeout": ("timeout", "none", LIKELY, "more time for the job",
        "The batch system killed it when its time was up"),
}  # fmt: skip

ROWS = (
    TableRow(
        "asked_to_stop", "SIGTERM, SIGINT, SIGHUP and their like came, or status.json says cancelled",
        _asked, _says_asked, "terminated", "none", _AFTER, _asked_lines, resume, "main",
    ),
    *(
        TableRow(
            f"out_of_time_{name.replace(' ', '_')}", sign,
            lambda s, name=name, sure=sure: if_so(  # type: ignore[misc]
                s.timed_out_by == name and s.kills != "counted", sure
            ),
            says,
            "timeout", "none", _AFTER, _timeout_lines, _more_time(name),  # type: ignore[arg-type]
        )
        for name, (sign, says, sure) in _TIMED_OUT.items()
    ),
    TableRow(
        "killed_from_outside",
        "SIGKILL, and the kernel counted no kill, or the main process lived on after the last one",
        _outside, _says_outside, "killed_from_outside", "none", (*_AFTER,), _lived_on, _ask_sender, "main",
    ),
    TableRow(
        "killed_by_unknown", "SIGKILL, and neither a counter nor a limit could be read",
        lambda s: if_so(
            s.signal == "SIGKILL" and not s.kernel_named and s.kills == "no counter" and s.limit_at !=
            "cgroup"
            and s.timed_out_by != "cpu limit", UNKNOWN,
        ),
        lambda s: f"{'It' if s.signal_is_certain else 'A process of it'} was killed by SIGKILL. "
            f"{_UNKNOWN_SENDER}",
        "unknown", None, (ended_line, peak_line, stage_line), advice=_ask_kernel, victim="main",
    ),
    TableRow(
        "sigkill_in_log", "a shell, launcher or srun writes that a process was killed, and nothing else "
            "says more",
        _sigkill_in_log, f"A process of it was killed by SIGKILL. {_UNKNOWN_SENDER}",
        "unknown", None, (ended_line,), said_lines("sigkill"), _ask_kernel, "child",  # type: ignore[arg-type]
    ),
    TableRow(
        "exit_minus_9", "exit status 247, which is -9 as some launchers pass it on, and no counter could "
            "be read",
        lambda s: if_so(s.exit_code == 247 and s.kills == "no counter" and s.end == "error", UNKNOWN),
        f"It ended with exit code 247, which is -9: a process of it was killed by SIGKILL. {_UNKNOWN_SENDER}",
        "unknown", None, (ended_line,), advice=_ask_kernel, victim="child",
    ),
    *(
        TableRow(
            kind, "the log has a line of such a manager, and no counter or exit status speaks against it",
            lambda s, kind=kind, most=most: _said(s, kind, most), says,  # type: ignore[misc]
            verdict, cause, (*COUNTED, *BEFORE_END), said_lines(kind), _remedy(kind, otherwise),  # type: ignore[arg-type]
        )
        for kind, (verdict, cause, most, otherwise, says) in _MANAGERS.items()
    ),
)  # fmt: skip
