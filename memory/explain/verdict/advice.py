"""The advice that rows name: from the cheapest to more memory, by what the signals say."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable

from experiment_utils.json_values import mapping, text
from memory.accounting.sacct import count_nodes, real_limit
from memory.estimate.constants import LIBRARIES_MAPPED
from memory.explain.evidence.savings import estimated, polled_bytes, recommended
from memory.explain.evidence.slurm_rows import polled_rss_bytes
from memory.explain.signals import Signals
from memory.explain.verdict.explanation import Advice
from memory.explain.verdict.smaller_or_more import (
    OF_SRUN,
    cheapest_first,
    more_memory,
    no_workers,
    runs_python,
    smaller_steps,
    uses_torch,
)


def advice_of(s: Signals, names: str) -> tuple[Advice, ...]:
    """Advice by names, keys of `ADVICE`."""
    found: list[Advice] = []
    for name in names.split():
        known = ADVICE[name]
        found += known if isinstance(known, tuple) else known(s)
    return tuple(found)


def _raise_mem(asked_bytes: int, *, is_of_step: bool = False) -> tuple[Advice, ...]:
    """Half as much again as was requested, of the job or of its srun."""
    words = f"more memory for the {'step' if is_of_step else 'job'}; sample the next run, to see how much"
    words += OF_SRUN * is_of_step
    if not asked_bytes:
        return (Advice(f"{words} (--mem)"),)
    return (Advice(words, f"--mem={-(-asked_bytes * 3 // 2 >> 20)}M"),)


def _is_of_step(s: Signals) -> bool:
    return 0 < s.slurm.asked_bytes < s.slurm.job_asked_bytes


def _more_for_job(s: Signals) -> Iterable[Advice]:
    more = _raise_mem(s.slurm.asked_bytes, is_of_step=_is_of_step(s))
    return more if _is_of_step(s) and s.kills != "counted" else cheapest_first(s.facts) or more


def _below_the_poll(s: Signals) -> Iterable[Advice]:
    """Less RSS, where Slurm polls it: with every mapped page that was touched."""
    facts, polled, reader = s.facts, polled_bytes(s.facts), s.facts.setting("dataset.reader")
    top = max(facts.samples, key=lambda sample: sample.tree_rss_bytes or 0, default=None)
    maps_little = top is not None and 4 * (top.tree_anon_bytes or 0) > 3 * (top.tree_rss_bytes or 0)
    reads_already = s.is_ours and reader in ("pread", "auto")  # auto is pread there
    if not maps_little and not reads_already:
        yield from _read_less(s) if s.is_ours else _READ_WITHOUT_MAP
    yield from smaller_steps(facts)
    yield from no_workers(facts)
    needed = recommended(facts) and estimated(facts) if polled else None
    rss = max(s.slurm.rss_bytes, polled_rss_bytes(facts.log, s.limit_bytes), facts.peak_bytes or 0)
    if needed:
        yield from more_memory(facts, needed)
    elif _is_of_step(s):
        yield from _raise_mem(s.slurm.rss_bytes, is_of_step=True)
    else:
        yield from more_memory(facts, rss or None) or _raise_mem(s.slurm.asked_bytes)


def _read_less(s: Signals) -> Iterable[Advice]:
    """Reads that map nothing."""
    held, limit = s.facts.peak_bytes or 0, s.limit_bytes
    if not s.is_ours:
        yield Advice("advise the kernel that reads are random", "mmap.madvise(mmap.MADV_RANDOM)")
        yield Advice("or read with pread(2) instead of a map", "os.pread")
    elif limit and limit - held < LIBRARIES_MAPPED.value and s.pressure.seconds:
        yield from cheapest_first(s.facts, need_bytes=held + int(LIBRARIES_MAPPED.value))
    else:
        yield Advice("read only the bytes of each window", "dataset.reader=pread")
        yield Advice("or give pages back as the reading proceeds", "dataset.max_resident=256MB")


def _resume(s: Signals) -> Iterable[Advice]:
    if s.is_ours:
        yield Advice("type the same command again: it resumes from its newest checkpoint")


def _longer(s: Signals) -> Advice:
    """Twice the time limit that was reached, if it is known."""
    job = s.facts.slurm.job if s.facts.slurm else None
    begin_s, end_s = s.facts.job_time_s("START"), s.facts.job_time_s("END")
    had_s = job.row.timelimit_s if job else None
    if not had_s and begin_s and end_s:
        had_s = real_limit(end_s - begin_s)
    if not had_s or had_s <= 0:
        return Advice("more time for the job (--time)")
    days, minutes = divmod(-(-2 * int(had_s) // 60), 24 * 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:00"
    return Advice(
        f"more time for the job; it had {had_s / 60:.0f} min", f"--time={f'{days}-' * bool(days)}{clock}"
    )


def _more_time(s: Signals) -> Iterable[Advice]:
    if s.timed_out_by == "job end":
        yield _longer(s)
    elif s.timed_out_by == "cpu limit":
        yield Advice("lift its limit of CPU time, where it is set", "ulimit -t unlimited")
    else:
        yield Advice("give it more time")


def _ask_sender(s: Signals) -> Iterable[Advice]:
    job = s.facts.job_id
    slurms = "`scancel`, " * bool(s.facts.in_slurm or job)
    command = f"sacct -j {job} --format=JobID,State%40,ExitCode" if job else None
    yield Advice(f"ask who sends it: {slurms}an administrator, a service such as systemd-oomd", command)


def _ask_kernel(s: Signals) -> Iterable[Advice]:
    job, nodes = s.facts.job_id, s.facts.slurm.job.row.nodes if s.facts.slurm and s.facts.slurm.job else ""
    if job:
        yield Advice(
            "ask Slurm about each step", f"sacct -j {job} --format=JobID,State%40,ExitCode,MaxRSS,ReqMem"
        )
    where = f" on {nodes}" if nodes else ""
    yield Advice(f"the kernel's log{where} names what it killed", "dmesg -T | grep -i 'killed process'")
    if s.facts.outcome:
        yield from _ask_sender(s)
        yield from _resume(s)


def _ask_canceller(s: Signals) -> Iterable[Advice]:
    row, job = s.facts.slurm.job.row if s.facts.slurm and s.facts.slurm.job else None, s.facts.job_id
    if row is not None and row.cancelled_by is not None:
        yield Advice(f"ask user {row.cancelled_by}, who cancelled it", f"getent passwd {row.cancelled_by}")
    else:
        yield Advice("ask who cancelled it", f"sacct -j {job} --format=JobID,State%40" if job else None)


def _leave_out_node(s: Signals) -> Iterable[Advice]:
    row = s.facts.slurm.job.row if s.facts.slurm and s.facts.slurm.job else None
    node = row.nodes if row else text(s.facts.environment.get("SLURMD_NODENAME"))
    leave_out = f"--exclude={node}" if node and count_nodes(node) == 1 else None
    yield Advice("type the same command again; leave that node out", leave_out)


def _room_on_machine(s: Signals) -> Iterable[Advice]:
    if not 0 < s.peak_of_host < 0.5:
        return cheapest_first(s.facts)
    return (
        Advice("request the whole machine, so that others cannot fill it", "--exclusive"),
        Advice("or type the same command again: the cause was another job"),
    )


def _room_on_gpu(s: Signals) -> Iterable[Advice]:
    if s.gpu and s.gpu.total_bytes and s.gpu.others_bytes > 0.25 * s.gpu.total_bytes:
        yield Advice("take a device that is free, or end the process that holds it", "nvidia-smi")
    if s.gpu and (s.gpu.unallocated_bytes or 0) > 0.25 * (s.gpu.allocated_bytes or s.gpu.asked_bytes or 0):
        grow = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        yield Advice("let segments grow, so that free memory is in one piece", grow)
    steps = smaller_steps(s.facts, gpu=True)
    yield from steps
    if not steps and not s.is_ours:
        yield Advice("a smaller batch with more gradient accumulation: the same step")


def _after_refusal(s: Signals) -> Iterable[Advice]:
    """More memory only where a cgroup cannot be what refused: a cgroup kills."""
    if s.error.kind == "maps_used_up":
        yield Advice("keep fewer shared tensors, each is a map of its own; or raise the number of maps",
                     "sysctl -w vm.max_map_count=1048576")  # fmt: skip
    elif "rlimits" not in s.facts.outcome or s.limit_at == "host":
        yield from cheapest_first(s.facts)
    else:
        yield from (*smaller_steps(s.facts), *no_workers(s.facts))
        yield Advice("check what refuses memory here: overcommit, the number of maps or of threads",
                     "sysctl vm.overcommit_memory vm.max_map_count; ulimit -a")  # fmt: skip


def _whole_files(s: Signals) -> Iterable[Advice]:
    path = text(mapping(s.facts.evidence.run.get("data")).get("path"))
    if s.is_ours:
        command = f"python pretokenize_dataset.py verify {shlex.quote(path)}" if path else None
        yield Advice("see whether the token files are whole", command)
    else:
        yield Advice("see whether the files that it maps are whole, and whether their disk is full", "df -h")


def _find_holder(s: Signals) -> Iterable[Advice]:
    if not runs_python(s.facts):
        yield Advice("find who holds it: run it under a heap profiler", "heaptrack COMMAND")
    elif s.is_ours:
        yield Advice("find who holds it: run a few hundred steps with", "memory.attribute=true")
    else:
        yield Advice("find who holds it: take a snapshot early and late", "tracemalloc.take_snapshot()")
    if uses_torch(s.facts):
        yield Advice(
            "lists of losses that keep their graph are the usual cause: append loss.item(), not loss"
        )


def _map_file(s: Signals) -> Iterable[Advice]:
    if s.is_ours:
        yield Advice("map the token file, so that nothing of it stays in anon memory", "dataset.reader=mmap")
        yield Advice("or bound what the loader keeps", "dataset.max_resident=256MB")
    else:
        yield Advice("map the file and copy one batch at a time", 'np.load(path, mmap_mode="r")')


def _unlock_files(s: Signals) -> Iterable[Advice]:
    if s.parts.locked > 0.3 * s.parts.u or s.parts.cache_before_kill:
        yield Advice(
            "lock less of files into memory (mlock, vmtouch -l, --mlock), and keep none on a ramfs: such "
            "cache is "
            "not given back",
            "grep VmLck /proc/[0-9]*/status",
        )


def _if_restarted(s: Signals) -> Iterable[Advice]:
    earlier = s.facts.slurm.earlier if s.facts.slurm else ()
    return more_memory(s.facts) if any(row.was_out_of_memory for job in earlier for row in job.rows) else ()


_READ_WITHOUT_MAP = (
    Advice("read with pread(2) instead of a map: what is not mapped is not in RSS", "os.pread"),
)
_RUN_WITH_US = Advice(
    "have it sampled next time: what it wrote, how it ended and its last minute survive what kills it",
    "python -m memory run --output DIR -- COMMAND",
)

ADVICE: dict[str, tuple[Advice, ...] | Callable[[Signals], Iterable[Advice]]] = {
    "after_growth": lambda s: (
        cheapest_first(s.facts) if s.was_killed or s.kills == "counted" else smaller_steps(s.facts)
    ),
    "after_refusal": _after_refusal,
    "arrays": (Advice("hold data in NumPy arrays or tensors, not in lists or dicts of Python objects: "
    "reading an "
                      "object writes its reference count, and the write copies its page"),),
    "ask_kernel": _ask_kernel,
    "ask_sender": _ask_sender,
    "below_the_poll": _below_the_poll,
    "cheapest_first": lambda s: cheapest_first(s.facts),
    "fewer_batches": lambda s: () if s.is_ours else (
        Advice("fewer batches ahead", "DataLoader(prefetch_factor=1)"),
    ),
    "fewer_files": (Advice("write such files to a disk, or delete them sooner", "ls -la /dev/shm; df -h "
    "-t tmpfs"),),
    "fewer_processes": lambda s: no_workers(s.facts) or (Advice("fewer processes at a time"),),
    "find_holder": _find_holder,
    "larger_shm": (Advice("give /dev/shm more room; a container has it from docker run --shm-size=8g",
                          "mount -o remount,size=8G /dev/shm"),),
    "leave_mem": (Advice("leave --mem as it is"),),
    "lift_rlimit": (Advice("lift the limit of the process", "ulimit -v unlimited; ulimit -d unlimited"),),
    "map_file": _map_file,
    "map_less": lambda s: (Advice("read without a map", "dataset.reader=pread"),) if s.is_ours else (
        Advice("map or touch less, in fewer processes; or take huge pages", "mmap.MADV_HUGEPAGE"),),
    "map_read_only": (Advice("map it read-only, and write into a copy of one batch",
                             'np.load(path, mmap_mode="r")'),),
    "more_for_job": _more_for_job,
    "more_memory": lambda s: more_memory(s.facts),
    "more_memory_for_file": lambda s: more_memory(s.facts, s.files.needed_bytes or None),
    "more_memory_if_dead": lambda s: more_memory(s.facts) if s.signal else (),
    "more_memory_if_restarted": _if_restarted,
    "more_time": _more_time,
    "no_workers": lambda s: no_workers(s.facts),
    "own_job": (Advice("start it in a job, or a container, of its own"),),
    "pinned_memory": (
        Advice("see what limits locked memory and memory of the job", "ulimit -l; python -m memory"),
        Advice("read batches into memory that is not locked", "DataLoader(pin_memory=False)"),
        Advice("report an error where it arises", "CUDA_LAUNCH_BLOCKING=1"),
    ),
    "raise_high": (Advice("raise or clear memory.high of the cgroup; or hold less", "echo max > "
    "memory.high"),),
    "raise_mem": lambda s: _raise_mem(s.slurm.asked_bytes),
    "read_in_main": lambda s: (
        Advice("read without workers, so that the error is shown", "DataLoader(num_workers=0)"),
    ) if uses_torch(s.facts) and not s.is_ours else (),
    "read_less": _read_less,
    "read_log": lambda s: (
        Advice("read its own message", f"less {shlex.quote(str(s.facts.evidence.path / 'log.txt'))}"),
    ) if s.is_ours else (),
    "read_pipes": (Advice("read what is sent through pipes and sockets sooner, and keep fewer files open",
                          "slabtop -o; ss -tm"),),
    "remedy_container_oom": (
        Advice("hold less, or raise the limit: resources.limits.memory of a pod, docker run --memory, "
               "systemd-run -p MemoryMax"),
    ),
    "remedy_manager_poll": (
        Advice("more memory for the job: qsub -l mem=..., bsub -M ..., request_memory = ... of HTCondor"),
    ),
    "remedy_manager_timeout": (Advice("more time for the job: qsub -l walltime=..., bsub -W"),),
    "remedy_memory_daemon": (Advice("hold less, start fewer tasks at a time, or request the whole machine"),),
    "resume": _resume,
    "room_on_disk": (Advice("make room, then type the same command again", "df -h; df -h /dev/shm; quota "
    "-s"),),
    "room_on_gpu": _room_on_gpu,
    "room_on_machine": _room_on_machine,
    "run_with_us_if_unwatched": lambda s: () if s.has_samples or s.facts.records else (_RUN_WITH_US,),
    "slurm_cancelled": _ask_canceller,
    "slurm_node_failed": _leave_out_node,
    "slurm_preempted": (Advice("type the same command again, or choose a partition that is not preempted",
                               "--requeue"),),
    "slurm_requeued": (Advice("wait: Slurm starts it again automatically"),),
    "slurm_timeout": lambda s: (_longer(s),),
    "smaller_steps": lambda s: smaller_steps(s.facts),
    "stale_files": (Advice("see whose they are, and delete those of dead runs", "ls -la /dev/shm"),),
    "unlock_files": _unlock_files,
    "whole_files": _whole_files,
}  # fmt: skip

_AT_LEAST = {
    "oom_cgroup": Advice("hold less at a time, or raise the limit (Slurm: --mem; a container: its own)"),
    "oom_host": Advice("a machine with more memory, or to oneself; or hold less at a time", "--exclusive"),
    "memory_error": Advice("ask for less at a time, in pieces or in a smaller type", "free -h; ulimit -a"),
    "terminated": Advice("ask who sends it, then type the same command again"),
    "killed_from_outside": Advice("ask who sends it, then type the same command again"),
}


def at_least(s: Signals, verdict: str) -> tuple[Advice, ...]:
    """Advice by the verdict alone, where no row has any."""
    if verdict == "healthy" or s.end == "running":
        return ()
    is_known = verdict in _AT_LEAST and not (verdict == "oom_cgroup" and s.never_at_limit)
    return (*([_AT_LEAST[verdict]] if is_known else []), *(() if s.has_samples else (_RUN_WITH_US,)))
