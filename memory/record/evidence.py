"""Everything that a run left about its memory and its end, as plain values, in whatever state it is.

It can be a run folder of ours, a folder that `python -m memory run` wrote for any command, or a log alone. No
content of a file makes reading raise; `damage` lists the parts that were ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from experiment_utils.json_values import at_path, integer, seconds
from experiment_utils.run_folder import RunFolder
from experiment_utils.safe_read import read_end
from memory.record.earlier_attempts import LOGS
from memory.record.ring import Ring, read_ring
from memory.record.thinned_records import ThinnedRecords

_RANK = re.compile(r"^rank(\d{1,6})$")
LOG_END_BYTES = 256 << 10


class Evidence(RunFolder):
    """Files and samples of a run, with an additional log of the user and its name."""

    def __init__(self, path: Path, added_log: str = "", added_log_name: str = "") -> None:
        super().__init__(path)
        self.added_log, self.added_log_name = added_log, added_log_name
        self._kept: ThinnedRecords | None = None

    @property
    def run(self) -> dict[str, Any]:
        """run.json of the run, also for the folder of one of its ranks."""
        return self.file("run.json" if self._rank is None else "../run.json").value

    @cached_property
    def is_run_folder(self) -> bool:
        """Whether `experiments.py` made the folder: it writes config.yaml first."""
        return (self.path / "config.yaml").is_file()

    @cached_property
    def _rank(self) -> int | None:
        """Number of the rank if this is `RUN/rankN`, the folder of the supervisor of a rank above 0. The rank
        itself writes into the folder of the run.
        """
        named = _RANK.match(self.path.absolute().name)
        return int(named[1]) if named and (self.path / "../run.json").is_file() else None

    @cached_property
    def ring(self) -> Ring | None:
        """memory.ring of the last attempt."""
        return read_ring(self.ring_path)

    @cached_property
    def rings_of_other_ranks(self) -> list[Ring]:
        """memory.ring of each other rank, of its last attempt."""
        run = self.path if self._rank is None else self.path.absolute().parent
        folders = [run, *sorted(path for path in run.glob("rank*") if _RANK.match(path.name))]
        others = (path for path in folders if path.absolute() != self.path.absolute())
        rings = (read_ring(path / "memory.ring") for path in others)
        return [ring for ring in rings if ring is not None]

    @cached_property
    def records(self) -> dict[int, list[dict[str, Any]]]:
        """Stage records of the last attempt by rank, from memory.jsonl and memory.rankN.jsonl.

        The last attempt is the one that wrote last: numbers can begin again. Very many records are thinned
        (`ThinnedRecords`).
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
        """Iterate over the stage records of all attempts and ranks, file by file.

        After the last one `records` needs no further reading.
        """
        kept = ThinnedRecords()
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
        """Last part of each log of the run, by name.

        begins: offset at which the newest attempt begins in each; a shorter file was started again.
        """
        return {name: _end_of(path, (begins or {}).get(name, 0)) for name, path in self.log_files.items()}

    @property
    def log_files(self) -> dict[str, Path]:
        """Paths of the logs that can exist, by name. The log of a rank is in the run's folder."""
        if self._rank is None:
            return {name: self.path / name for name in LOGS}
        name = f"log.rank{self._rank}.txt"
        return {name: self.path / ".." / name}

    @property
    def added(self) -> str:
        """Last part of the user's additional log."""
        return self.added_log[-LOG_END_BYTES:]

    @property
    def log_name(self) -> str:
        """Names of the logs that exist, for messages."""
        names = [name for name, path in self.log_files.items() if path.is_file()]
        return ", ".join(filter(None, [*names, self.added_log_name])) or "log"

    @cached_property
    def black_boxes(self) -> list[Path]:
        """Files with stacks and largest tensors that the run wrote as U neared the limit; oldest first."""
        return sorted(self.path.glob("memory.blackbox*"))


def _attempt(record: dict[str, Any]) -> int:
    return integer(record.get("attempt")) or 0


def _time_s(record: dict[str, Any]) -> float:
    return seconds(record.get("time_s")) or 0.0


def _of_last_process(records: list[dict[str, Any]], attempt: int) -> list[dict[str, Any]]:
    """Records of an attempt, and of its last process if several in sequence used the same number.

    Each process counts `elapsed_s` from 0. Children write into the same file, so a process has ended only if
    none of the earlier ones writes again.
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
