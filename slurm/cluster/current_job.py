"""Which job of Slurm this process is in; what Slurm says of it; asking for another start of it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

from experiment_utils.quantities import parse_duration
from memory.accounting.sacct import client_environment
from slurm.cluster.sbatch_errors import is_unanswered, is_unreached

ANSWER_S = 20.0
_REQUEUE_TRIES = 3
_AWAY_S = 600.0
"""So long a slurmctld that is away is waited for: a backup takes over after two minutes or so."""
_ASKED_TIMES = 5
_TOO_LATE = 124
CANCELLED = "it was cancelled meanwhile"
_WAITS = re.compile(r"pending execution", re.IGNORECASE)
"""Slurm's word for a job that is to be put back and waits already: another of its steps has asked."""
_GONE = re.compile(r"invalid job id|not found", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """Of a command: code 127 where there is none of that name, _TOO_LATE where it took too long."""

    code: int
    out: str = ""
    error: str = ""


Ask = Callable[[list[str]], Answer]


def ask(command: list[str]) -> Answer:
    """Run a command of Slurm's; again where a signal ended it: Slurm and srun signal all processes of a step,
    each for itself, and the later of the two meets what was asked because of the first.
    """
    for _ in range(_ASKED_TIMES):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=ANSWER_S, env=client_environment()
            )
        except subprocess.TimeoutExpired:
            return Answer(_TOO_LATE, "", f"{command[0]} did not answer within {ANSWER_S:.0f} s")
        except OSError as error:
            return Answer(127, "", f"{command[0]}: {error.strerror}")
        if done.returncode >= 0:
            break
    return Answer(done.returncode, done.stdout, done.stderr.strip())


@dataclass(frozen=True)
class Job:
    """id: as Slurm writes it, `4242` or `4242_3`. raw_id: the number of this task alone. restart: how often
    it was put back into the queue. rank: of this process among those of the run.
    """

    id: str
    raw_id: str
    restart: int = 0
    rank: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Job | None:
        """None where this is no job."""
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
        """Whether it still runs, and another job is to have its place: if it ends by itself then, Slurm does
        not put it back into the queue. None: Slurm does not say.
        """
        told = self._shown(ask)
        return None if told is None else _stands(told) == ("RUNNING", True)

    def is_to_go_on(self, ask: Ask = ask) -> bool | None:
        """Whether Slurm has no reason to end it: nobody has cancelled it or put it back, its time is not up,
        and no other job is to have its place. None: Slurm does not say.
        """
        told = self._shown(ask)
        return None if told is None else _stands(told) == ("RUNNING", False)

    def _is_cancelled(self, ask: Ask) -> bool:
        """Whether Slurm ends this start, neither to put the job back (that is counted by now), nor because
        its time is up or another job has its place (PreemptMode=CANCEL). False where Slurm does not say.
        """
        told = self._shown(ask) or {}
        if {"COMPLETING", "CANCELLED"}.isdisjoint(told.get("JobState", "").split(",")):
            return False
        is_for_another = told.get("PreemptTime", "") == told.get("EndTime")
        is_over = told.get("Reason") == "TimeLimit"
        return not is_over and not is_for_another and _number(told.get("Restarts")) <= self.restart

    def _shown(self, ask: Ask) -> dict[str, str] | None:
        """`scontrol show job`. None: no answer."""
        answer = ask(["scontrol", "--oneliner", "show", "job", self.id])
        if answer.code != 0:
            return None
        return dict(word.partition("=")[::2] for word in answer.out.split())

    def left_s(self, ask: Ask = ask) -> float | None:
        """Until its time limit, by Slurm's word. None: it has none, or Slurm does not say."""
        answer = ask(["squeue", "--noheader", f"--jobs={self.id}", "--format=%L"])
        try:
            return parse_duration(answer.out) if answer.code == 0 else None
        except ValueError:
            return None

    def asked_for(self, ask: Ask = ask, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Its `mem` and `time`, as sbatch takes them; without what Slurm does not tell, or does not limit."""
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
        """Put it back into the queue; soon after that Slurm ends this process. What Slurm said if it refused.

        The number alone would not do: of an array's last task it is that of the whole array. Slurm takes a
        job back that was cancelled, too, as long as it ends: that is looked at before.
        """
        tries, until_s = 0, time.monotonic() + _AWAY_S
        while True:
            if self._is_cancelled(ask):
                return CANCELLED
            answer = ask(["scontrol", "requeue", self.id])
            if answer.code == 0 or _WAITS.search(answer.error):
                return None
            said = answer.error or answer.out.strip() or f"exit code {answer.code}"
            is_away = answer.code == _TOO_LATE or is_unreached(said) or is_unanswered(said, answer.code)
            if not is_away or time.monotonic() > until_s:
                tries += 1
            if tries == _REQUEUE_TRIES:
                return said
            time.sleep(pause_s)


def has_ended(job_id: str, ask: Ask = ask) -> bool | None:
    """Whether Slurm no longer knows a job, or knows it as ended. None: Slurm does not answer."""
    answer = ask(["squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%A %T"])
    if answer.code != 0:
        return True if _GONE.search(answer.error) else None
    rows = [line.split() for line in answer.out.splitlines()]  # of all tasks of an array
    states = {row[1] for row in rows if len(row) == 2 and row[0] == job_id}
    return not states & {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING"}


def leave_other_array(environment: MutableMapping[str, str] = os.environ, ask: Ask = ask) -> None:
    """sbatch hands its environment on: a plain job that was submitted from inside a task of an array has got
    that one's variables, and would take itself for it, and put it back into the queue. They are taken away.
    """
    raw, array = (environment.get(f"SLURM_{name}_ID") for name in ("JOB", "ARRAY_JOB"))
    if not raw or not array or raw == array:
        return
    answer = ask(["squeue", "--noheader", f"--jobs={raw}", "--format=%F"])
    told = answer.out.split() if answer.code == 0 else []
    if told and array not in told:
        for name in [name for name in environment if name.startswith("SLURM_ARRAY_")]:
            del environment[name]


def _stands(told: Mapping[str, str]) -> tuple[str, bool]:
    """JobState, and whether there is a PreemptTime."""
    return told.get("JobState", ""), told.get("PreemptTime", "None") not in ("None", "")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
