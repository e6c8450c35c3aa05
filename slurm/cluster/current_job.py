"""The job of Slurm that this process is in: its state, and a request for another start of it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

from experiment_utils.quantities import parse_duration
from memory.accounting.sacct import Answer, run_client
from slurm.cluster.sbatch_errors import is_unanswered, is_unreached

ANSWER_S = 20.0
_REQUEUE_TRIES = 3
_AWAY_S = 600.0
"""Seconds for which a slurmctld that is away is waited for: a backup takes over after some minutes."""
_TRIES = 5
CANCELLED = "it was cancelled meanwhile"
_WAITS = re.compile(r"pending execution", re.IGNORECASE)
"""Message of Slurm about a job that is requeued and waits already: another of its steps has asked."""
_GONE = re.compile(r"invalid job id|not found", re.IGNORECASE)

Ask = Callable[[list[str]], Answer]


def ask(command: list[str]) -> Answer:
    """Run a client command, again if a signal ended it: Slurm and srun each signal all of a step, so
    that the second signal meets the command that the first one caused.
    """
    for _ in range(_TRIES):
        answer = run_client(command, ANSWER_S)
        if answer.code >= 0:
            break
    return answer


@dataclass(frozen=True)
class Job:
    """A job, and this process in it."""

    id: str
    """Id as Slurm shows it: `4242` or `4242_3`."""
    raw_id: str
    """Number of this task of an array alone."""
    restart: int = 0
    """Number of requeues before."""
    rank: int = 0
    """Rank of this process in its run."""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Job | None:
        """The job of this process; None outside of a job."""
        raw = environment.get("SLURM_JOB_ID")
        if not raw:
            return None
        array, task = (environment.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
        return cls(
            id=f"{array}_{task}" if array and task else raw,
            raw_id=raw,
            restart=_number(environment.get("SLURM_RESTART_COUNT")),
            rank=_number(environment.get("SLURM_PROCID")),
        )

    def is_being_preempted(self, ask: Ask = ask) -> bool | None:
        """Whether it runs and another job is to take its place: Slurm does not requeue it if it ends before.
        None: Slurm does not say.
        """
        shown = self._shown(ask)
        return None if shown is None else shown.get("JobState") == "RUNNING" and _has_preempt_time(shown)

    def is_to_go_on(self, ask: Ask = ask) -> bool | None:
        """Whether Slurm has no reason to end it: no cancel, no requeue, no time limit, no preemption. None:
        Slurm does not say.
        """
        shown = self._shown(ask)
        return None if shown is None else shown.get("JobState") == "RUNNING" and not _has_preempt_time(shown)

    def _is_cancelled(self, ask: Ask) -> bool:
        """Whether Slurm ends this start and neither requeues the job (which is counted by then), nor ends it
        at its time limit or for another job (PreemptMode=CANCEL). False if Slurm does not say.
        """
        shown = self._shown(ask) or {}
        if {"COMPLETING", "CANCELLED"}.isdisjoint(shown.get("JobState", "").split(",")):
            return False
        is_for_another = shown.get("PreemptTime", "") == shown.get("EndTime")
        is_over = shown.get("Reason") == "TimeLimit"
        return not is_over and not is_for_another and _number(shown.get("Restarts")) <= self.restart

    def _shown(self, ask: Ask) -> dict[str, str] | None:
        """Values of `scontrol show job`; None without an answer."""
        answer = ask(["scontrol", "--oneliner", "show", "job", self.id])
        if answer.code != 0:
            return None
        return dict(word.partition("=")[::2] for word in answer.out.split())

    def left_s(self, ask: Ask = ask) -> float | None:
        """Seconds until its time limit; None: it has none, or Slurm does not say."""
        answer = ask(["squeue", "--noheader", f"--jobs={self.id}", "--format=%L"])
        try:
            return parse_duration(answer.out) if answer.code == 0 else None
        except ValueError:
            return None

    def asked_for(self, ask: Ask = ask, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Its `mem` and `time`, as sbatch takes them, if they are known and limited."""
        of_cpus, cpus = (_number(environment.get(f"SLURM_{it}")) for it in ("MEM_PER_CPU", "CPUS_ON_NODE"))
        memory = _number(environment.get("SLURM_MEM_PER_NODE")) or of_cpus * cpus
        found = {"mem": f"{memory}M"} if memory else {}
        answer = ask(["squeue", "--noheader", f"--jobs={self.id}", "--format=%l"])
        limit = answer.out.strip()
        try:
            is_limit = answer.code == 0 and parse_duration(limit) is not None
        except ValueError:
            is_limit = False
        return found | ({"time": limit} if is_limit else {})

    def requeue(self, ask: Ask = ask, pause_s: float = 2.0) -> str | None:
        """Put it back into the queue; soon after that Slurm ends this process. Returns why Slurm refused.

        The id is `ARRAY_TASK`, since the raw number of an array's last task is that of the whole array. Slurm
        also requeues a job that was cancelled and still ends, so that is checked before.
        """
        tries, until_s = 0, time.monotonic() + _AWAY_S
        while True:
            if self._is_cancelled(ask):
                return CANCELLED
            answer = ask(["scontrol", "requeue", self.id])
            if answer.code == 0 or _WAITS.search(answer.error):
                return None
            said = answer.error.strip() or answer.out.strip() or f"exit code {answer.code}"
            is_away = answer.code == 124 or is_unreached(said) or is_unanswered(said, answer.code)
            if not is_away or time.monotonic() > until_s:
                tries += 1
            if tries == _REQUEUE_TRIES:
                return said
            time.sleep(pause_s)


def has_ended(job_id: str, ask: Ask = ask) -> bool | None:
    """Whether a job has ended, or is not known to Slurm any more. None: Slurm does not say."""
    answer = ask(["squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%A %T"])
    if answer.code != 0:
        return True if _GONE.search(answer.error) else None
    rows = [line.split() for line in answer.out.splitlines()]  # of all tasks of an array
    states = {row[1] for row in rows if len(row) == 2 and row[0] == job_id}
    return not states & {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING"}


def leave_other_array(environment: MutableMapping[str, str] = os.environ, ask: Ask = ask) -> None:
    """Remove variables of another array. sbatch passes its environment on: a job that was submitted from a
    task of an array would take itself for that task, and requeue it.
    """
    raw, array = (environment.get(f"SLURM_{name}_ID") for name in ("JOB", "ARRAY_JOB"))
    if not raw or not array or raw == array:
        return
    answer = ask(["squeue", "--noheader", f"--jobs={raw}", "--format=%F"])
    arrays = answer.out.split() if answer.code == 0 else []
    if arrays and array not in arrays:
        for name in [name for name in environment if name.startswith("SLURM_ARRAY_")]:
            del environment[name]


def _has_preempt_time(shown: Mapping[str, str]) -> bool:
    return shown.get("PreemptTime", "None") not in ("None", "")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
