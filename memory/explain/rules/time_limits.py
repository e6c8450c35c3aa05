"""Time that was up: timeout(1), a timer of its own, the job's time limit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from experiment_utils.json_values import seconds
from memory.explain.advice import go_on
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding
from memory.explain.rules.endings import TIMED_OUT
from memory.explain.telling import all_of, counters_line, ended_line, peak_line, stage_line
from memory.sacct import real_limit

_GRACE_S = 90.0
"""Slurm sends SIGTERM as the time is up, and SIGKILL after KillWait, 30 s by default."""


def out_of_time(facts: Facts) -> Iterator[Finding]:
    """timeout(1), a timer of its own, or a signal as the job's time was up."""
    told = _by_timeout(facts)
    if told is not None:
        says, line, confidence = told
        yield Finding(
            rule="out_of_time",
            says=says,
            confidence=confidence,
            verdict="timeout",
            evidence=all_of(
                line, ended_line(facts), counters_line(facts), stage_line(facts), peak_line(facts)
            ),
            advice=(_more_time(facts), *go_on(facts)),
        )
        return
    end_s = _number_of(facts.environment.get("SLURM_JOB_END_TIME"))
    ended_s = seconds(facts.outcome.get("ended_s"))
    stopped = facts.signal in ("SIGTERM", "SIGKILL", "SIGUSR2", "SIGINT") or facts.state == "cancelled"
    if end_s and ended_s and stopped and -5 < ended_s - end_s < _GRACE_S and not facts.kills:
        yield Finding(
            rule="out_of_time",
            says="It was stopped as the job's time limit was reached",
            confidence="likely",
            verdict="timeout",
            evidence=all_of(
                f"it ended {ended_s - end_s:+.0f} s from the end that Slurm had set "
                "(SLURM_JOB_END_TIME, outcome.json)",
                ended_line(facts), counters_line(facts),
            ),
            advice=(longer(facts), *go_on(facts)),
        )  # fmt: skip


def _more_time(facts: Facts) -> Advice:
    if facts.cpu_limit_s is not None or facts.signal == "SIGXCPU":
        return Advice("lift its limit of CPU time, where it is set", "ulimit -t unlimited")
    return Advice("give it more time")


def longer(facts: Facts) -> Advice:
    """Twice the limit that was reached, where that is known."""
    job = facts.slurm.job if facts.slurm else None
    begin_s, end_s = (
        _number_of(facts.environment.get(f"SLURM_JOB_{name}_TIME")) for name in ("START", "END")
    )
    had_s = job.row.timelimit_s if job else None
    if not had_s and begin_s and end_s:
        had_s = real_limit(end_s - begin_s)
    if not had_s or had_s <= 0:
        return Advice("more time for the job (--time)")
    minutes = -(-2 * int(had_s) // 60)
    days, minutes = divmod(minutes, 24 * 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:00"
    return Advice(
        f"more time for the job; it had {had_s / 60:.0f} min", f"--time={f'{days}-' * bool(days)}{clock}"
    )


def _by_timeout(facts: Facts) -> tuple[str, str, str] | None:
    """(sentence, line of evidence, confidence) where a timer ended it."""
    names = [word.rpartition("/")[2] for word in facts.command]
    at = names.index("timeout") if "timeout" in names else None
    if facts.exit_code == TIMED_OUT and (at is not None or not names):
        return (
            "timeout(1) stopped it",
            "exit code 124 is timeout's (outcome.json)",
            "certain" if names else "likely",
        )
    if facts.exit_code == TIMED_OUT:
        within = any(re.search(r"(?:^|[\s;&|(/])timeout\s", word) for word in facts.command)
        return (
            "timeout(1) stopped a command of it, by its exit code",
            "exit code 124 is what timeout(1) says (outcome.json)",
            "likely" if within else "possible",
        )
    if facts.cpu_limit_s is not None:
        used_s = seconds(facts.outcome.get("cpu_s"))
        used = (
            f"it had used {used_s:.1f} s of CPU, and may use {facts.cpu_limit_s:,} (RLIMIT_CPU; outcome.json)"
        )
        return "The kernel killed it at its own limit of CPU time (ulimit -t)", used, "likely"
    timers = {
        "SIGALRM": "a timer of its own",
        "SIGVTALRM": "a timer of its own",
        "SIGXCPU": "its limit of CPU time",
    }
    if facts.signal in timers:
        return f"It was ended by {timers[facts.signal]}", f"{facts.signal} (outcome.json)", "likely"
    if at is None or facts.signal not in ("SIGKILL", "SIGTERM") or facts.kills:
        return None
    given = next((s for word in facts.command[at + 1 :] if (s := _timeout_s(word)) is not None), None)
    began_s, ended_s = (seconds(facts.outcome.get(f"{name}_s")) for name in ("started", "ended"))
    if given is None or began_s is None or ended_s is None or ended_s - began_s < given - 0.5:
        return None
    lived = f"it lived {ended_s - began_s:.1f} s under a timeout of {given:g} s (outcome.json)"
    return "timeout(1) stopped it", lived, "certain"


def _timeout_s(word: str) -> float | None:
    """`90`, `1.5m`: as timeout(1) takes it."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", word)
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else None


def _number_of(value: object) -> float | None:
    if isinstance(value, str) and value.isdigit() and len(value) < 12:
        return float(value)
    return seconds(value)
