"""What the supervisor sees: samples into the ring, counters, who vanished, and how it ended.

Nothing here ever raises or keeps the run waiting: what fails costs the facts that it would have told.
"""

from __future__ import annotations

import os
import time
from typing import Any

from memory.files.reserved_file import Reserved
from memory.measure.cgroup import read_cgroup
from memory.measure.host import dev_shm_space
from memory.measure.process import name_of, read_process, started_at
from memory.record.earlier_attempts import keep_earlier
from memory.record.ring import RingWriter, read_head
from memory.record.stack_requests import shown_path
from memory.supervision.counters import Counters
from memory.supervision.near_limit import NearLimit
from memory.supervision.options import Options
from memory.supervision.outcome import (
    beginning,
    ending,
    host_name,
    own_rss_bytes,
    rlimits,
    rss_unit_bytes,
    signal_name,
    swap_bytes,
)
from memory.supervision.process_table import KernelLog, ProcessTable
from memory.supervision.rate_limited_reads import CalmReads
from memory.supervision.sampler import Clock, Look, look
from memory.supervision.sampling_interval import SLOWEST_S, Allowance, next_interval_s
from memory.supervision.signals import Letter

RING, OUTCOME = "memory.ring", "outcome.json"
_ANSWERS_AWAITED_S = 0.02
_OUTCOME_BYTES = 32 << 10
"""Several times what one has; the command may be long."""
_MOST_SIGNALS = 100
_MOST_NOTES = 20
_ALIVE_IF_SAMPLED_WITHIN_S = 10.0


