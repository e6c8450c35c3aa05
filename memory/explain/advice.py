"""What to type, in the order of what it costs the user: nothing but time first, more memory last.

Smaller micro-batches compute the same step; recomputing costs a third more time; chunked loss next to none;
workers are slower than none on few cores. Only --mem makes the job wait longer in the queue.
"""

from __future__ import annotations

from experiment_utils.json_values import mapping, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.facts import Facts
from memory.explain.finding import Advice
from memory.explain.own_step import has_less_than_its_job
from memory.explain.savings import combined, estimated, helps, polled_bytes, recommended
from memory.explain.script import script_text
from memory.samples import ProcessSample
from memory.smaller import smaller_chunk, smaller_micro_batch

_PYTHONS = ("python", "pypy", "pt_main_thread", "pt_data_worker")
"""Names of processes of Python; the last two are torch's."""
_TRAINING_STAGES = ("first_batch", "first_step", "train", "evaluate", "")
_BARE_PYTHON_BYTES = 12 << 20
"""An interpreter that has loaded next to nothing has 7 MB of anon."""
_HIGHER = "a higher limit for the cgroup"
MARGIN = 1.25


def cheapest_first(facts: Facts, *, need_bytes: int | None = None, gpu: bool = False) -> tuple[Advice, ...]:
    """What makes a step smaller, then fewer workers, then more memory."""
    found = list(smaller_steps(facts, gpu=gpu))
    if not gpu:
        found += [*no_workers(facts), *more_memory(facts, need_bytes)]
    return tuple(found)


def smaller_steps(facts: Facts, *, gpu: bool = False) -> tuple[Advice, ...]:
    """Of training; nothing where it ended in a stage that has no steps, or in no training that we know of."""
    if not facts.is_ours:
        if not _looks_like_training(facts):
            return ()
        return (
            Advice("half the batch, and twice the gradient accumulation: the same step"),
            Advice("recompute activations: a third more time", "torch.utils.checkpoint"),
        )
    if facts.stage_name not in _TRAINING_STAGES:
        return ()
    found = []
    now = unsigned(facts.setting("training.micro_batch"))
    if now is None or now > 1:
        was = f"{now} windows now" if now else "it is not known here"
        found.append(
            Advice(
                f"smaller micro-batches, the same effective batch ({was})",
                f"training.micro_batch={_that_fits(facts, now or 2, gpu=gpu)}",
            )
        )
    if facts.setting("training.activation_checkpointing") is not True:
        found.append(
            Advice(
                "recompute activations: about a third more time a step",
                "training.activation_checkpointing=true",
            )
        )
    chunk = _logits_at_once(facts, now)
    if chunk is None or smaller_chunk(chunk):
        found.append(
            Advice(
                "fewer logits at once" + (f" ({chunk:,} tokens now)" if chunk else ""),
                f"training.loss_chunk={smaller_chunk(chunk) if chunk else 1024}",
            )
        )
    return _that_help(facts, found, gpu=gpu)


def _that_help(facts: Facts, found: list[Advice], *, gpu: bool) -> tuple[Advice, ...]:
    """By the run's own estimate: the others are no advice, and where none is left, several together."""
    kept = [advice for advice in found if advice.override and helps(facts, advice.override, gpu=gpu)]
    if not kept and not gpu and (words := combined(facts)):
        kept.append(Advice("the nearest that fits, by the run's own estimate", words))
    return tuple(kept)


def _that_fits(facts: Facts, micro_batch: int, *, gpu: bool) -> int:
    """The next smaller one; where that is too large still, the largest that fitted as the run began."""
    smaller = smaller_micro_batch(micro_batch)
    largest = unsigned(mapping(facts.evidence.run.get("memory")).get("largest_micro_batch"))
    if largest and largest < smaller and not helps(facts, f"training.micro_batch={smaller}", gpu=gpu):
        return largest
    return smaller


def _logits_at_once(facts: Facts, micro_batch: int | None) -> int | None:
    """Tokens: of a chunk of the loss, and of a micro-batch at most."""
    chunk, seq_len = (
        unsigned(facts.setting("training.loss_chunk")),
        unsigned(facts.setting("training.seq_len")),
    )
    if chunk is None or micro_batch is None or seq_len is None:
        return chunk
    return min(chunk, micro_batch * seq_len)


