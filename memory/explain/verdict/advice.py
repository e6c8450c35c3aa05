"""The advice that rows name: from the cheapest to more memory, by what the signals say.

Smaller micro-batches compute the same step, recomputing costs a third more time, chunked loss next to none.
Only --mem makes the job wait longer in the queue.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator

from experiment_utils.json_values import at_path, mapping, unsigned
from experiment_utils.quantities import format_bytes
from memory.accounting.sacct import count_nodes
from memory.estimate.step_reduction import WORTH, smaller_micro_batch
from memory.explain.evidence.slurm_rows import has_less_than_its_job
from memory.explain.signals import Signals
from memory.explain.verdict.evidence_lines import place
from memory.explain.verdict.explanation import Advice
from memory.explain.verdict.templates import Text, fill, first, ours, when

_TRAINING_STAGES = ("first_batch", "first_step", "train", "evaluate", "")
_SAVINGS = {
    "training.micro_batch": "smaller micro-batches, the same effective batch",
    "training.activation_checkpointing": "recompute activations: about a third more time a step",
    "training.loss_chunk": "fewer logits at a time",
}
_HIGHER = "a limit of "
_MARGIN = 1.25
OF_SBATCH = " (--mem is sbatch's)"
"""End of a text that advises --mem; a launcher puts its own key in its place."""
Pairs = tuple[tuple[Text, Text], ...]
"""(text, what to type)."""


def advice_of(s: Signals, names: str) -> tuple[Advice, ...]:
    """Advice by names, keys of `ADVICE`."""
    return tuple(advice for name in names.split() for advice in _named(s, name))


def _named(s: Signals, name: str) -> Iterable[Advice]:
    known = ADVICE[name]
    if callable(known):
        return known(s)
    filled = ((fill(words, s), fill(override, s) or None) for words, override in known)
    return [Advice(words, override) for words, override in filled if words]


def _cheapest_first(s: Signals) -> Iterable[Advice]:
    """Smaller steps, then fewer workers, then more memory."""
    found = [*_smaller_steps(s), *_named(s, "no_workers"), *_more_memory(s)]
    return found or [Advice("hold less at a time, or raise the limit (Slurm: --mem; a container: its own)")]


def _smaller_steps(s: Signals, *, gpu: bool = False) -> Iterator[Advice]:
    """A training step that holds less; nothing for a stage without steps, or another program."""
    stage, log = s.facts.stage_name, s.facts.log
    if not s.is_ours:
        if stage in ("train", "first_step") or "torch" in log or "CUDA" in log:
            yield Advice("half the batch, and twice the gradient accumulation: the same step")
            yield Advice("recompute activations: a third more time", "torch.utils.checkpoint")
        return
    now = _setting(s, "training.micro_batch") or 2
    known = {override: mapping(each) for override, each in mapping(_plan(s, "savings")).items()}
    if not known:
        known = {f"training.micro_batch={smaller_micro_batch(now)}": {}} if now > 1 else {}
        known |= {"training.activation_checkpointing=true": {}}
    helpful = [override for override, needs in known.items() if _helps(s, needs, gpu=gpu)]
    if stage in _TRAINING_STAGES:
        for override in [each for each in helpful if " " not in each] or helpful[:1]:
            yield Advice(_SAVINGS.get(override.partition("=")[0], "the nearest that fits"), override)


def _helps(s: Signals, needs: dict[str, object], *, gpu: bool) -> bool:
    """Whether it needs less with an override by a good part, and fits. True if nothing is known."""
    name = "gpu_bytes" if gpu else "host_bytes"
    now, after = unsigned(_plan(s, name)), unsigned(needs.get(name))
    limit = unsigned(_plan(s, "gpu_total_bytes")) if gpu else _limit_of_plan(s)
    return not now or after is None or (after <= WORTH * now and (not limit or after <= limit))


def _plan(s: Signals, name: str) -> object:
    """A value of the run's own estimate of its memory."""
    return at_path(s.facts.evidence.run, f"memory.{name}")


def _setting(s: Signals, path: str) -> int:
    """A number in the run's config, with what `auto` became; 0 if it is not known."""
    value, name = at_path(s.facts.evidence.run, f"config.{path}"), path.rpartition(".")[2]
    return unsigned(at_path(s.facts.evidence.run, f"auto.{name}") if value == "auto" else value) or 0


def _limit_of_plan(s: Signals) -> int:
    """The limit; on a cluster whose Slurm polls RSS the one that the plan had, since no cgroup is limited."""
    return (unsigned(_plan(s, "limit_bytes")) or 0) if _plan(s, "counts_rss") is True else s.limit_bytes


