"""The rules, in order: of findings that are equally sure the earlier one is the verdict, or the cause.

To add one: write `def rule(facts: Facts) -> Iterator[Finding]` in the file of its family, and name it here.
A rule that tells how a run ended sets `verdict`, one that tells why sets `cause`; it yields nothing where it
has nothing to say, and says `certain` only where the kernel, Slurm or the run itself does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from memory.explain.facts import Facts
from memory.explain.finding import Finding
from memory.explain.rules import (
    deaths,
    endings,
    gpu,
    growth,
    jobs,
    loading,
    machine,
    managers,
    pressure,
    shared_memory,
    sigkill,
    slurm,
    time_limits,
    workers,
)

Rule = Callable[[Facts], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    # how it ended
    machine.killed_by_host,
    deaths.killed_as_group,
    deaths.killed_in_cgroup,
    deaths.named_by_kernel,
    slurm.out_of_memory,
    slurm.polled_kill,
    slurm.polled_kill_without_log,
    managers.ended_by_manager,
    gpu.gpu_out_of_memory,
    shared_memory.shm_full,
    deaths.memory_error,
    slurm.ended_by_slurm,
    time_limits.out_of_time,
    endings.asked_to_stop,
    deaths.killed_uncounted,
    endings.killed_from_outside,
    endings.worker_died,
    endings.disk_is_full,
    endings.ended_well,
    slurm.completed,
    jobs.not_over,
    sigkill.sigkill_in_accounting,
    sigkill.sigkill_in_log,
    endings.failed,
    slurm.counted_as_failed,
    deaths.nothing_known,
    # why: the special before the general
    machine.parent_limit,
    machine.neighbours,
    workers.copy_on_write,
    shared_memory.stale_files,
    shared_memory.shared_memory,
    loading.sampler_list,
    loading.private_writes,
    loading.whole_file,
    workers.many_workers,
    growth.page_tables,
    pressure.thrash,
    pressure.swapped,
    pressure.throttled,
    growth.leak,
    growth.growth,
    pressure.cache_at_the_limit,
    pressure.rss_above_the_limit,
    # what else is worth knowing
    jobs.one_of_several,
    slurm.max_rss,
    slurm.requeued,
)