def no_workers(facts: Facts) -> tuple[Advice, ...]:
    """Advise fewer worker processes, if a foreign program has any. Loaders of our own runs have none."""
    if not facts.is_ours and _has_workers(facts):
        loader = "DataLoader(num_workers=0)" if may_use_torch(facts) else None
        return (Advice("fewer worker processes at once, or none", loader),)
    return ()


def may_use_torch(facts: Facts) -> bool:
    """Not where its script can be read and does not speak of it."""
    found = script_text(facts)
    return found is None or "torch" in found[1] or "torch" in facts.log


def more_memory(facts: Facts, need_bytes: int | None = None) -> tuple[Advice, ...]:
    """A number: what it needs, or the most that was seen or allowed, with a margin of a quarter."""
    below = facts.met_another_limit or (facts.kills == 0 and facts.kernel_named_victim)
    if (facts.limit_bytes is None and need_bytes is None) or below:
        return ()
    if not facts.in_slurm and facts.limit_at in ("", "host"):
        return ()  # there is no more, or nothing is known of who allows it
    need = need_bytes or max(facts.peak_bytes or 0, facts.limit_bytes or 0)
    wanted, of_plan = round_up(MARGIN * need), None if need_bytes else recommended(facts)
    if of_plan and of_plan > (facts.limit_bytes or 0):
        wanted = of_plan
        seen = f": by the estimate of its own it needs {format_bytes(estimated(facts) or 0)}"
    elif need_bytes:
        seen = ""
    else:
        seen = ": what it wants beyond the limit is not known, so look again after the next run"
    if facts.host_bytes and wanted > facts.host_bytes:
        seen += f"; that machine has {format_bytes(facts.host_bytes)}, so it takes a larger one"
    if not facts.in_slurm:
        return (Advice(f"{_HIGHER} {facts.limit_at}, {format_bytes(wanted)}{seen}"),)
    amount = slurm_amount(wanted)
    is_of_step = has_less_than_its_job(facts)
    if is_of_step and (not facts.is_ours or facts.setting("slurm.pack") == 1):
        says = f"more memory for the step, {format_bytes(wanted)}{seen}{OF_SRUN}"
        return (Advice(says, f"--mem={amount}"),)
    says = f"more memory for the job, {format_bytes(wanted)}{seen}"
    each = "; so much for each run that shares the job, slurm.pack" if is_of_step else ""
    return (Advice(f"{says}{OF_SBATCH}, such as slurm.mem={amount}{each})", f"--mem={amount}"),)


OF_SRUN = " (--mem is that of its srun, in a job that asked for no less)"
OF_SBATCH = " (--mem is sbatch's; of what a launcher submits, its key for it"
"""So goes on what advises --mem: who asks need not have typed the sbatch. A launcher puts its key here."""


def is_more_memory(advice: Advice) -> bool:
    """Of whichever kind: told once, and last."""
    return (advice.override or "").startswith("--mem") or advice.text.startswith(_HIGHER)


def raise_mem(asked_bytes: int | None, *, is_of_step: bool = False) -> tuple[Advice, ...]:
    """Half as much again as was asked for; not known: in words alone. is_of_step: by its srun."""
    says = f"more memory for the {'step' if is_of_step else 'job'}; sample the next run, to see how much"
    says += OF_SRUN if is_of_step else ""
    if not asked_bytes:
        return (Advice(f"{says} (--mem)"),)
    return (Advice(says, f"--mem={-(-asked_bytes * 3 // 2 >> 20)}M"),)


