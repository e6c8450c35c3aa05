"""What managers other than Slurm say of a kill for memory or time: of jobs, containers, services, tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding
from memory.explain.telling import all_of, before_the_end, counters_line, ended_line
from memory.explain.wordings import last_match, line_of


@dataclass(frozen=True)
class _Word:
    """pattern: the manager's own line, as a whole. confidence: the most that it allows to be said."""

    pattern: re.Pattern[str]
    verdict: str
    cause: str | None
    says: str
    confidence: str
    advice: tuple[Advice, ...]


def _line(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*(?:{pattern})[^\n]*", re.MULTILINE)


_MORE_TIME = "more time for the job"
_LOGGED = r"(?:[^\n]{0,80} )?"
"""As journald and syslog have it before a service's own words."""
_WORDS = (
    _Word(
        # kubectl describe, get -o yaml, get -o json, get pods, get events
        _line(
            r"(?:Last )?(?:State|Status|Reason):\s+OOMKilled\b|\"?reason\"?: \"?OOMKilled\b"
            r"|\S+\s+\d+/\d+\s+(?:Init:)?OOMKilled\b"
        ),
        "oom_cgroup",
        None,
        "Kubernetes says that a container of it was killed for memory (OOMKilled): at its limit, or as its "
        "node ran out",
        "likely",
        (Advice("a higher limit for the container: resources.limits.memory in its manifest"),),
    ),
    _Word(
        # docker inspect, podman inspect
        _line(r'"OOMKilled": true\b'),
        "oom_cgroup",
        None,
        "Docker says that a process of the container was killed for memory (OOMKilled)",
        "likely",
        (Advice("a higher limit for the container: docker run --memory=..."),),
    ),
    _Word(
        # journalctl, systemctl status
        _line(
            rf"{_LOGGED}\S{{1,120}}\.(?:service|scope): (?:A process of this unit has been killed by the OOM "
            r"killer|Failed with result 'oom-kill')|Active: failed \(Result: oom-kill\)"
        ),
        "oom_cgroup",
        None,
        "systemd says that a process of its unit was killed for memory: at the unit's limit, or as the "
        "machine ran out",
        "likely",
        (Advice("a higher limit for the unit: systemd-run -p MemoryMax=..."),),
    ),
    _Word(
        _line(
            rf"{_LOGGED}systemd-oomd\[\d+\]: Killed \S+ due to"
            rf"|{_LOGGED}earlyoom\[\d+\]: sending SIG(?:TERM|KILL) to process"
            r"|(?:ray\.exceptions\.)?OutOfMemoryError: Task was killed due to the node running low on memory"
        ),
        "killed_from_outside",
        "oom_daemon",
        "Who watches the machine's memory (systemd-oomd, earlyoom, Ray) killed it before the kernel would "
        "have",
        "likely",
        (Advice("hold less at once, start fewer tasks side by side, or take a machine to oneself"),),
    ),
    _Word(
        _line(r"(?:Error from \S+: )?Job has gone over (?:cgroup )?memory limit of"),
        "killed_from_outside",
        "rss_polling",
        "HTCondor held it: what it adds up of the processes' memory was above what the job had asked for",
        "likely",
        (Advice("more memory for the job: request_memory = ... in its submit file"),),
    ),
    _Word(
        # bjobs -l, bhist -l, and the report at the end of a job's output
        _line(r"TERM_MEMLIMIT\b|\S[^\n]{0,80}; TERM_MEMLIMIT\b"),
        "killed_from_outside",
        "rss_polling",
        "LSF killed it at its memory limit (TERM_MEMLIMIT): by what it adds up of the processes' memory, or "
        "by a cgroup where it has them",
        "likely",
        (Advice("more memory for the job: bsub -M, and -R 'rusage[mem=...]' with it"),),
    ),
    _Word(
        _line(
            r"=>> PBS: job killed: p?v?mem [^\n]*exceeded limit|=>> PBS: [^\n]*exceeded (?:mem|memory) limit"
        ),
        "killed_from_outside",
        "rss_polling",
        "PBS's poll killed it: the processes' memory, summed up, was above what the job had asked for",
        "certain",
        (Advice("more memory for the job: qsub -l select=...:mem=... (Torque: -l mem=...)"),),
    ),
    _Word(
        _line(
            r"(?:\S+ )?(?:Killed )?Cgroup mem(?:ory)? limit exceeded\b"
            r"|(?:=>> )?PBS: [^\n]*Cgroup[^\n]*mem\w* limit"
        ),
        "oom_cgroup",
        None,
        "PBS says that the job met the memory limit of its cgroup",
        "likely",
        (Advice("more memory for the job: qsub -l select=...:mem=..."),),
    ),
    _Word(
        _line(r"=>> PBS: job killed: (?:walltime|cput)\b[^\n]*exceeded limit"),
        "timeout",
        "none",
        "PBS killed it as its time was up",
        "certain",
        (Advice(f"{_MORE_TIME}: qsub -l walltime=..."),),
    ),
    _Word(
        _line(r"TERM_(?:RUN|CPU)LIMIT\b|\S[^\n]{0,80}; TERM_RUNLIMIT\b"),
        "timeout",
        "none",
        "LSF killed it as its time was up",
        "likely",
        (Advice(f"{_MORE_TIME}: bsub -W"),),
    ),
)  # fmt: skip


def ended_by_manager(facts: Facts) -> Iterator[Finding]:
    """The last such line of a log, of a run that has not ended well."""
    if facts.is_running or (facts.has_ended_well and not facts.kills):
        return
    for word in _WORDS:
        said = last_match(word.pattern, facts.log)
        if said is None:
            continue
        # of another job, it may be: the kernel counted no kill where this run was, or no signal ended it
        not_killed = facts.exit_code is not None and facts.signal is None
        doubtful = not_killed or (word.verdict == "oom_cgroup" and facts.kills == 0)
        yield Finding(
            rule="ended_by_manager",
            says=word.says,
            confidence="possible" if doubtful else word.confidence,
            verdict=word.verdict,
            cause=word.cause,
            evidence=all_of(
                f"{line_of(said)} ({facts.log_name})", ended_line(facts), counters_line(facts),
                *before_the_end(facts),
            ),
            advice=word.advice,
        )  # fmt: skip
