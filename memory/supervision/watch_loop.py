"""Observation of one attempt: samples into the ring, counters, vanished processes, and how it ended.

Nothing here raises or keeps the run waiting: what fails is a note in outcome.json.
"""

from __future__ import annotations

import os
import time
from typing import Any

from memory.files.reserved_file import Reserved
from memory.measure.cgroup import read_cgroup
from memory.measure.host import dev_shm_space, read_host_details
from memory.measure.limits import read_rlimits
from memory.measure.process import ProcessReader, name_of, read_process, started_at
from memory.record.earlier_attempts import keep_earlier
from memory.record.gpu_use import GpuUse
from memory.record.ring import RingWriter, read_head
from memory.record.stack_requests import shown_path
from memory.supervision.counters import KillCounters
from memory.supervision.near_limit import NearLimit
from memory.supervision.neighbours import NeighbourReader
from memory.supervision.options import Options
from memory.supervision.outcome import beginning, ending, signal_name
from memory.supervision.process_table import KernelLog, ProcessTable
from memory.supervision.sampler import Clock, Look, growth_bytes_per_s, look
from memory.supervision.sampling_interval import SLOWEST_S, next_interval_s
from memory.supervision.signal_inbox import ReceivedSignal

RING, OUTCOME = "memory.ring", "outcome.json"
_ANSWERS_AWAITED_S = 0.02
_OUTCOME_BYTES = 32 << 10
"""Several times the usual size; the command can be long."""
_MOST_SIGNALS = 100
_MOST_NOTES = 20
_ALIVE_IF_SAMPLED_WITHIN_S = 10.0
_RLIMITS = ("as_bytes", "data_bytes", "cpu_hard_s")