def round_up(amount: float) -> int:
    """To a whole GB, below 4 GB to a quarter, below 1 GB to a sixteenth of one."""
    grain = 1 << 30 if amount > 4 << 30 else 1 << 28 if amount > 1 << 30 else 1 << 26
    return -(-int(amount) // grain) * grain


def slurm_amount(amount: int) -> str:
    """As --mem takes it."""
    return f"{amount >> 30}G" if amount % (1 << 30) == 0 else f"{amount >> 20}M"


def streamed(facts: Facts) -> tuple[Advice, ...]:
    """Instead of a whole file in memory."""
    if facts.is_ours:
        return (
            Advice("map the token file, so that nothing of it stays in anon memory", "dataset.reader=mmap"),
            Advice("or bound what the loader keeps", "dataset.max_resident=256MB"),
        )
    return (Advice("map the file and copy one batch at a time", 'np.load(path, mmap_mode="r")'),)


def below_the_poll(facts: Facts, otherwise: tuple[Advice, ...]) -> tuple[Advice, ...]:
    """Where Slurm's poll of RSS killed. otherwise: of more memory, where the run's plan knows of no poll.

    A plan that does has taken what a poll counts, and a reader that is `auto` has become `pread` with it.
    """
    polled, reader = polled_bytes(facts), facts.setting("dataset.reader")
    is_mapped = not (facts.is_ours and (reader == "pread" or (polled and reader == "auto")))
    is_mapped = is_mapped and not _maps_little(facts)
    read = read_by_pread(facts, polled=True) if is_mapped else ()
    needed = recommended(facts) and estimated(facts) if polled else None
    more = more_memory(facts, needed) if needed else otherwise
    return (*read, *smaller_steps(facts), *no_workers(facts), *more)


def _maps_little(facts: Facts) -> bool:
    """Whether most of RSS, where that was highest, was anon memory."""
    top = max(facts.samples, key=lambda sample: sample.tree_rss_bytes or 0, default=None)
    return top is not None and 4 * (top.tree_anon_bytes or 0) > 3 * (top.tree_rss_bytes or 0)


def read_by_pread(facts: Facts, *, polled: bool = False) -> tuple[Advice, ...]:
    """Where mapped pages are held against the job, or are read in vain. polled: what counts is RSS, in which
    every page is that was touched, however it was asked for.
    """
    if facts.is_ours:
        return (
            Advice("read only the bytes of each window", "dataset.reader=pread"),
            Advice("or give pages back as the reading goes on", "dataset.max_resident=256MB"),
        )
    if polled:
        return (Advice("read with pread(2) instead of a map: what is not mapped is not in RSS", "os.pread"),)
    return (
        Advice("tell the kernel that reads are random", "mmap.madvise(mmap.MADV_RANDOM)"),
        Advice("or read with pread(2) instead of a map", "os.pread"),
    )


def go_on(facts: Facts) -> tuple[Advice, ...]:
    """A run of ours is not lost."""
    if not facts.is_ours:
        return ()
    return (Advice("type the same command again: it goes on from its newest checkpoint"),)


def at_least(facts: Facts, verdict: str) -> tuple[Advice, ...]:
    """Where no rule has any: a death without a word of what to do next is half an answer."""
    if verdict == "healthy" or facts.is_running:
        return ()
    found = []
    if verdict == "oom_cgroup" and not facts.met_another_limit:
        found.append(Advice("hold less at once, or have a higher limit (Slurm: --mem; a container: its own)"))
    elif verdict == "oom_host":
        found.append(Advice("a machine with more memory, or to oneself; or hold less at once", "--exclusive"))
    elif verdict == "memory_error":
        found.append(Advice("ask for less at once, in pieces or in a smaller type", "free -h; ulimit -a"))
    elif verdict in ("terminated", "killed_from_outside"):
        found.append(Advice("ask who sends it, then type the same command again"))
    if not facts.samples:
        found.append(run_with_us())
    return tuple(found)


def run_with_us() -> Advice:
    """How to have evidence next time."""
    return Advice(
        "have it sampled next time: what it wrote, how it ended and its last minute survive "
        "whatever kills it",
        "python -m memory run --output DIR -- COMMAND",
    )


def _has_workers(facts: Facts) -> bool:
    """Of a DataLoader, which are Python as the process is that has them; not a script and what it runs, nor
    the tracker that multiprocessing starts for its shared memory.
    """
    return any(
        sample.tree[0].name.startswith(_PYTHONS) and any(map(_is_worker, sample.tree[1:]))
        for sample in facts.samples
        if sample.tree
    )


def is_other_program(facts: Facts) -> bool:
    """Was it seen, and is none of its processes one of Python?"""
    names = [process.name for sample in facts.samples for process in sample.tree]
    return bool(names) and not any(name.startswith(_PYTHONS) for name in names)


def _is_worker(process: ProcessSample) -> bool:
    held = (process.anon_bytes or 0) + (process.shmem_bytes or 0)
    return process.name.startswith(_PYTHONS) and (held > _BARE_PYTHON_BYTES or "worker" in process.name)


def _looks_like_training(facts: Facts) -> bool:
    return facts.stage_name in ("train", "first_step") or "torch" in facts.log or "CUDA" in facts.log