def _more_memory(s: Signals) -> Iterator[Advice]:
    """A number: the run's own estimate, or the most that was seen or allowed, with a margin of a quarter."""
    facts, of_step = s.facts, 0 < s.slurm.asked_bytes < s.slurm.job_asked_bytes
    limit = s.slurm.asked_bytes if of_step else s.limit_bytes
    if not limit or (not facts.in_slurm and s.limit_at != "cgroup"):
        return  # there is no more, or nothing is known of what allows it
    seen = s.slurm.rss_bytes if s.slurm.polls_rss else 0 if of_step else s.parts.u
    wanted, why = (
        _round_up(_MARGIN * max(seen, limit if s.limit_at != "host" else 0)),
        "; its need is not known",
    )
    if s.needed_bytes > _limit_of_plan(s):
        wanted = unsigned(_plan(s, "recommended_mem_bytes")) or wanted
        why = f"; by its own estimate it needs {format_bytes(s.needed_bytes)}"
    why += f"; that machine has {format_bytes(s.host_bytes)}" * (0 < s.host_bytes < wanted)
    amount = f"--mem={wanted >> 30}G" if wanted % (1 << 30) == 0 else f"--mem={wanted >> 20}M"
    is_of_step = has_less_than_its_job(facts, s.slurm)
    if not facts.in_slurm:
        yield Advice(f"{_HIGHER}{format_bytes(wanted)} for the cgroup {place(facts.limit_at)}{why}")
    elif is_of_step and (not s.is_ours or _setting(s, "slurm.pack") == 1):
        yield Advice(f"more memory for the step: its srun's --mem, in a job of no less{why}", amount)
    else:
        each = "; so much for each run that shares the job, slurm.pack" if is_of_step else ""
        yield Advice(f"more memory for the job{why}{each}{OF_SBATCH}", amount)


def is_more_memory(advice: Advice) -> bool:
    """Whether it asks for more memory, which is shown once, and last."""
    return (advice.override or "").startswith("--mem") or advice.text.startswith(_HIGHER)