class Watch:
    """Of one attempt. peak: the sample with the highest U. notes: what could not be done, and why.
    unwritten: why outcome.json could not be written.
    """

    def __init__(self, options: Options) -> None:
        self.folder = os.path.abspath(options.output)
        self.clock = Clock()
        self.notes: list[str] = []
        self.facts: dict[str, Any] = beginning(options, self.clock.now_s())
        self.options = options
        self.counters = Counters()
        self.table = ProcessTable(0)
        self.near_limit = NearLimit(self.folder, options.attempt)
        self.ring: RingWriter | None = None
        self.outcome: Reserved | None = None
        self.last: Look | None = None
        self.peak: Look | None = None
        self.peak_own_bytes: int | None = None
        self.taken = 0
        self.passed_over: tuple[int, ...] = ()
        self.unwritten: str | None = None
        self._growth = 0.0
        self._allowance = Allowance()
        self._reads = CalmReads()
        self._last_interval_s = 0.0
        self._due_s = self._looked_s = time.monotonic()
        self._kernel_log = KernelLog()
        self._shm_used_before = dev_shm_space()[1]
        self._rlimits: dict[str, int | None] | None = None
        self._sees = _sees_itself()
        if not self._sees:
            self.notes.append("/proc is of another pid namespace: nothing can be measured")
        self.is_ours = not self._another_is_at_work()
        if self.is_ours:
            self._forget_what_was()
            self._try(self._take_room)

    def limit_bytes(self) -> int | None:
        """The smallest that counts for this process, before there is a command."""
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
        """Until `tick` has something to do."""
        left_s = max(0.0, self._due_s - time.monotonic())
        return min(left_s, _ANSWERS_AWAITED_S) if self._try(self.near_limit.step) else left_s

    def tick(self) -> None:
        """A sample, if it is time."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + SLOWEST_S
        before_s = time.process_time()
        self._try(self._sample)
        self._allowance.spend(time.process_time() - before_s, now_s - self._looked_s)
        self._looked_s = now_s
        self._last_interval_s = self._try(self._interval_s) or SLOWEST_S
        self._due_s = now_s + self._last_interval_s

    def passed_on(self, letter: Letter) -> None:
        """A signal went to the command, or came to it as it did to us."""
        told = self.facts["signals_passed_on"]
        if len(told) < _MOST_SIGNALS:
            sender = letter.from_pid
            name = self._try(name_of, sender) if self._sees and sender else None
            told.append(
                {
                    "signal": signal_name(letter.number),
                    "time_s": round(self.clock.now_s(), 3),
                    "from_pid": sender,
                    "from_name": name,
                }
            )

    def gone(self, pid: int) -> None:
        """The command has ended and is not reaped yet: what the kernel still tells of it."""
        self._rlimits = self._try(rlimits, pid) if self._sees else None

    def ended(self, status: int | None, usage: Any) -> None:
        """Write down how. usage: of getrusage(2), of the command and of its children that it waited for."""
        self.facts.update(ending(status), ended_s=round(self.clock.now_s(), 3))
        self._try(self._count, usage)
        self._try(self.near_limit.close)
        if self.ring is not None:
            self._try(self.ring.close)
        self.facts["notes"] = self.notes + [
            f"the machine's clock was set by {jump_s:+.1f} s" for jump_s in self.clock.jumps_s[:5]
        ]
        self.facts["sampler"] = {
            "samples": self.taken,
            "cpu_s": round(time.process_time(), 4),
            "rss_bytes": self._try(own_rss_bytes),
        }
        if self.outcome is not None:
            try:
                self.outcome.write_json(self.facts)
            except FileNotFoundError:  # its folder was taken away: nobody waits for it
                return
            except (OSError, ValueError) as error:
                self.unwritten = getattr(error, "strerror", None) or str(error)

    def close(self) -> None:
        """Give back what is held open: nobody will watch."""
        self._try(self.near_limit.close)
        if self.ring is not None:
            self._try(self.ring.close)
        if self._kernel_log._descriptor >= 0:
            self._try(os.close, self._kernel_log._descriptor)
        if self.outcome is not None:
            self.outcome.drop()

    def _another_is_at_work(self) -> bool:
        """Whether another supervisor samples into this folder now: its files are left to it."""
        head = self._try(read_head, os.path.join(self.folder, RING))
        if head is None:
            return False
        facts, newest = head
        pid, began = facts.get("supervisor_pid"), facts.get("supervisor_started_at")
        if facts.get("host") == host_name():
            found = isinstance(pid, int) and began is not None and started_at(pid) == began
        else:
            newest_s = 0.0 if newest is None else newest.time_s
            found = self.clock.now_s() - newest_s < _ALIVE_IF_SAMPLED_WITHIN_S and not os.path.exists(
                os.path.join(self.folder, OUTCOME)
            )
        if found:
            self.notes.append(f"process {pid} watches a run in this folder: its files are left alone")
        return bool(found)

    def _forget_what_was(self) -> None:
        """An outcome of an earlier attempt would be taken for this one's, if everything is killed. It is kept
        in the folder of that attempt; that of a start with the same number is not.
        """
        attempt = self.options.attempt
        keep_earlier(self.folder, attempt, (OUTCOME, RING))
        boxes = (shown_path(self.folder, attempt), shown_path(self.folder, attempt, "json"))
        for path in (*(os.path.join(self.folder, name) for name in (OUTCOME, RING)), *boxes):
            try:
                os.unlink(path)
            except OSError:
                continue

    def _take_room(self) -> None:
        """Before the command starts, which may fill the disk at once."""
        size = _OUTCOME_BYTES + 4 * sum(map(len, self.options.command))
        self.outcome = Reserved(os.path.join(self.folder, OUTCOME), size)
        self.ring = RingWriter(os.path.join(self.folder, RING))

    def _begin_ring(self, pid: int) -> None:
        names = ("version", "command", "host", "attempt", "started_s", "log_bytes_before", "environment")
        first = look(pid, (os.getpid(),), self.clock.now_s(), passed_over=self.passed_over)
        counted = self.counters.told(first.limit_at)
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
        pid = self.table.main_pid
        self._reads.begin(is_calm=self._last_interval_s >= SLOWEST_S)
        found = look(
            pid,
            (os.getpid(),),
            self.clock.now_s(),
            passed_over=self.passed_over,
            reads=self._reads,
            host=self._reads.host(),
        )
        if self.last is not None and (not found.main_lives or self._has_just_ended(pid, found)):
            return  # it has no memory any more, and the kernel has taken it out of its cgroup
        sample = found.sample
        self.table.take(found.processes, sample.oom_kills, sample.time_s)
        if found.main_lives and self._reads.is_turn_of(pid):
            self.counters.note(pid)
        self._growth = growth_bytes_per_s(self.last, found)
        self.last = found
        self.taken += 1
        u, highest = sample.unreclaimable_bytes, self.peak and self.peak.sample.unreclaimable_bytes
        if self.peak is None or (u is not None and u > (highest or 0)):
            self.peak = found
        if (own := sample.own_bytes) is not None:
            self.peak_own_bytes = max(self.peak_own_bytes or 0, own)
        if self.ring is not None:
            self._try(self.ring.add, sample)
        self._try(self.near_limit.look, found, self.table)

    def _has_just_ended(self, pid: int, found: Look) -> bool:
        """While it was looked at: its cgroup is another one, and its memory is gone by now."""
        before = self.last and self.last.job and self.last.job.path
        now = found.job and found.job.path
        if before == now:
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
        return next_interval_s(self.taken, self.last.nearness, self._growth, room, self._allowance.wait_s)

    def _count(self, usage: Any) -> None:
        last, peak, table = self.last, self.peak, self.table
        told = self.counters.told(None if last is None else last.limit_at)
        before, after = told["counters_before"], told["counters_after"]
        counted = "oom_kill" in before and "oom_kill" in after
        rose = max(0, after["oom_kill"] - before["oom_kill"]) if counted else None
        log = self._kernel_log.read() if rose or self.facts["exit_code"] != 0 else b""
        total, used = dev_shm_space()
        self.facts.update(
            told,
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
            last_sample_s=None if last is None else round(last.sample.time_s, 3),
            max_rss_bytes=None if usage is None else usage.ru_maxrss * rss_unit_bytes(),
            cpu_s=None if usage is None else round(usage.ru_utime + usage.ru_stime, 3),
            dev_shm={
                "total_bytes": total,
                "used_before_bytes": self._shm_used_before,
                "used_after_bytes": used,
            },
            rlimits=self._rlimits,
            swap_bytes=swap_bytes(),
        )

    def _last_kill_s(self, rose: int | None) -> float | None:
        """When the count last rose: at the look that saw it, or at the end."""
        if not rose:
            return None
        table = self.table
        is_seen = table.last_kill_s is not None and table.seen_kills >= rose
        return round(table.last_kill_s, 3) if is_seen and table.last_kill_s else self.facts["ended_s"]

    def _try(self, action: Any, *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except Exception as error:
            note = f"{getattr(action, '__name__', action)}: {type(error).__name__}: {error}"[:300]
            if note not in self.notes and len(self.notes) < _MOST_NOTES:
                self.notes.append(note)
            return None


def growth_bytes_per_s(before: Look | None, after: Look) -> float:
    """Bytes a second between two samples of one cgroup: of U, or of all that is charged where that is more.

    The kernel may add up what U is made of two seconds late (mm/memcontrol.c), what is charged never.
    """
    if before is None or before.limit_at != after.limit_at or after.sample.time_s <= before.sample.time_s:
        return 0.0
    pairs = [
        (getattr(before.sample, name), getattr(after.sample, name))
        for name in ("unreclaimable_bytes", "usage_bytes")
    ]
    rises = [new - old for old, new in pairs if old is not None and new is not None]
    return max(rises, default=0.0) / (after.sample.time_s - before.sample.time_s)


def _sees_itself(proc: str = "/proc") -> bool:
    """Whether /proc shows the pid namespace of this process."""
    try:
        return os.readlink(f"{proc}/self") == str(os.getpid())
    except OSError:
        return True
