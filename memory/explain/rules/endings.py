"""Ends that memory did not bring about: signals, time limits, errors, and runs that ended well."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from experiment_utils.json_values import mapping, mappings, text, unsigned
from memory.explain.advice import go_on, run_with_us
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding, Victim
from memory.explain.rules.shared_memory import FULL, SHM_WORDS, fullest
from memory.explain.script import script_lines
from memory.explain.stacks import ends_within_a_line
from memory.explain.telling import (
    all_of,
    counters_line,
    ended_line,
    failed_row_line,
    limit_line,
    of_limit,
    peak_line,
    stage_line,
)
from memory.explain.testimony import by_the_run
from memory.explain.wordings import (
    ANOTHER_DIED,
    CRASH_TOLD,
    DISK_FULL,
    GPU_OOM,
    MEMORY_ERROR,
    OOM_DAEMON,
    SHM_FULL,
    TRACEBACK,
    WORKER_KILLED,
    last_line_with,
)

_ASKING = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_ENDING = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
"""Those that end a program; a user's signal asks for what the program makes of it."""
_CRASHES = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")
_ANSWERING = (
    " while it told its Python stacks, for which its supervisor had asked near the limit: an interpreter "
    "that is asked in the midst of a call may crash"
)
"""faulthandler reads, from within the signal, frames that a call is just making (CPython 3.11)."""
_TOLD_ELSEWHERE = (*_ASKING, "SIGKILL", "SIGBUS", "SIGALRM", "SIGVTALRM", "SIGXCPU")
_BY_A_NUMBER = ("SIGKILL", "SIGBUS")
"""Exit codes 137 and 135: of whom they tell is known by whether there was anybody else."""
_MEANINGS = {
    "SIGPIPE": ": it wrote to a pipe that nobody read any more",
    "SIGXFSZ": ": a file grew beyond its limit (ulimit -f)",
}
_A_FILE = re.compile(r": ['\"]?[^'\"\s]*/|No space left on device: ['\"]|/\S+: No space left")
TIMED_OUT = 124
"""Exit code of timeout(1), and of nothing else by habit."""


def asked_to_stop(facts: Facts) -> Iterator[Finding]:
    """SIGTERM, Ctrl-C and their like, whatever the run made of it."""
    passed_on = [text(entry.get("signal")) for entry in mappings(facts.outcome.get("signals_passed_on"))]
    asked = facts.signal in _ASKING or facts.state == "cancelled"
    by = (
        facts.signal
        if facts.signal in _ASKING
        else next((name for name in reversed(passed_on) if name in _ASKING), None)
    )
    killed_after = facts.signal == "SIGKILL" and any(name in _ASKING for name in passed_on)
    stopped_itself = (
        any(name in _ENDING for name in passed_on)
        and facts.exit_code not in (None, 0)
        and facts.signal is None
        and not facts.kills
    )
    if not (asked or killed_after or (stopped_itself and facts.state != "failed")) or facts.exit_code == 124:
        return
    passed = mappings(facts.outcome.get("signals_passed_on"))
    asking = [entry for entry in passed if text(entry.get("signal")) in _ASKING]
    of_timeout = [entry for entry in asking if text(entry.get("from_name")) == "timeout"]
    sent = (of_timeout or asking or [{}])[-1]
    from_pid = unsigned(sent.get("from_pid"))
    sender = text(sent.get("from_name"))
    told = f"{text(sent.get('signal'))} came to the supervisor" if sent else None
    if told and from_pid:
        told += f" from pid {from_pid}{f' ({sender})' if sender else ''}"
    out_of_time = bool(of_timeout)
    # SIGTERM comes of that too, and nobody is left to tell which it was
    is_orphan = not facts.outcome and bool(facts.samples) and "SIGTERM" in facts.reason
    is_known = (facts.signal_is_certain or facts.state == "cancelled" or bool(passed)) and not is_orphan
    yield Finding(
        rule="asked_to_stop",
        says=("timeout(1) stopped it" if out_of_time else f"It was asked to stop{f' by {by}' if by else ''}")
        + (", and killed when it did not" if killed_after else "")
        + (", as also when its supervisor is killed, which left no word" if is_orphan else ""),
        # it also hands on what it is sent itself
        confidence="certain" if (asked or killed_after) and is_known and not out_of_time else "likely",
        verdict="timeout" if out_of_time else "terminated",
        cause="none",
        victim=Victim(True, unsigned(facts.outcome.get("pid"))) if facts.outcome else None,
        evidence=all_of(
            ended_line(facts), f"{told} (outcome.json)" if told else None,
            f"the run says: {facts.reason} (status.json)" if facts.reason else None,
            counters_line(facts), stage_line(facts), peak_line(facts),
        ),
        advice=(*((Advice("give it more time"),) if out_of_time else ()), *go_on(facts)),
    )  # fmt: skip


