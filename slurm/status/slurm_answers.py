"""What Slurm says of a study's jobs: one squeue and one sacct for all of them, side by side.

squeue with `--states=all` also tells of what has just ended, as long as slurmctld remembers it (MinJobAge,
five minutes by default). Where sacct does not answer, `scontrol show job` tells of those with exit codes; not
where slurmctld is away, for which each client looks 9 to 18 seconds before it says so.

Sources: squeue(1), sacct(1), scontrol(1), of 20.11 to 25.11.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from memory.accounting.sacct import (
    TIMEOUT_S,
    Answer,
    Ask,
    Job,
    client_environment,
    from_sacct,
    from_scontrol,
    moment,
    read_gathering,
    run_client,
    to_seconds,
    why_not,
)
from slurm.cluster.sbatch_errors import is_unreached

FORMAT = "%i|%A|%T|%S|%V|%Q|%P|%N|%l|%r|%j"
"""Of squeue -o: every version from 20.11 on has these. Free text, which may hold a bar, comes last."""
_MOST_SCONTROL = 8
"""Jobs that scontrol is asked about, one call each, where sacct does not answer."""
_RANGE = re.compile(r"^(?P<job>\d+)_\[(?P<tasks>[^\]%]*)(?:%\d+)?\]?$")


@dataclass(frozen=True)
class QueueRow:
    """One row of squeue. job: `4242_3`, `4242`. raw: Slurm's own number of it. start_s: Unix time of the
    start, of a job that waits the expected one. priority: larger goes first. reason: blank for None.
    """

    job: str
    raw: str
    state: str
    reason: str = ""
    start_s: float | None = None
    submitted_s: float | None = None
    priority: int | None = None
    partition: str = ""
    nodes: str = ""
    timelimit_s: float | None = None
    name: str = ""


@dataclass(frozen=True)
class SlurmAnswers:
    """queue: rows of squeue by job, None where it did not answer. accounting: every start of a job, the
    oldest first, None where sacct did not answer. notes: what could not be had, and why.
    """

    queue: dict[str, QueueRow] | None = None
    accounting: dict[str, tuple[Job, ...]] | None = None
    notes: tuple[str, ...] = ()
    source: str = "sacct"
    names: dict[str, str] = field(default_factory=dict)
    """Name of a job to its number, without a task: finds what was submitted and not written down."""
    gathering: Callable[[], Mapping[str, Any]] = dict
    """How this Slurm counts memory (memory.accounting): asked once, and only to explain a death."""

    def row(self, job: str) -> QueueRow | None:
        return (self.queue or {}).get(job)

    def starts(self, job: str) -> tuple[Job, ...]:
        return (self.accounting or {}).get(job, ())


WITHOUT_END_S = 90 * 86400.0
"""So far away no start is expected: Slurm takes a year for a job without a time limit that is before it."""


def ask_slurm(
    jobs: Iterable[str],
    *,
    users: Iterable[str] = (),
    names: bool = False,
    ask: Ask | None = None,
    timeout_s: float = TIMEOUT_S,
) -> SlurmAnswers:
    """Ask once for all of them. Never raises: what cannot be had is a note.

    Args:
        jobs: `4242` of arrays and plain jobs; tasks need not be named. Of none of them nobody is asked.
        users: whose jobs squeue is to list; by default whose this process is.
        names: squeue is asked even where no job is known: there may be one of a name that is.
        ask: runs a command within so many seconds; tests hand in recorded answers.
        timeout_s: of each command; they wait side by side.
    """
    ask = ask or ask_in_unix_time
    bases = list(dict.fromkeys(job.partition("_")[0] for job in jobs))
    if not bases and not names:
        return SlurmAnswers()
    who = list(dict.fromkeys(users)) or [str(os.getuid())]
    squeue = ["squeue", "--noheader", "--array", "--states=all", f"--user={','.join(who)}"]
    notes: list[str] = []
    told: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(ask, [*squeue, f"--format={FORMAT}"], timeout_s)
        found = from_sacct(",".join(bases), ask, timeout_s, told) if bases else []
        answer = asked.result()
    queue, is_away = None, False
    if answer.code == 0:
        queue = parse_squeue(answer.out)
    else:
        is_away = is_unreached(answer.error)
        notes.append(f"{why_not(answer, 'squeue', timeout_s)}: what waits or runs is told by files alone")
    answered = not any(_is_failure(note) for note in told)
    source = "sacct"
    if not answered:
        notes += [f"{note}: without the rows of steps an OOM kill is known from files alone" for note in told]
        found, source = ([] if is_away else _from_scontrol(bases, ask, timeout_s)), "scontrol"
    accounting = _by_job(found)
    numbers = {row.name: row.job.partition("_")[0] for row in (queue or {}).values() if row.name}
    known = accounting if answered or found else None
    gathering = dict if is_away else cache(partial(read_gathering, ask, timeout_s))
    return SlurmAnswers(queue, known, tuple(notes), source, numbers, gathering)


def parse_squeue(text: str) -> dict[str, QueueRow]:
    """Of `squeue --format=FORMAT`, by job and by raw number; a line that is no row is passed over.

    A task range (`50_[3-9%2]`, where --array was not honoured) is told task by task.
    """
    found: dict[str, QueueRow] = {}
    for line in text.splitlines():
        parts = line.split("|", 10)
        if len(parts) < 11 or not parts[0][:1].isdigit():
            continue
        job, raw, state, start, submit, priority, partition, nodes, limit, reason, name = parts
        for one in tasks_of(job):
            row = QueueRow(
                job=one, raw=raw.strip(), state=state.strip(), reason=_no_none(reason), start_s=moment(start),
                submitted_s=moment(submit), priority=int(priority) if priority.isdigit() else None,
                partition=partition, nodes=_no_none(nodes), timelimit_s=to_seconds(limit), name=name.strip(),
            )  # fmt: skip
            found[one] = row
            found.setdefault(row.raw, row)
    return found


def tasks_of(job: str) -> Sequence[str]:
    """`50_[3-5,9%2]` to `50_3`, `50_4`, `50_5`, `50_9`; others as they are. A range that was cut short
    (`50_[3-5,9...]`, SLURM_BITSTR_LEN) gives what can be read.
    """
    match = _RANGE.match(job)
    if match is None:
        return [job]
    found = []
    for part in match["tasks"].split(","):
        span = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?(?::(\d{1,7}))?", part)
        if span is not None:
            first, last = int(span[1]), int(span[2] or span[1])
            found += [f"{match['job']}_{task}" for task in range(first, last + 1, int(span[3] or 1) or 1)]
    return found


def ask_in_unix_time(command: list[str], timeout_s: float) -> Answer:
    """Run a client of Slurm, which is to print times as Unix time, whatever the zone of this process."""
    environment = client_environment() | {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    return run_client(command, timeout_s, environment)


def _from_scontrol(
    bases: list[str], ask: Callable[[list[str], float], Answer], timeout_s: float
) -> list[Job]:
    found: list[Job] = []
    for job in bases[-_MOST_SCONTROL:]:
        notes: list[str] = []
        found += from_scontrol(job, ask, timeout_s, notes)
        if any("did not answer" in note or "no scontrol" in note for note in notes):
            break
    return found


def _is_failure(note: str) -> bool:
    return "knows no job" not in note


def _by_job(jobs: list[Job]) -> dict[str, tuple[Job, ...]]:
    """A row of what waits of an array (`19_[0-3%1]`) is of the tasks that have none of their own: it names
    those too that have begun since.
    """
    found: dict[str, list[Job]] = {}
    of_ranges: dict[str, Job] = {}
    for job in jobs:
        tasks = tasks_of(job.row.job)
        for one in tasks:
            if _RANGE.match(job.row.job):
                of_ranges[one] = job
            else:
                found.setdefault(one, []).append(job)
        if job.row.raw and job.row.raw != job.row.job:
            found.setdefault(job.row.raw, []).append(job)
    for task, job in of_ranges.items():
        found.setdefault(task, [job])
    return {job: tuple(starts) for job, starts in found.items()}


def _no_none(text: str) -> str:
    return "" if text.strip() in ("None", "(null)", "N/A", "None assigned", "") else text.strip()
