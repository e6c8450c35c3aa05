"""Everything that a run left behind of its memory and its end, as plain values, whatever state it is in.

A run folder of ours, what `python -m memory run` wrote around a foreign command, or a bare log. Reading never
raises because of what a file holds; `damage` lists what was passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from experiment_utils.json_values import at_path, integer, mapping, seconds, text
from experiment_utils.run_folder import RunFolder
from experiment_utils.safe_read import read_end
from memory.record.earlier_attempts import LOGS
from memory.record.ring import Ring, read_ring
from memory.record.thinned_records import KeptRecords

_RANK = re.compile(r"^rank(\d{1,6})$")
_MOST_TASKS = 256
"""Of one step, whose samples are looked at."""
LOG_END_BYTES = 256 << 10


class Evidence(RunFolder):
    """The files of a run, its samples, and a log from elsewhere that the user gave, with its name."""

    def __init__(self, path: Path, added_log: str = "", added_log_name: str = "") -> None:
        super().__init__(path)
        self.added_log, self.added_log_name = added_log, added_log_name
        self._kept: KeptRecords | None = None

    @property
    def run(self) -> dict[str, Any]:
        """run.json; for the folder of a rank, which is in the folder of the run, that of the run."""
        return self.file("run.json" if self._rank is None else "../run.json").value

    @cached_property
    def is_run_folder(self) -> bool:
        """config.yaml is written before a run is started."""
        return (self.path / "config.yaml").is_file()

    @cached_property
    def _rank(self) -> int | None:
        """Number of the rank if this is the folder of one but 0: `RUN/rankN`, with files of its supervisor
        alone. What the rank itself writes is in the folder of the run.
        """
        named = _RANK.match(self.path.absolute().name)
        return int(named[1]) if named and (self.path / "../run.json").is_file() else None

    @cached_property
    def ring(self) -> Ring | None:
        """memory.ring, of the last attempt."""
        return read_ring(self.ring_path)

    @cached_property
    def rings_of_other_ranks(self) -> list[Ring]:
        """memory.ring of each rank but this one, of the last attempt that each has seen; of any command that
        is one of several tasks of a step of Slurm, those of the others, in folders that end in their numbers.
        """
        run = self.path if self._rank is None else self.path.absolute().parent
        folders = [run, *sorted(path for path in run.glob("rank*") if _RANK.match(path.name))]
        others = (path for path in folders if path.absolute() != self.path.absolute())
        rings = (read_ring(path / "memory.ring") for path in others)
        return [ring for ring in rings if ring is not None] + self._rings_of_other_tasks()

    def _rings_of_other_tasks(self) -> list[Ring]:
        own, step = self.path.absolute(), _task(self.ring)
        if step is None or not own.name.endswith(step[-1]):
            return []
        stem, told = own.name.removesuffix(step[-1]), _variable(self.ring, "SLURM_NTASKS")
        tasks = min(int(told), _MOST_TASKS) if told.isdigit() else 0
        rings = (read_ring(own.parent / f"{stem}{n}" / "memory.ring") for n in range(tasks))
        found = ((ring, _task(ring)) for ring in rings if ring is not None)
        return [ring for ring, task in found if task and task[:-1] == step[:-1] and task != step]

    @cached_property
    def records(self) -> dict[int, list[dict[str, Any]]]:
        """Stage records of the last attempt by rank: of memory.jsonl and memory.rankN.jsonl.

        The last is the one that wrote last: numbers may begin again. Of very many records some are left out
        (`KeptRecords`).
        """
        if self._kept is None:
            for _ in self.all_records():
                continue
        found = {} if self._kept is None else self._kept.by_rank
        ends = [records[-1] for records in found.values()]
        newest = _attempt(max(ends, key=lambda record: (_time_s(record), _attempt(record)), default={}))
        last = {rank: _of_last_process(records, newest) for rank, records in found.items()}
        return {rank: records for rank, records in sorted(last.items()) if records}

    def all_records(self) -> Iterator[dict[str, Any]]:
        """Stage records of all attempts and ranks, file by file, each read as it is asked for. After the last
        of them `records` need not be read again.
        """
        kept = KeptRecords()
        own = "memory*.jsonl" if self._rank is None else f"memory.rank{self._rank}.jsonl"
        run = self if self._rank is None else RunFolder(self.path / "..")
        for place in (*run.attempt_folders(), run.path):
            for path in sorted(place.glob(own)):
                for record in self.json_lines(str(path.relative_to(self.path))):
                    if isinstance(record.get("rank"), int) and isinstance(record.get("stage"), str):
                        kept.add(record)
                        yield record
        self._kept = kept

    def logs(self, begins: Mapping[str, int] | None = None) -> dict[str, str]:
        """The end of each file that the run wrote, by name.

        begins: where in each its newest attempt begins, in bytes; a file that is shorter was begun anew.
        """
        return {name: _end_of(path, (begins or {}).get(name, 0)) for name, path in self.log_files.items()}

    @property
    def log_files(self) -> dict[str, Path]:
        """Where what it printed may stand, by name; a rank's lies in the run's folder."""
        if self._rank is None:
            return {name: self.path / name for name in LOGS}
        name = f"log.rank{self._rank}.txt"
        return {name: self.path / ".." / name}

    @property
    def added(self) -> str:
        """The end of the log that was added."""
        return self.added_log[-LOG_END_BYTES:]

    @property
    def log_name(self) -> str:
        """Names of the files that `log` is of."""
        names = [name for name, path in self.log_files.items() if path.is_file()]
        return ", ".join(filter(None, [*names, self.added_log_name])) or "log"

    @cached_property
    def black_boxes(self) -> list[Path]:
        """What was asked of the run when U came near the limit: stacks, largest tensors; oldest first."""
        return sorted(self.path.glob("memory.blackbox*"))


def _attempt(record: dict[str, Any]) -> int:
    return integer(record.get("attempt")) or 0


def _time_s(record: dict[str, Any]) -> float:
    return seconds(record.get("time_s")) or 0.0


def _of_last_process(records: list[dict[str, Any]], attempt: int) -> list[dict[str, Any]]:
    """Of that attempt; where several processes one after the other gave it the same number, of the last.

    Each counts `elapsed_s` from 0. Forked and spawned children write into the same file: a process is over
    only where none of those before it is heard of again.
    """
    found = [record for record in records if _attempt(record) == attempt]
    pids = [_pid(record) for record in found]
    last_heard = {pid: at for at, pid in enumerate(pids) if pid is not None}
    begin, heard = 0, -1
    for at, (record, pid) in enumerate(zip(found, pids, strict=True)):
        if pid is not None and record.get("elapsed_s") == 0 and -1 < heard < at:
            begin = at
        heard = max(heard, at if pid is None else last_heard[pid])
    return found[begin:]


def _pid(record: dict[str, Any]) -> int | None:
    return integer(at_path(record, "snapshot.main.pid"))


def _end_of(path: Path, begin: int = 0) -> str:
    try:
        return read_end(path, LOG_END_BYTES, begin).decode(errors="replace")
    except OSError:
        return ""


def _variable(ring: Ring | None, name: str) -> str:
    """A variable of the environment that the supervisor recorded; empty if it did not."""
    return text(mapping(mapping(ring.facts if ring else None).get("environment")).get(name))


def _task(ring: Ring | None) -> tuple[str, ...] | None:
    """Job, step and number in the step; None if it was in none."""
    found = tuple(_variable(ring, f"SLURM_{name}") for name in ("JOB_ID", "STEP_ID", "PROCID"))
    return found if all(found) else None