def killed_from_outside(facts: Facts) -> Iterator[Finding]:
    """SIGKILL that the kernel did not count as one for memory, or that came long after what it counted."""
    if facts.signal != "SIGKILL" or (facts.kills and not facts.outlived_kills):
        return
    if facts.kernel_named_victim or facts.cpu_limit_s is not None:
        return
    daemon = last_line_with(OOM_DAEMON, facts.log)
    of_child = not facts.signal_is_certain
    who = "A process of it" if of_child else "It"
    victim = Victim(not of_child, unsigned(facts.outcome.get("pid")) if not of_child else None)
    if facts.kills is None and facts.limit_at in ("", "host") and not daemon:
        yield _killed_by_nobody_knows(facts, who, victim)
        return
    known = facts.kills is not None
    share = facts.peak_share
    far = share is not None and share < 0.9
    surely = "certain" if known and far and not of_child else "likely" if known or far else "possible"
    if of_child and facts.samples and not facts.lost_a_process:
        surely = "possible"  # no process of it was seen to go: the number is its own, by all signs
    says = f"{who} was killed by SIGKILL, " + (
        "and not by the kernel for memory" if known else "and no counter says for what"
    )
    lived_on = None
    if facts.outlived_kills:
        surely = "likely"
        other = mapping(facts.outcome.get("victim"))
        name = text(other.get("name")) if other.get("is_main") is False else ""
        lived_on = (
            f"what the kernel killed was {f'{name}, ' if name else ''}another process: this one was seen "
            f"alive for {facts.lived_on_s:.1f} s after it (memory.ring)"
        )
        says = f"{who} was killed by SIGKILL, {facts.lived_on_s:.0f} s or more after the kernel had killed "
        says += f"another process{f' ({name})' if name else ''} of the cgroup for memory"
    yield Finding(
        rule="killed_from_outside",
        says=says,
        confidence=surely,
        verdict="killed_from_outside",
        cause="oom_daemon" if daemon else "none",
        victim=victim,
        evidence=all_of(
            ended_line(facts), counters_line(facts), lived_on,
            f"{daemon} ({facts.log_name})" if daemon else None, peak_line(facts), stage_line(facts),
        ),
        advice=(_ask_who(facts), *go_on(facts)),
    )  # fmt: skip


def _killed_by_nobody_knows(facts: Facts, who: str, victim: Victim) -> Finding:
    """Neither a counter nor a limit of a cgroup could be read: both may be."""
    return Finding(
        rule="killed_by_nobody_knows",
        says=f"{who} was killed by SIGKILL, and who sent it is not known: the kernel, for memory at a limit "
        "that could not be seen from there, or somebody from outside",
        confidence="possible",
        verdict="unknown",
        victim=victim,
        evidence=all_of(ended_line(facts), peak_line(facts), stage_line(facts)),
        advice=(
            Advice("the kernel's log tells, where it may be read", "dmesg -T | grep -i 'killed process'"),
            _ask_who(facts),
            *go_on(facts),
        ),
    )


def _ask_who(facts: Facts) -> Advice:
    job = facts.job_id
    slurms = "`scancel`, " if facts.in_slurm or job else ""
    return Advice(
        f"ask who sends it: {slurms}an administrator, a service such as systemd-oomd",
        f"sacct -j {job} --format=JobID,State%40,ExitCode" if job else None,
    )


