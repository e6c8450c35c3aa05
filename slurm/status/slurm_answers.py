"""Slurm's records of a study's jobs: one squeue and one sacct for all of them, in parallel.

squeue with `--states=all` also lists jobs that have just ended, as long as slurmctld remembers them
(MinJobAge, five minutes by default).

Sources: squeue(1), sacct(1), of 20.11 to 25.11.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from memory.accounting.sacct import (
    TIMEOUT_S,
    Answer,
    Ask,
    Job,
    client_environment,
    from_sacct,
    moment,
    read_gathering,
    run_client,
    to_seconds,
    why_not,
)
from slurm.cluster.sbatch_errors import is_unreached

FORMAT = "%i|%A|%T|%S|%V|%Q|%P|%N|%l|%r|%j"
"""For squeue -o, from 20.11 on. Free text, which can contain a bar, comes last."""
_RANGE = re.compile(r"^(?P<job>\d+)_\[(?P<tasks>[^\]%]*)(?:%\d+)?\]?$")


@dataclass(frozen=True)
class QueueRow:
    """One row of squeue."""

    job: str
    """`4242_3`, `4242`."""
    raw: str
    """Slurm's own number of the job."""
    state: str
    reason: str = ""
    """Why it waits; empty for None."""
    start_s: float | None = None
    """Unix time of the start; of a job that waits the expected one."""
    submitted_s: float | None = None
    priority: int | None = None
    """A larger one goes first."""
    partition: str = ""
    nodes: str = ""
    timelimit_s: float | None = None
    name: str = ""


@dataclass(frozen=True)
class SlurmAnswers:
    """Answers of squeue and sacct."""

    queue: dict[str, QueueRow] | None = None
    """Rows of squeue by job; None: it did not answer."""
    accounting: dict[str, tuple[Job, ...]] | None = None
    """Every start of a job, oldest first; None: sacct did not answer."""
    notes: tuple[str, ...] = ()
    """Clients that gave no answer, and why."""
    names: dict[str, str] = field(default_factory=dict)
    """Number of a job by its name, without a task: for a submitter that died before it noted the number."""
    gathering: Callable[[], Mapping[str, Any]] = dict
    """Asks how this Slurm counts memory (memory.accounting): once, and only to explain a death."""

    def row(self, job: str) -> QueueRow | None:
        return (self.queue or {}).get(job)

    def starts(self, job: str) -> tuple[Job, ...]:
        return (self.accounting or {}).get(job, ())


WITHOUT_END_S = 90 * 86400.0
"""A start that is further away is not expected: Slurm counts a job without a time limit as one year."""


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
        jobs: `4242` of arrays and plain jobs, without tasks. Without jobs no client is asked.
        users: whose jobs squeue lists; by default those of this process's user.
        names: ask squeue also without jobs, to find one by its name.
        ask: runs a command with a time limit in seconds; tests give recorded answers.
        timeout_s: of each command; they run in parallel.
    """
    ask, jobs = ask or ask_in_unix_time, list(jobs)
    bases = list(dict.fromkeys(job.partition("_")[0] for job in jobs))
    if not bases and not names:
        return SlurmAnswers()
    who = list(dict.fromkeys(users)) or [str(os.getuid())]
    squeue = ["squeue", "--noheader", "--array", "--states=all", f"--user={','.join(who)}"]
    notes: list[str] = []
    problems: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(ask, [*squeue, f"--format={FORMAT}"], timeout_s)
        found = from_sacct(",".join(bases), _rows_of(jobs, ask), timeout_s, problems) if bases else []
        answer = asked.result()
    queue, is_away = None, False
    if answer.code == 0:
        queue = parse_squeue(answer.out)
    else:
        is_away = is_unreached(answer.error)
        notes.append(f"{why_not(answer, 'squeue', timeout_s)}: what waits or runs is known from files alone")
    failed = [note for note in problems if "knows no job" not in note]
    notes += [f"{note}: without the rows of steps an OOM kill is known from files alone" for note in failed]
    numbers = {row.name: row.job.partition("_")[0] for row in (queue or {}).values() if row.name}
    gathering = dict if is_away else cache(partial(read_gathering, ask, timeout_s))
    return SlurmAnswers(queue, None if failed else _by_job(found), tuple(notes), numbers, gathering)


def parse_squeue(text: str) -> dict[str, QueueRow]:
    """Rows of `squeue --format=FORMAT` by job and by raw number; other lines are skipped.

    A range of tasks (`50_[3-9%2]`, from a squeue that ignores --array) gives a row for each task.
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
    """`50_[3-5,9%2]` to `50_3`, `50_4`, `50_5`, `50_9`; other names as they are.

    A range that was cut short (`50_[3-5,9...]`, SLURM_BITSTR_LEN) gives the tasks that can be read.
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
    """Run a client of Slurm that prints times as Unix time."""
    environment = client_environment() | {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    return run_client(command, timeout_s, environment)


def _rows_of(jobs: Sequence[str], ask: Ask) -> Ask:
    """The client without rows of other tasks: an array of 10,000 runs has 30,000 rows, most of runs done.

    The last task of an array to begin has the array's own number.
    """
    wanted, arrays = set(jobs), {job.partition("_")[0] for job in jobs if "_" in job}

    def is_wanted(line: str) -> bool:
        name, _, rest = line.partition("|")
        job = name.partition(".")[0]
        array, _, task = job.partition("_")
        is_other = job not in wanted and array in arrays and task.isdigit()
        return not is_other or rest.partition("|")[0].partition(".")[0] in arrays

    def filtered(command: list[str], timeout_s: float) -> Answer:
        answer = ask(command, timeout_s)
        return replace(answer, out="\n".join(filter(is_wanted, answer.out.splitlines())))

    return filtered


def _by_job(jobs: list[Job]) -> dict[str, tuple[Job, ...]]:
    """Starts by job. A row of waiting tasks (`19_[0-3%1]`) counts for those without a row of their own.

    It can name tasks that have begun since.
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
