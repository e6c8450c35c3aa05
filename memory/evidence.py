"""Everything that a run left behind of its memory and its end, as plain values, whatever state it is in.

A run folder of ours, what `python -m memory run` wrote around a foreign command, or a bare log. Nothing
here raises because of what a file holds; what had to be passed over stands in `damage`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from experiment_utils.safe_read import plain_only, read_plain_text
from memory.earlier_attempts import earlier_attempts
from memory.kept_records import KeptRecords
from memory.ring import Ring, read_ring
from memory.supervision.outcome import LOGS

_RANK = re.compile(r"^rank(\d{1,6})$")
_MOST_TASKS = 256
"""Of one step, whose samples are looked at."""
LOG_END_BYTES = 256 << 10
_LINE_CHARACTERS = 16 << 20
"""A longer one is no record: a file without ends of lines is not to be held whole."""


@dataclass
class Evidence:
    """folder: of the run. Missing files read as empty. added_log: a log that lies elsewhere, and its name."""

    folder: Path
    damage: list[str] = field(default_factory=list)
    added_log: str = ""
    added_log_name: str = ""
    _kept: KeptRecords | None = field(default=None, init=False, repr=False)

    @cached_property
    def status(self) -> dict[str, Any]:
        """status.json, which the run alone writes."""
        return self._object("status.json")

    @cached_property
    def outcome(self) -> dict[str, Any]:
        """outcome.json, which the supervisor writes when the run is gone."""
        return self._object("outcome.json")

    @cached_property
    def run(self) -> dict[str, Any]:
        """run.json; of a rank, which has a folder of its own in the run's, that of the run."""
        return self._object("run.json" if self._rank is None else "../run.json")

    @cached_property
    def is_run_folder(self) -> bool:
        """config.yaml is written before a run is started."""
        return (self.folder / "config.yaml").is_file()

    @cached_property
    def _rank(self) -> int | None:
        """Whose folder this is, where it is that of a rank but 0: `RUN/rankN`, with the supervisor's files
        alone. What the rank itself writes lies in the run's.
        """
        named = _RANK.match(self.folder.absolute().name)
        return int(named[1]) if named and (self.folder / "../run.json").is_file() else None

    @cached_property
    def ring(self) -> Ring | None:
        """memory.ring, of the last attempt."""
        return read_ring(self.folder / "memory.ring")

    @cached_property
    def rings_of_other_ranks(self) -> list[Ring]:
        """memory.ring of each rank but this one, of the last attempt that each has seen; of any command that
        is one of several tasks of a step of Slurm, those of the others, in folders that end in their numbers.
        """
        run = self.folder if self._rank is None else self.folder.absolute().parent
        folders = [run, *sorted(path for path in run.glob("rank*") if _RANK.match(path.name))]
        others = (path for path in folders if path.absolute() != self.folder.absolute())
        rings = (read_ring(path / "memory.ring") for path in others)
        return [ring for ring in rings if ring is not None] + self._rings_of_other_tasks()

    def _rings_of_other_tasks(self) -> list[Ring]:
        own, step = self.folder.absolute(), _task(self.ring)
        if step is None or not own.name.endswith(step[-1]):
            return []
        stem, told = own.name.removesuffix(step[-1]), _told(self.ring, "SLURM_NTASKS")
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
        run = self.folder if self._rank is None else self.folder / ".."
        paths = [path for place in (*earlier_attempts(run), run) for path in sorted(place.glob(own))]
        for path in paths:
            for record in self._lines(path):
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
            return {name: self.folder / name for name in LOGS}
        name = f"log.rank{self._rank}.txt"
        return {name: self.folder / ".." / name}

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
        return sorted(self.folder.glob("memory.blackbox*"))

    def _object(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(read_plain_text(self.folder / name))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            self._tell(f"{name} cannot be read: {error.strerror}")
            return {}
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.damage.append(f"{name} is no JSON object")
            return {}
        return found

    def _lines(self, path: Path) -> Iterator[dict[str, Any]]:
        passed_over = 0
        try:
            with open(path, encoding="utf-8", errors="replace", opener=plain_only) as file:
                for line in iter(lambda: file.readline(_LINE_CHARACTERS), ""):
                    try:
                        record = json.loads(line)
                    except (ValueError, RecursionError):
                        record = None
                    if isinstance(record, dict):
                        yield record
                    elif line.strip("\0 \n"):
                        passed_over += 1
        except OSError as error:
            self._tell(f"{path.name} cannot be read: {error.strerror}")
        if passed_over:
            self._tell(f"{path.name}: {passed_over} line{'s' * (passed_over != 1)} passed over")

    def _tell(self, damage: str) -> None:
        if damage not in self.damage:
            self.damage.append(damage)


def _attempt(record: dict[str, Any]) -> int:
    attempt = record.get("attempt")
    return attempt if isinstance(attempt, int) else 0


def _time_s(record: dict[str, Any]) -> float:
    time_s = record.get("time_s")
    return time_s if isinstance(time_s, int | float) and time_s == time_s else 0.0


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
    snapshot = record.get("snapshot")
    main = snapshot.get("main") if isinstance(snapshot, dict) else None
    pid = main.get("pid") if isinstance(main, dict) else None
    return pid if isinstance(pid, int) else None


def _end_of(path: Path, begin: int = 0) -> str:
    try:
        with open(path, "rb", opener=plain_only) as file:
            size = file.seek(0, 2)
            file.seek(max(begin if begin <= size else 0, size - LOG_END_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _told(ring: Ring | None, name: str) -> str:
    """That variable of the environment that its supervisor noted; empty where it did not."""
    environment = ring.facts.get("environment") if ring else None
    told = environment.get(name) if isinstance(environment, dict) else None
    return told if isinstance(told, str) else ""


def _task(ring: Ring | None) -> tuple[str, ...] | None:
    """Job, step and number in the step; None where it was in none."""
    found = tuple(_told(ring, f"SLURM_{name}") for name in ("JOB_ID", "STEP_ID", "PROCID"))
    return found if all(found) else None