def worker_died(facts: Facts) -> Iterator[Finding]:
    """A worker was killed, and the main process failed for it."""
    said = by_the_run(facts, WORKER_KILLED)
    if said is None:
        return
    match = said.match
    signals = (match[name] for name in match.groupdict() if name.endswith("signal"))
    by = next(filter(None, signals), "").removeprefix("SIG").strip().lower()
    pid = next((match[name] for name in ("pid", "ours", "pids", "launched") if match[name]), "")
    pids = [int(part) for part in pid.split(",") if part.strip().isdigit() and len(part) < 12]
    victim = Victim(False, pids[0] if pids else None, "")
    advice = (
        ()
        if facts.is_ours
        else (Advice("read without workers, so that the error is told", "DataLoader(num_workers=0)"),)
    )
    killed = by.startswith("kill")
    if killed and facts.kills:
        verdict, says = (
            "oom_cgroup",
            "A worker process was killed for memory, and the main process failed for it",
        )
    elif killed and facts.kills is None and (facts.peak_share is None or facts.near_limit is not False):
        # nothing counted: of a log alone it is for memory more often than not
        verdict, says = (
            "unknown",
            "A worker process was killed by SIGKILL, and by whom is not told: the kernel for memory, or "
            "somebody",
        )
    elif killed:
        verdict, says = "killed_from_outside", "A worker process was killed by SIGKILL"
    elif by.startswith("bus"):
        verdict, says = None, "A worker process was ended by SIGBUS"
    else:
        verdict, says = ("oom_cgroup" if facts.kills else "failed"), "A worker process died"
    yield Finding(
        rule="worker_died",
        says=says,
        confidence=said.at_most(
            "possible" if verdict == "unknown" else "certain" if facts.kills and killed else "likely"
        ),
        verdict=verdict,
        victim=victim,
        evidence=all_of(f"{said.line} ({facts.log_name})", counters_line(facts), ended_line(facts)),
        advice=advice,
    )


def disk_is_full(facts: Facts) -> Iterator[Finding]:
    """ENOSPC, not of shared memory."""
    said = by_the_run(facts, DISK_FULL)
    if said is None or "/dev/shm" in said.line or "/torch_" in said.line:
        return
    if (fullest(facts)[2] or 0.0) >= FULL:  # that is what was full
        return
    # write(2) and posix_fallocate(2) name no file: shared memory that has no room says the same
    names_a_file = _A_FILE.search(said.line) is not None or "quota" in said.line
    surely = "certain" if names_a_file and (facts.exit_code or facts.state == "failed") else "likely"
    uses_shm = not names_a_file and bool(script_lines(facts, SHM_WORDS))
    yield Finding(
        rule="disk_is_full",
        says="A disk or a quota is full" if names_a_file else "A disk, a quota or /dev/shm had no room",
        confidence=said.at_most(surely),
        verdict="failed",
        cause="none" if uses_shm else "disk_full",
        evidence=all_of(f"{said.line} ({facts.log_name})", ended_line(facts)),
        advice=(Advice("make room, then type the same command again", "df -h; df -h /dev/shm; quota -s"),),
    )


def failed(facts: Facts) -> Iterator[Finding]:
    """It ended by an error of its own."""
    code = facts.exit_code
    crash = facts.signal in _CRASHES
    # the others have rules of their own
    other = None if facts.signal in (*_TOLD_ELSEWHERE, *_CRASHES) else facts.signal
    counted = failed_row_line(facts)
    is_alone = not (facts.outcome or facts.state) and (counted is not None or facts.slurm is None)
    crash_told = last_line_with(CRASH_TOLD, facts.log) if is_alone else None
    log_says = is_alone and (TRACEBACK in facts.log or crash_told is not None)
    of_its_own = (
        facts.signal in _BY_A_NUMBER and facts.samples and not facts.kills and not facts.lost_a_process
    )
    is_signal = facts.signal is not None and not crash and not (of_its_own and not facts.signal_is_certain)
    says = _by_its_own_error(facts)
    answering = crash and ends_within_a_line(facts.black_boxes)
    if crash:
        says = f"It crashed by {facts.signal}{_ANSWERING if answering else ''}"
    elif crash_told:
        says = "A process of it crashed"
    elif other:
        says = f"It was ended by {other}{_MEANINGS.get(other, '')}"
    if (
        facts.state == "failed"
        or crash
        or other
        or (code is not None and code != 0 and not is_signal)
        or log_says
    ):
        last, reason = last_error(facts.log), facts.reason if facts.state == "failed" else ""
        # by its last words it may as well be another finding's: of memory that was refused, of who was killed
        unsure = code == TIMED_OUT or (log_says and _tells_of_more(last))
        yield Finding(
            rule="failed",
            says=says,
            confidence="certain" if other and facts.signal_is_certain
            else "possible" if unsure else "likely",
            verdict="failed",
            cause="none",
            victim=Victim(True, unsigned(facts.outcome.get("pid"))) if facts.outcome else None,
            evidence=all_of(
                ended_line(facts), f"{crash_told} ({facts.log_name})" if crash_told else None,
                f"the run says: {reason} (status.json)" if reason and reason not in (last or "") else None,
                f"its last error: {last} ({facts.log_name})" if last else None,
                counted, counters_line(facts), peak_line(facts), stage_line(facts),
            ),
            advice=_after_an_answer(facts) if answering
            else (Advice("read its own words", f"less {shlex.quote(f'{facts.evidence.path}/log.txt')}"),)
            if facts.is_ours else (),
        )  # fmt: skip