def _round_up(amount: float) -> int:
    """To a whole GB, below 4 GB to a quarter, below 1 GB to a sixteenth of one."""
    grain = 1 << 30 if amount > 4 << 30 else 1 << 28 if amount > 1 << 30 else 1 << 26
    return -(-int(amount) // grain) * grain


def _twice_the_time(s: Signals) -> str:
    """Twice the time limit of the job, as Slurm takes it; empty if it is not known."""
    had_s = s.facts.job.row.timelimit_s if s.facts.job else None
    days, minutes = divmod(-(-2 * int(had_s or 0) // 60), 24 * 60)
    return f"--time={f'{days}-' * bool(days)}{minutes // 60:02}:{minutes % 60:02}:00" if had_s else ""


def _can_map(s: Signals) -> bool:
    return not s.is_ours or at_path(s.facts.evidence.run, "config.dataset.reader") == "mmap"


def _one_node(s: Signals) -> str:
    nodes = s.facts.job.row.nodes if s.facts.job else ""
    return f"--exclude={nodes}" if nodes and count_nodes(nodes) == 1 else ""


def _is_in_pieces(s: Signals) -> bool:
    return s.gpu is not None and (s.gpu.unallocated_bytes or 0) > 0.25 * (
        s.gpu.allocated_bytes or s.gpu.asked_bytes or 0
    )


_SACCT = "sacct -j {job_id} --format=JobID,State%40,ExitCode"
_RESUME = ours("type the same command again: it resumes from its newest checkpoint", "")
_USES_TORCH = when(lambda s: s.is_ours or "torch" in s.facts.log,
                   "lists of losses that keep their graph are the usual cause: append loss.item(), not "
                   "loss")  # fmt: skip

ADVICE: dict[str, Pairs | Callable[[Signals], Iterable[Advice]]] = {
    "after_growth": lambda s: (
        _cheapest_first(s) if s.was_killed or s.kills == "counted" else _smaller_steps(s)
    ),
    "after_refusal": (
        (when(lambda s: s.rlimits, "lift the limit of the process"), "ulimit -v unlimited; ulimit -d "
        "unlimited"),
        (when(lambda s: s.error.kind == "maps_used_up", "keep fewer shared tensors, or raise the number of "
        "maps"),
         "sysctl -w vm.max_map_count=1048576"),
        (when(lambda s: not s.rlimits, "hold less at a time; see what refuses memory"),
         "sysctl vm.overcommit_memory; ulimit -a; free -h"),
    ),
    "arrays": (("hold data in NumPy arrays or tensors, not in Python lists or dicts: reading an object "
                "writes its reference count, and the write copies its page", ""),),
    "ask_kernel": (("{job_id}: ask Slurm about each step", f"{_SACCT},MaxRSS,ReqMem"),
                   ("the kernel's log names what it killed", "dmesg -T | grep -i 'killed process'")),
    "ask_sender": (("ask who sends it: an administrator, a service, scancel", _SACCT), (_RESUME, "")),
    "cheapest_first": _cheapest_first,
    "fewer_batches": ((ours("", "fewer batches ahead"), "DataLoader(prefetch_factor=1)"),),
    "fewer_files": (("write such files to a disk, or delete them", "ls -la /dev/shm; df -h -t tmpfs"),),
    "find_holder": ((ours("find what holds it: run a few hundred steps with", "find what holds it: take a "
    "snapshot "
                          "early and late"), ours("memory.attribute=true", "tracemalloc.take_snapshot()")),
                    (_USES_TORCH, "")),
    "larger_shm": (("give /dev/shm more room; a container has it from docker run --shm-size=8g",
                    "mount -o remount,size=8G /dev/shm"),),
    "leave_mem": (("leave --mem as it is", ""),),
    "map_file": ((ours("map the token file, so that nothing of it stays in anon memory",
                       "map the file and copy one batch at a time; write into that copy"),
                  ours("dataset.reader=mmap", 'np.load(path, mmap_mode="r")')),),
    "map_less": (("map or touch less, in fewer processes; or take huge pages",
                  ours("dataset.reader=pread", "mmap.MADV_HUGEPAGE")),),
    "more_memory": _more_memory,
    "more_memory_if_dead": lambda s: _more_memory(s) if s.signal else (),
    "more_time": ((when(lambda s: s.timed_out_by == "cpu limit", "lift its limit of CPU time"), "ulimit -t "
    "unlimited"),
                  (when(lambda s: s.timed_out_by != "cpu limit", "give it more time"), _twice_the_time)),
    "no_workers": ((when(lambda s: s.workers.count > 1 and not s.is_ours,
                         "fewer worker processes at a time (a DataLoader: num_workers)"), ""),),
    "own_job": (("start it in a job, or a container, of its own", ""),),
    "pinned_memory": (("see what limits locked memory and memory of the job", "ulimit -l; python -m memory"),
                      ("read batches into memory that is not locked", "DataLoader(pin_memory=False)")),
    "read_in_main": (("read without workers, so that the error is shown", "DataLoader(num_workers=0)"),),
    "read_less": ((when(_can_map, "read with pread(2) instead of a map: what is not mapped is not in RSS"),
                   ours("dataset.reader=pread", "os.pread")),),
    "read_log": ((ours("read its own message", ""), lambda s: (
        f"less {shlex.quote(str(s.facts.evidence.path / 'log.txt'))}")),),
    "read_pipes": (("read what is sent through pipes and sockets sooner, and keep fewer files open",
                    "slabtop -o; ss -tm"),),
    "remedy_container_oom": (("hold less, or raise the limit: resources.limits.memory of a pod, docker run "
                              "--memory, systemd-run -p MemoryMax", ""),),
    "remedy_manager_poll": (("more memory for the job: qsub -l mem=..., bsub -M ..., request_memory = ... of "
                             "HTCondor", ""),),
    "remedy_manager_timeout": (("more time for the job: qsub -l walltime=..., bsub -W", ""),),
    "remedy_memory_daemon": (("hold less, start fewer tasks at a time, or request the whole machine", ""),),
    "resume": ((_RESUME, ""),),
    "room_on_disk": (("make room, then type the same command again", "df -h; df -h /dev/shm; quota -s"),),
    "room_on_gpu": (
        (when(lambda s: s.gpu and s.gpu.others_bytes > 0.25 * (s.gpu.total_bytes or 0) > 0,
              "take a device that is free, or end the process that holds it"), "nvidia-smi"),
        (when(_is_in_pieces, "let segments grow, so that free memory is in one piece"),
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    ),
    "room_on_machine": (("request a whole machine, or one with more memory", "--exclusive"),),
    "run_with_us_if_unwatched": ((when(lambda s: not s.has_samples and not s.facts.records,
                                       "have it sampled next time: its log, its end and its last minute "
                                       "survive"),
                                  "python -m memory run --output DIR -- COMMAND"),),
    "slurm_cancelled": ((first("ask user {facts.job.row.cancelled_by}, who cancelled it", "ask who cancelled "
    "it"),
                         first("getent passwd {facts.job.row.cancelled_by}", _SACCT)),),
    "slurm_node_failed": (("type the same command again; leave that node out", _one_node),),
    "slurm_preempted": (("type the same command again, or choose a partition that is not preempted",
                         "--requeue"),),
    "slurm_requeued": (("wait: Slurm starts it again automatically", ""),),
    "slurm_timeout": (("more time for the job", _twice_the_time),),
    "smaller_steps": _smaller_steps,
    "smaller_steps_on_gpu": lambda s: list(_smaller_steps(s, gpu=True)) or [
        Advice("a smaller batch with more gradient accumulation: the same step")],
    "stale_files": ((when(lambda s: s.shared.before_bytes > 32 << 20, "delete what dead runs left"),
                     "ls -la /dev/shm"),),
    "unlock_files": ((when(lambda s: s.parts.locked > 0.3 * s.parts.u or s.parts.cache_before_kill,
                           "lock less of files into memory (mlock, vmtouch -l, --mlock), and keep none on a "
                           "ramfs"),
                      "grep VmLck /proc/[0-9]*/status"),),
    "whole_files": (("see whether the files that it maps are whole, and their disk has room", "df -h"),),
}  # fmt: skip
