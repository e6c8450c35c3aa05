"""What the rules ask of the evidence: one value for each question, whatever files it had to come from.

Of the last attempt alone. Every value is checked; what is not known is None.
"""

from __future__ import annotations

import re
import signal
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from experiment_utils.json_values import mapping, mappings, seconds, text, texts, unsigned
from memory.explain.measured import Measured
from memory.explain.plain_log import plain
from memory.explain.stacks import Frame, frames
from memory.live import process_lives
from memory.sacct import SlurmFacts

FRESH_S = 30.0
_STARVED_S = 5.0
"""A supervisor that lives samples each second, if it is let."""
_TICKS = 0.3
"""The kernel counts CPU time for a limit in ticks, for getrusage as it was: by chance they differ, by a share
of the root of what was used. On a machine that was full, 0.86 s of a limit of 1 s were told.
"""
_FIRST_STAGE = "start"
_ATTEMPT_BEGINS = re.compile(r"\battempt (\d+), on ")
_BOX = re.compile(r"memory\.blackbox\.(\d{1,9})\.")


@dataclass
class Facts(Measured):
    """evidence: of a run. slurm: what Slurm's accounting says, if it was asked."""

    slurm: SlurmFacts | None = None
    now_s: float = field(default_factory=time.time)

    @property
    def status(self) -> dict[str, Any]:
        """status.json, if it is of this attempt."""
        return self.newest.status

    @cached_property
    def exit_code(self) -> int | None:
        code = self.outcome.get("exit_code")
        return code if isinstance(code, int) and not isinstance(code, bool) else None

    @cached_property
    def signal(self) -> str | None:
        """`SIGKILL`: of the main process, or of the one that a shell ran and told of as 128 + n."""
        told = text(self.outcome.get("signal"))
        if told:
            return told
        code = self.exit_code
        if code is not None and (code < 0 or 128 < code < 160):
            try:
                return signal.Signals(-code if code < 0 else code - 128).name
            except ValueError:
                return None
        return None

    @property
    def signal_is_certain(self) -> bool:
        """As wait(2) told it. 128 + n is a habit of shells, and a program may exit so by itself."""
        return bool(text(self.outcome.get("signal"))) or (self.exit_code or 0) < 0

    @cached_property
    def lost_a_process(self) -> bool:
        """Whether a child was seen to vanish, or was there at the last look."""
        last = self.samples[-1] if self.samples else None
        there = last is not None and (len(last.tree) > 1 or (last.processes or 0) > 1)
        return there or bool(mappings(self.outcome.get("children_lost")))

    @cached_property
    def outlived_kills(self) -> bool:
        """It was killed by SIGKILL, and not by what the kernel had counted before. A shell that ends by 137
        tells of a process of its own, which may well be the one that was counted.
        """
        return self.signal == "SIGKILL" and self.signal_is_certain and self.lived_on_s is not None

    @cached_property
    def cpu_limit_s(self) -> int | None:
        """RLIMIT_CPU, where it ended by SIGKILL with that much used: the kernel sends it then."""
        limit = unsigned(mapping(self.outcome.get("rlimits")).get("cpu_hard_s"))
        used_s = seconds(self.outcome.get("cpu_s"))
        met = limit is not None and used_s is not None and used_s >= limit - _TICKS * limit**0.5
        return limit if met and self.outcome.get("signal") == "SIGKILL" and not self.kills else None

    @property
    def kernel_named_victim(self) -> str:
        """The line of the kernel's log that its supervisor read, where no count tells of it; or empty.

        A child that it names is no word for a main process that ended by SIGKILL itself.
        """
        victim = mapping(self.outcome.get("victim"))
        is_it = victim.get("is_main") is True or self.outcome.get("signal") != "SIGKILL"
        return text(victim.get("said")) if not self.kills and is_it else ""

    @cached_property
    def how_it_ended(self) -> str | None:
        """In words, with the file; None where nothing tells."""
        if text(self.outcome.get("signal")):
            return f"it ended by {self.signal} (outcome.json)"
        if self.exit_code is not None:
            code = f"exit code {self.exit_code}"
            return (
                f"{code}, which is 128 + {self.signal} (outcome.json)"
                if self.signal
                else f"{code} (outcome.json)"
            )
        state = text(self.status.get("state"))
        return f"status.json says {state}" if state else None

    @property
    def state(self) -> str:
        """State in status.json; a run that wrote `oom`, of its GPU, has failed by its own word."""
        state = text(self.status.get("state"))
        return "failed" if state == "oom" else state

    @property
    def reason(self) -> str:
        """Why it is not `done`, as the run itself says."""
        return text(self.status.get("reason"))

    @cached_property
    def is_running(self) -> bool:
        """It has not ended, and its process is there; where that cannot be seen, it was heard of just now,
        and Slurm does not say that its job is over.
        """
        if self.outcome or self.state not in ("", "running"):
            return False
        lives = process_lives(self.evidence.path)
        if lives is not None:
            return lives
        job = self.slurm.job if self.slurm is not None else None
        if job is not None and job.is_over:
            return False
        last = self.samples[-1].time_s if self.samples else None
        beat = max(filter(None, [last, seconds(self.status.get("heartbeat_s"))]), default=None)
        return beat is not None and -FRESH_S < self.now_s - beat < FRESH_S * (1 if last else 2)

    @cached_property
    def has_ended_well(self) -> bool:
        """By its own word: exit code 0, or the state `done`."""
        return self.exit_code == 0 or (
            self.exit_code is None and self.signal is None and self.state == "done"
        )

    @cached_property
    def vanished(self) -> bool:
        """It left traces, does not run, and nothing tells how it ended."""
        known = self.exit_code is not None or self.signal or self.state not in ("", "running")
        return not known and not self.is_running and bool(self.samples or self.records or self.state)

    @cached_property
    def unwatched_s(self) -> float | None:
        """How long it was heard of after the last sample, where its supervisor did not see its end."""
        if self.outcome or not self.samples:
            return None
        heard = [
            seconds(self.status.get("heartbeat_s")),
            *(seconds(r.get("time_s")) for r in self.records[-1:]),
        ]
        later_s = max((at for at in heard if at is not None), default=0.0) - self.samples[-1].time_s
        return later_s if later_s > _STARVED_S else None

    @cached_property
    def logs(self) -> dict[str, str]:
        """What the last attempt wrote into each of its logs."""
        told = mapping(self.outcome.get("log_bytes_before") or self.ring_facts.get("log_bytes_before"))
        begins = {name: at for name, value in told.items() if (at := unsigned(value)) is not None}
        return {name: self._of_this_attempt(log) for name, log in self.evidence.logs(begins).items()}

    @cached_property
    def added_log(self) -> str:
        """Of a log that was handed in."""
        return self._of_this_attempt(self.evidence.added)

    @cached_property
    def log(self) -> str:
        """All of `logs`, a log that was handed in, and the run's own word for its end."""
        parts = [*self.logs.values(), self.added_log, self.reason if self.state == "failed" else ""]
        return "\n".join(filter(None, parts))

    def _of_this_attempt(self, log: str) -> str:
        """From where it says that its last attempt begins; nothing if that is an earlier one."""
        log = plain(log)
        begins = list(_ATTEMPT_BEGINS.finditer(log))
        if not begins:
            return log
        of = int(begins[-1][1]) if len(begins[-1][1]) < 10 else 0
        is_newest = of >= self.attempt or not unsigned(self.status.get("attempt"))
        return log[begins[-1].start() :] if is_newest else ""

    @cached_property
    def black_boxes(self) -> list[Path]:
        """Of this attempt, oldest first; one without a number is of any."""
        found = [(path, _BOX.match(path.name)) for path in self.evidence.black_boxes]
        return [path for path, box in found if box is None or int(box[1]) == self.attempt]

    @cached_property
    def frames(self) -> list[Frame]:
        """Where it stood near its limit, of the stage in which it ended: what an earlier one did is over."""
        begun = self.open_stages or [record for record in self.records if record.get("event") == "begin"]
        began_s = seconds(begun[-1].get("time_s")) if begun else None
        return frames(self.black_boxes, began_s)

    @property
    def log_name(self) -> str:
        return self.evidence.log_name

    @cached_property
    def open_stages(self) -> list[dict[str, Any]]:
        """Records of stages that began and did not end, the outermost first."""
        waiting: list[dict[str, Any]] = []
        for record in self.records:
            if record.get("event") == "begin":
                waiting.append(record)
            elif record.get("event") == "end":
                for at in range(len(waiting) - 1, -1, -1):
                    if all(
                        waiting[at].get(key) == record.get(key)
                        for key in ("stage", "rank", "thread", "depth")
                    ):
                        del waiting[at]
                        break
        return waiting

    @cached_property
    def stage(self) -> dict[str, Any] | None:
        """The record of the stage in which it ended: the innermost that is open, else the last."""
        found = self.open_stages or self.records
        return found[-1] if found else None

    @cached_property
    def stage_name(self) -> str:
        return text((self.stage or {}).get("stage")) or (text(self.status.get("stage")) if self.state else "")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config of a run of experiments.py; empty for a foreign command."""
        return mapping(self.evidence.run.get("config"))

    def setting(self, path: str) -> Any:
        """Of the config, with what `auto` became: `training.micro_batch`."""
        group, _, name = path.partition(".")
        value = mapping(self.config.get(group)).get(name)
        return mapping(self.evidence.run.get("auto")).get(name, value) if value == "auto" else value

    @cached_property
    def is_ours(self) -> bool:
        """A run of experiments.py, which takes overrides.

        By its first stage where it ended before run.json was there: imports are a good part of what it needs.
        """
        first = text(self.records[0].get("stage")) if self.records else ""
        return bool(self.config) or (first == _FIRST_STAGE and self.evidence.is_run_folder)

    @cached_property
    def command(self) -> list[str]:
        return texts(self.outcome.get("command")) or texts(self.ring_facts.get("command"))

    @cached_property
    def environment(self) -> dict[str, Any]:
        return mapping(self.outcome.get("environment")) or mapping(self.ring_facts.get("environment"))

    @cached_property
    def job_id(self) -> str | None:
        """Slurm's, as one types it: of the row that is told of, else of the environment."""
        job = self.slurm.job if self.slurm is not None else None
        if job is not None and job.row.job:
            return job.row.job
        array, task = (text(self.environment.get(f"SLURM_ARRAY_{name}")) for name in ("JOB_ID", "TASK_ID"))
        alone = text(self.environment.get("SLURM_JOB_ID"))
        found = f"{array}_{task}" if array and task else alone
        return found if found.replace("_", "").isdigit() else None

    @cached_property
    def in_slurm(self) -> bool:
        """As far as is told: --mem means something."""
        if self.slurm is not None or self.environment.get("SLURM_JOB_ID"):
            return True
        words = [self.limit_at, text(self.outcome.get("cgroup_path")), self.log_name]
        if not any(isinstance(told.get("environment"), dict) for told in (self.outcome, self.ring_facts)):
            words.append(self.log)  # else its supervisor found none of Slurm's variables
        return any("slurm" in word.lower() for word in words)

    @cached_property
    def has_evidence(self) -> bool:
        return bool(
            self.outcome or self.status or self.samples or self.records or self.log.strip() or self.slurm
        )