def _after_an_answer(facts: Facts) -> tuple[Advice, ...]:
    """It seldom happens twice; who is not asked near the limit does not answer."""
    again = Advice("type the same command again: it was no fault of the run, and is rare")
    unasked = Advice("nobody asks it then, nor samples its memory", "memory.supervise=false")
    return (again, unasked) if facts.is_ours else (again,)


def _by_its_own_error(facts: Facts) -> str:
    """That it was not for memory only where what it said is known, or all that could refuse it some."""
    if facts.exit_code is not None and facts.signal in _BY_A_NUMBER:
        own = f"It ended with exit code {facts.exit_code}: its own"
        return f"{own}, or that of a process that {facts.signal} ended"
    limits = mapping(facts.outcome.get("rlimits"))
    standing = [name for name in ("as_bytes", "data_bytes") if unsigned(limits.get(name))]
    last = last_error(facts.log)
    if last is not None and not _tells_of_more(last):
        return "It ended by an error of its own, not for memory"
    if standing and not facts.log.strip():
        return (
            "It ended by an error of its own; what it said is not known, and a limit of its own (ulimit -v, "
            "-d) may have refused it memory"
        )
    return "It ended by an error of its own" + ", and no kill for memory was counted" * (facts.kills == 0)


def _tells_of_more(error: str | None) -> bool:
    """Of memory, or of another process that died: by its own word then not plainly an error of its own."""
    return any(pattern.search(error or "") for pattern in (MEMORY_ERROR, GPU_OOM, SHM_FULL, ANOTHER_DIED))


def ended_well(facts: Facts) -> Iterator[Finding]:
    """Exit code 0, or the state `done`; or it runs."""
    if facts.is_running:
        last = facts.u_series[-1][1] if facts.u_series else None
        now = f": U is {of_limit(facts, last)}" if last is not None else ""
        yield Finding(
            rule="ended_well",
            says=f"It is running{now}{_beside_a_kill(facts)}",
            confidence="likely",
            verdict="healthy",
            cause="none",
            evidence=all_of(stage_line(facts), peak_line(facts), limit_line(facts), counters_line(facts)),
        )
    elif facts.has_ended_well:
        sent = [text(entry.get("signal")) for entry in mappings(facts.outcome.get("signals_passed_on"))]
        asked = next((name for name in reversed(sent) if name in _ASKING), None)
        yield Finding(
            rule="ended_well",
            says="It ended well"
            + (f", after {asked} had asked it to stop" if asked else "")
            + _beside_a_kill(facts),
            confidence="certain",
            verdict="healthy",
            cause="none",
            evidence=all_of(ended_line(facts), peak_line(facts), limit_line(facts), counters_line(facts)),
            advice=() if facts.samples or facts.records else (run_with_us(),),
        )


def _beside_a_kill(facts: Facts) -> str:
    """Slurm calls a step OUT_OF_MEMORY for it, also where the victim was none of this run's."""
    if not facts.kills:
        return ""
    times = "once" if facts.kills == 1 else f"{facts.kills:,} times"
    met = f" (the limit was met {facts.limit_hits:,} times)" if facts.limit_hits else ""
    return (
        f"; in its cgroup the kernel killed for memory {times} while it ran{met}: a process beside it, by "
        "all signs"
    )


def last_error(log: str) -> str | None:
    """The exception that ended the last traceback."""
    at = log.rfind(TRACEBACK)
    if at < 0:
        return None
    lines = [line for line in log[at:].splitlines()[1:] if line and not line[0].isspace()]
    return lines[0][:300] if lines else None