class Watch:
    """Observes a command.

    peak: the sample with the highest U. notes: what could not be done, and why. unwritten: why outcome.json
    could not be written. is_ours: no other supervisor uses the folder.
    """

    def __init__(self, options: Options) -> None:
        self.folder = os.path.abspath(options.output)
        self.clock = Clock()
        self.notes: list[str] = []
        self.facts: dict[str, Any] = beginning(options, self.clock.now_s())
        self.options = options
        self.counters = KillCounters()
        self.table = ProcessTable(0)
        self.near_limit = NearLimit(self.folder, options.attempt)
        self.ring: RingWriter | None = None
        self.outcome: Reserved | None = None
        self.last: Look | None = None
        self.peak: Look | None = None
        self.peak_own_bytes: int | None = None
        self._gpu = GpuUse()
        self.taken = 0
        self.passed_over: tuple[int, ...] = ()
        self.unwritten: str | None = None
        self._growth = 0.0
        self._cost_s = self._wait_s = 0.0
        self._neighbours, self._reader = NeighbourReader(), ProcessReader()
        self._due_s = time.monotonic()
        self._kernel_log = KernelLog()
        self._shm_used_before = dev_shm_space()[1]
        self._rlimits: dict[str, int | None] | None = None
        self._sees = _sees_itself()
        if not self._sees:
            self.notes.append("/proc is of another pid namespace: nothing can be measured")
        self.is_ours = not self._has_other_supervisor()
        if self.is_ours:
            self._remove_earlier()
            self._try(self._reserve)

    def limit_bytes(self) -> int | None:
        """Smallest memory limit of this process, before there is a command."""
        found = self._try(read_cgroup, os.getpid()) if self._sees else None
        return None if found is None else found.limit_bytes

    def started(self, pid: int) -> None:
        """The command runs."""
        self.facts["pid"] = pid
        self.table = ProcessTable(pid)
        if not self._sees:
            return
        self._try(self.counters.note, os.getpid())
        if self.is_ours:
            self._try(self._begin_ring, pid)

    def wait_s(self) -> float:
        """Seconds until `tick` has something to do."""
        left_s = max(0.0, self._due_s - time.monotonic())
        return min(left_s, _ANSWERS_AWAITED_S) if self._try(self.near_limit.step) else left_s

    def tick(self) -> None:
        """Take a sample if it is due."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        before_s = time.process_time()
        self._try(self._sample)
        self._cost_s = time.process_time() - before_s
        self._wait_s = self._try(self._interval_s) or SLOWEST_S
        self._due_s = now_s + self._wait_s

    def passed_on(self, received: ReceivedSignal) -> None:
        """A signal was sent on to the command, or came to it as it did to this process."""
        passed = self.facts["signals_passed_on"]
        if len(passed) < _MOST_SIGNALS:
            sender = received.from_pid
            passed.append(
                {
                    "signal": signal_name(received.number),
                    "time_s": round(self.clock.now_s(), 3),
                    "from_pid": sender,
                    "from_name": self._try(name_of, sender) if self._sees and sender else None,
                }
            )

    def gone(self, pid: int) -> None:
        """The command has ended and is not reaped yet: read what the kernel still shows of it."""
        if self._sees:
            self._rlimits = self._try(read_rlimits, pid, "", _RLIMITS) or None

    def ended(self, status: int | None, usage: Any) -> None:
        """Write outcome.json.

        Args:
            status: of wait(2).
            usage: of getrusage(2), for the command and its children that it waited for.
        """
        self.facts.update(ending(status), ended_s=round(self.clock.now_s(), 3))
        if self.outcome is not None and self._has_lost_its_folder():
            self.outcome.drop()
            self.outcome = None
        self._try(self._add_counts, usage)
        self.close()
        self.facts["notes"] = self.notes
        self.facts["sampler"] = {
            "samples": self.taken,
            "cpu_s": round(time.process_time(), 4),
            "rss_bytes": None if (own := read_process(os.getpid())) is None else own.rss_bytes,
        }
        if self.outcome is not None:
            try:
                self.outcome.write_json(self.facts)
            except FileNotFoundError:  # the folder was removed
                return
            except (OSError, ValueError) as error:
                self.unwritten = getattr(error, "strerror", None) or str(error)

    def _has_lost_its_folder(self) -> bool:
        """Whether the run ended because another attempt has taken its folder over."""
        from experiment_utils.exit_status import LEASE_LOST  # not loaded while the run needs the memory

        return self.options.parent is not None and self.facts["exit_code"] == LEASE_LOST

    def close(self) -> None:
        """Close the ring and the log of the kernel."""
        self._try(self.near_limit.close)
        if self.ring is not None:
            self._try(self.ring.close)
        self._try(self._kernel_log.close)

    def _has_other_supervisor(self) -> bool:
        """Whether another supervisor samples into this folder now."""
        head = self._try(read_head, os.path.join(self.folder, RING))
        if head is None:
            return False
        facts, newest = head
        pid, began = facts.get("supervisor_pid"), facts.get("supervisor_started_at")
        if facts.get("host") == self.facts["host"]:
            found = isinstance(pid, int) and began is not None and started_at(pid) == began
        else:
            newest_s = 0.0 if newest is None else newest.time_s
            found = self.clock.now_s() - newest_s < _ALIVE_IF_SAMPLED_WITHIN_S and not os.path.exists(
                os.path.join(self.folder, OUTCOME)
            )
        if found:
            self.notes.append(f"process {pid} watches a run in this folder: its files are left alone")
        return bool(found)

    def _remove_earlier(self) -> None:
        """Move files of an earlier attempt into its folder, and remove those of an earlier start of this one.

        If all is killed they would be taken for this one's.
        """
        attempt = self.options.attempt
        keep_earlier(self.folder, attempt, (OUTCOME, RING))
        boxes = (shown_path(self.folder, attempt), shown_path(self.folder, attempt, "json"))
        for path in (*(os.path.join(self.folder, name) for name in (OUTCOME, RING)), *boxes):
            try:
                os.unlink(path)
            except OSError:
                continue

    def _reserve(self) -> None:
        """Allocate both files before the command starts, which can fill the disk."""
        size = _OUTCOME_BYTES + 4 * sum(map(len, self.options.command))
        self.outcome = Reserved(os.path.join(self.folder, OUTCOME), size)
        self.ring = RingWriter(os.path.join(self.folder, RING))

    def _begin_ring(self, pid: int) -> None:
        names = (
            "version", "command", "host", "attempt", "started_s", "log_bytes_before", "cpus", "environment",
        )  # fmt: skip
        first = look(pid, (os.getpid(),), self.clock.now_s(), passed_over=self.passed_over)
        counted = self.counters.facts(first.limit_at)
        facts = {name: self.facts[name] for name in names} | {
            "limit_at": first.limit_at,
            "host_total_bytes": first.host_total_bytes,
            "cgroup_version": counted["cgroup_version"],
            "cgroup_path": counted["cgroup_path"],
            "unseen_cgroup": counted["unseen_cgroup"],
            "counters_before": counted["counters_before"],
            "pid": pid,
            "started_at": started_at(pid),
            "supervisor_pid": os.getpid(),
            "supervisor_started_at": started_at(os.getpid()),
            "folder": os.path.realpath(self.folder),
        }
        if self.ring is not None:
            self.ring.begin(facts)

    def _sample(self) -> None:
        if not self._sees:
            return
        pid, now_s = self.table.main_pid, self.clock.now_s()
        found = look(
            pid,
            (os.getpid(),),
            now_s,
            passed_over=self.passed_over,
            neighbours=self._neighbours,
            reader=self._reader if self._wait_s >= SLOWEST_S else None,  # else new children count
        )
        if self.last is not None and (not found.main_lives or self._has_just_ended(pid, found)):
            return  # it has no memory any more, and the kernel has taken it out of its cgroup
        sample = found.sample
        self.table.take(found.processes, sample.oom_kills, sample.time_s)
        if found.main_lives and (self.last is None or found.job.path != self.last.job.path):
            self.counters.note(pid)
        self._growth = growth_bytes_per_s(self.last, found)
        self.last = found
        self.taken += 1
        u, highest = sample.unreclaimable_bytes, self.peak and self.peak.sample.unreclaimable_bytes
        if self.peak is None or (u is not None and u > (highest or 0)):
            self.peak = found
        if (own := sample.own_bytes) is not None:
            self.peak_own_bytes = max(self.peak_own_bytes or 0, own)
        if self.ring is not None and (stored := self._try(self.ring.add, sample)) is not None:
            self._gpu.add(stored)
        self._try(self.near_limit.look, found, self.table)

    def _has_just_ended(self, pid: int, found: Look) -> bool:
        """Whether it ended while it was measured: its cgroup is another one, and it has no memory."""
        if self.last is None or self.last.job.path == found.job.path:
            return False
        process = read_process(pid)
        return process is None or process.rss_bytes is None

    def _interval_s(self) -> float:
        if self.last is None:
            return SLOWEST_S
        sample = self.last.sample
        room = None
        if sample.limit_bytes and sample.unreclaimable_bytes is not None:
            room = sample.limit_bytes - sample.unreclaimable_bytes
        return next_interval_s(self.taken, self.last.nearness, self._growth, room, self._cost_s)

    def _add_counts(self, usage: Any) -> None:
        last, peak, table = self.last, self.peak, self.table
        counted = self.counters.facts(None if last is None else last.limit_at)
        before, after = (counted[f"counters_{when}"].get("oom_kill") for when in ("before", "after"))
        rose = None if before is None or after is None else max(0, after - before)
        log = self._kernel_log.read() if rose or self.facts["exit_code"] != 0 else b""
        total, used = dev_shm_space()
        self.facts.update(
            counted,
            limit_bytes=None if last is None else last.sample.limit_bytes,
            limit_at=None if last is None else last.limit_at,
            scope=None if last is None else last.scope,
            children_lost=[
                {
                    "pid": lost.known.pid,
                    "name": lost.known.name,
                    "parent_pid": lost.known.parent_pid,
                    "last_anon_bytes": lost.known.anon_bytes,
                    "time_s": round(lost.time_s, 3),
                }
                for lost in table.lost
            ],
            victim=table.victim(
                main_was_killed=self.facts["signal"] == "SIGKILL",
                rose=rose,
                kernel_log=log,
            ),
            last_oom_kill_s=self._last_kill_s(rose),
            peak_unreclaimable_bytes=None if peak is None else peak.sample.unreclaimable_bytes,
            peak_limit_bytes=None if peak is None else peak.sample.limit_bytes,
            peak_time_s=None if peak is None else round(peak.sample.time_s, 3),
            peak_nearness=None if peak is None or peak.nearness is None else round(peak.nearness, 4),
            peak_own_bytes=self.peak_own_bytes,
            gpu=self._gpu.to_json(),
            last_sample_s=None if last is None else round(last.sample.time_s, 3),
            max_rss_bytes=None if usage is None else usage.ru_maxrss * 1024,
            cpu_s=None if usage is None else round(usage.ru_utime + usage.ru_stime, 3),
            dev_shm={
                "total_bytes": total,
                "used_before_bytes": self._shm_used_before,
                "used_after_bytes": used,
            },
            rlimits=self._rlimits,
            swap_bytes=read_host_details().swap_total_bytes,
        )

    def _last_kill_s(self, rose: int | None) -> float | None:
        """Time of the sample that saw the count rise last, or of the end."""
        if not rose:
            return None
        seen_s = self.table.last_kill_s if self.table.seen_kills >= rose else None
        return self.facts["ended_s"] if seen_s is None else round(seen_s, 3)

    def _try(self, action: Any, *arguments: Any) -> Any:
        """Result of the call; None, and a note, if it raises."""
        try:
            return action(*arguments)
        except Exception as error:
            note = f"{getattr(action, '__name__', action)}: {type(error).__name__}: {error}"[:300]
            if note not in self.notes and len(self.notes) < _MOST_NOTES:
                self.notes.append(note)
            return None


def _sees_itself(proc: str = "/proc") -> bool:
    """Whether /proc shows the pid namespace of this process."""
    try:
        return os.readlink(f"{proc}/self") == str(os.getpid())
    except OSError:
        return True
