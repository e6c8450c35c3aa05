"""State of a run and of its end, from whichever file has it; None or empty if unknown."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from experiment_utils.json_values import mapping, seconds, text, texts, unsigned
from memory.accounting.sacct import SlurmFacts
from memory.explain.evidence.amounts import Amounts
from memory.explain.evidence.plain_log import plain
from memory.explain.evidence.stacks import Frame, frames
from memory.show.find_live import process_lives

FRESH_S = 30.0
_TICKS = 0.3
"""The kernel counts CPU time for its limit in ticks, getrusage exactly: they differ by a share of the root.
"""
_FIRST_STAGE = "start"
_ATTEMPT_BEGINS = re.compile(r"\battempt (\d+), on ")
_BOX = re.compile(r"memory\.blackbox\.(\d{1,9})\.")


@dataclass
class RunFacts(Amounts):
    """A run's files, and Slurm's answer about its job if it was asked."""

    slurm: SlurmFacts | None = None
    now_s: float = field(default_factory=time.time)

    # How it ended

    @property
    def status(self) -> dict[str, Any]:
        """status.json, if it is of this attempt."""
        return self.newest.status

    @property
    def state(self) -> str:
        """State in status.json; `oom`, which a run writes of its GPU, is a failure."""
        state = text(self.status.get("state"))
        return "failed" if state == "oom" else state

    @property
    def reason(self) -> str:
        return text(self.status.get("reason"))

    @cached_property
    def exit_code(self) -> int | None:
        code = self.outcome.get("exit_code")
        return code if isinstance(code, int) and not isinstance(code, bool) else None

    @cached_property
    def signal(self) -> str | None:
        """`SIGKILL`: of the main process, or of one that a shell ran and passes on as 128 + n."""
        known, code = text(self.outcome.get("signal")), self.exit_code
        if known or code is None or not (code < 0 or 128 < code < 160):
            return known or None
        try:
            return signal.Signals(-code if code < 0 else code - 128).name
        except ValueError:
            return None

    @property
    def signal_is_certain(self) -> bool:
        """The kernel reported it. 128 + n is a habit of shells, and a program may return it itself."""
        return bool(text(self.outcome.get("signal"))) or (self.exit_code or 0) < 0

    @cached_property
    def outlived_kills(self) -> bool:
        """It ended by SIGKILL, and not by the kills that were counted before."""
        return self.signal == "SIGKILL" and self.signal_is_certain and self.lived_on_s is not None

    @cached_property
    def cpu_limit_s(self) -> int | None:
        """RLIMIT_CPU, if it was used up and the run ended by SIGKILL."""
        limit = unsigned(mapping(self.outcome.get("rlimits")).get("cpu_hard_s"))
        used_s = seconds(self.outcome.get("cpu_s"))
        met = limit is not None and used_s is not None and used_s >= limit - _TICKS * limit**0.5
        return limit if met and self.outcome.get("signal") == "SIGKILL" and not self.kills else None

    @property
    def kernel_named_victim(self) -> str:
        """Line of the kernel's log that the supervisor read, if no counter says more."""
        victim = mapping(self.outcome.get("victim"))
        is_it = victim.get("is_main") is True or self.outcome.get("signal") != "SIGKILL"
        return text(victim.get("said")) if not self.kills and is_it else ""

    @cached_property
    def how_it_ended(self) -> str | None:
        """Its end as text, with the file."""
        if text(self.outcome.get("signal")):
            return f"it ended by {self.signal} (outcome.json)"
        if self.exit_code is not None:
            meaning = f", which is 128 + {self.signal}" if self.signal else ""
            return f"exit code {self.exit_code}{meaning} (outcome.json)"
        state = text(self.status.get("state"))
        return f"status.json says {state}" if state else None

    @cached_property
    def is_running(self) -> bool:
        """It has not ended and its process lives; if that cannot be seen, it was heard of just now."""
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
        no_code = self.exit_code is None and self.signal is None
        return self.exit_code == 0 or (no_code and self.state == "done")

    @cached_property
    def vanished(self) -> bool:
        """It left files, does not run, and nothing says how it ended."""
        known = self.exit_code is not None or self.signal or self.state not in ("", "running")
        return not known and not self.is_running and bool(self.samples or self.records or self.state)

    # What it wrote

    @cached_property
    def logs(self) -> dict[str, str]:
        """Text that this attempt wrote into each of its logs."""
        known = mapping(self.outcome.get("log_bytes_before") or self.ring_facts.get("log_bytes_before"))
        begins = {name: at for name, value in known.items() if (at := unsigned(value)) is not None}
        return {name: self._of_this_attempt(log) for name, log in self.evidence.logs(begins).items()}

    @cached_property
    def added_log(self) -> str:
        """The log that the user gave."""
        return self._of_this_attempt(self.evidence.added)

    @cached_property
    def log(self) -> str:
        """All logs, and the run's own reason of its failure."""
        parts = [*self.logs.values(), self.added_log, self.reason if self.state == "failed" else ""]
        return "\n".join(filter(None, parts))

    @property
    def log_name(self) -> str:
        return self.evidence.log_name

    def _of_this_attempt(self, log: str) -> str:
        """From the line on with which the last attempt begins; nothing if that is an earlier one."""
        log = plain(log)
        begins = list(_ATTEMPT_BEGINS.finditer(log))
        if not begins:
            return log
        number = int(begins[-1][1]) if len(begins[-1][1]) < 10 else 0
        is_newest = number >= self.attempt or not unsigned(self.status.get("attempt"))
        return log[begins[-1].start() :] if is_newest else ""

    @cached_property
    def black_boxes(self) -> list[Path]:
        """Stack files of this attempt, oldest first."""
        found = [(path, _BOX.match(path.name)) for path in self.evidence.black_boxes]
        return [path for path, box in found if box is None or int(box[1]) == self.attempt]

    @cached_property
    def frames(self) -> list[Frame]:
        """Its stack near the limit, innermost first, in the stage in which it ended."""
        begun = self.open_stages or [record for record in self.records if record.get("event") == "begin"]
        return frames(self.black_boxes, seconds(begun[-1].get("time_s")) if begun else None)

    # What it was doing, and where

    @cached_property
    def open_stages(self) -> list[dict[str, Any]]:
        """Records of stages that began and did not end, the outermost first."""
        waiting: list[dict[str, Any]] = []
        keys = ("stage", "rank", "thread", "depth")
        for record in self.records:
            if record.get("event") == "begin":
                waiting.append(record)
            elif record.get("event") == "end":
                same = (at for at in range(len(waiting) - 1, -1, -1)
                        if all(waiting[at].get(key) == record.get(key) for key in keys))  # fmt: skip
                if (at := next(same, None)) is not None:
                    del waiting[at]
        return waiting

    @cached_property
    def stage(self) -> dict[str, Any] | None:
        """Record of the stage in which it ended: the innermost open one, else the last."""
        found = self.open_stages or self.records
        return found[-1] if found else None

    @cached_property
    def stage_name(self) -> str:
        return text((self.stage or {}).get("stage")) or (text(self.status.get("stage")) if self.state else "")

    @cached_property
    def config(self) -> dict[str, Any]:
        """Resolved config of a run of experiments.py; empty for another command."""
        return mapping(self.evidence.run.get("config"))

    def setting(self, path: str) -> Any:
        """Value of a config key such as `training.micro_batch`, with what `auto` became."""
        group, _, name = path.partition(".")
        value = mapping(self.config.get(group)).get(name)
        return mapping(self.evidence.run.get("auto")).get(name, value) if value == "auto" else value

    @cached_property
    def is_ours(self) -> bool:
        """A run of experiments.py, which takes overrides; by its first stage if it ended before run.json."""
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
        """Slurm's job id as one types it."""
        job = self.slurm.job if self.slurm is not None else None
        if job is not None and job.row.job:
            return job.row.job
        array, task = (text(self.environment.get(f"SLURM_ARRAY_{name}")) for name in ("JOB_ID", "TASK_ID"))
        found = f"{array}_{task}" if array and task else text(self.environment.get("SLURM_JOB_ID"))
        return found if found.replace("_", "").isdigit() else None

    @cached_property
    def in_slurm(self) -> bool:
        """Whether --mem means something, as far as is known."""
        if self.slurm is not None or self.environment.get("SLURM_JOB_ID"):
            return True
        words = [self.limit_at, text(self.outcome.get("cgroup_path")), self.log_name]
        if not any(isinstance(known.get("environment"), dict) for known in (self.outcome, self.ring_facts)):
            words.append(self.log)
        return any("slurm" in word.lower() for word in words)

    def job_time_s(self, name: str) -> float | None:
        """SLURM_JOB_START_TIME or SLURM_JOB_END_TIME."""
        value = self.environment.get(f"SLURM_JOB_{name}_TIME")
        return (
            float(value) if isinstance(value, str) and value.isdigit() and len(value) < 12 else seconds(value)
        )

    @property
    def after_job_end_s(self) -> float | None:
        """Seconds from the end that Slurm had set to the run's end."""
        end_s, ended_s = self.job_time_s("END"), seconds(self.outcome.get("ended_s"))
        return ended_s - end_s if end_s and ended_s else None

    @cached_property
    def has_evidence(self) -> bool:
        files = self.outcome or self.status or self.samples or self.records
        return bool(files or self.log.strip() or self.slurm)
