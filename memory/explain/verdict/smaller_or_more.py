"""A step that holds less, fewer workers, more memory: in the order of what it costs the user.

Smaller micro-batches compute the same step, recomputing costs a third more time, chunked loss next to none.
Only --mem makes the job wait longer in the queue.
"""

from __future__ import annotations

from experiment_utils.json_values import mapping, unsigned
from experiment_utils.quantities import format_bytes
from memory.estimate.step_reduction import smaller_chunk, smaller_micro_batch
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.savings import combined, estimated, helps, recommended
from memory.explain.evidence.slurm_rows import has_less_than_its_job
from memory.explain.verdict.explanation import Advice
from memory.record.samples import ProcessSample

_PYTHONS = ("python", "pypy", "pt_main_thread", "pt_data_worker")
"""Names of processes of Python; the last two are torch's."""
_TRAINING_STAGES = ("first_batch", "first_step", "train", "evaluate", "")
_BARE_PYTHON_BYTES = 12 << 20
"""An interpreter that has loaded next to nothing has 7 MB of anon."""
_HIGHER = "a higher limit for the cgroup"
_MARGIN = 1.25
OF_SRUN = " (--mem is that of its srun, in a job that asked for no less)"
OF_SBATCH = " (--mem is sbatch's; of what a launcher submits, its key for it"
"""End of a text that advises --mem; a launcher puts its own key in its place."""


def cheapest_first(facts: RunFacts, *, need_bytes: int | None = None) -> tuple[Advice, ...]:
    """Smaller steps, then fewer workers, then more memory."""
    return (*smaller_steps(facts), *no_workers(facts), *more_memory(facts, need_bytes))


def smaller_steps(facts: RunFacts, *, gpu: bool = False) -> tuple[Advice, ...]:
    """A training step that holds less; nothing for a stage without steps, or another program."""
    if not facts.is_ours:
        if not (facts.stage_name in ("train", "first_step") or "torch" in facts.log or "CUDA" in facts.log):
            return ()
        return (
            Advice("half the batch, and twice the gradient accumulation: the same step"),
            Advice("recompute activations: a third more time", "torch.utils.checkpoint"),
        )
    if facts.stage_name not in _TRAINING_STAGES:
        return ()
    found = []
    now, seq_len, chunk = (
        unsigned(facts.setting(f"training.{name}")) for name in ("micro_batch", "seq_len", "loss_chunk")
    )
    if now is None or now > 1:
        was = f"{now} windows now" if now else "it is not known here"
        smaller = smaller_micro_batch(now or 2)
        largest = unsigned(mapping(facts.evidence.run.get("memory")).get("largest_micro_batch"))
        if largest and largest < smaller and not helps(facts, f"training.micro_batch={smaller}", gpu=gpu):
            smaller = largest
        words = f"smaller micro-batches, the same effective batch ({was})"
        found.append(Advice(words, f"training.micro_batch={smaller}"))
    if facts.setting("training.activation_checkpointing") is not True:
        words = "recompute activations: about a third more time a step"
        found.append(Advice(words, "training.activation_checkpointing=true"))
    if chunk is not None and now is not None and seq_len is not None:
        chunk = min(chunk, now * seq_len)
    if chunk is None or smaller_chunk(chunk):
        words = "fewer logits at a time" + (f" ({chunk:,} tokens now)" if chunk else "")
        found.append(Advice(words, f"training.loss_chunk={smaller_chunk(chunk) if chunk else 1024}"))
    kept = [advice for advice in found if advice.override and helps(facts, advice.override, gpu=gpu)]
    if not kept and not gpu and (several := combined(facts)):
        kept.append(Advice("the nearest that fits, by the run's own estimate", several))
    return tuple(kept)


def no_workers(facts: RunFacts) -> tuple[Advice, ...]:
    """Fewer worker processes, if a foreign program has any. Loaders of our own runs have none."""
    trees = (sample.tree for sample in facts.samples if sample.tree and not facts.is_ours)
    if any(tree[0].name.startswith(_PYTHONS) and any(map(_is_worker, tree[1:])) for tree in trees):
        loader = "DataLoader(num_workers=0)" if uses_torch(facts) else None
        return (Advice("fewer worker processes at a time, or none (a DataLoader: num_workers=0)", loader),)
    return ()


def _is_worker(process: ProcessSample) -> bool:
    held = (process.anon_bytes or 0) + (process.shmem_bytes or 0)
    return process.name.startswith(_PYTHONS) and (held > _BARE_PYTHON_BYTES or "worker" in process.name)


def uses_torch(facts: RunFacts) -> bool:
    """Whether its log, its stack near the limit or a process name shows torch."""
    names = (process.name for sample in facts.samples for process in sample.tree)
    in_stack = any("torch" in frame.file for frame in facts.frames)
    return facts.is_ours or "torch" in facts.log or in_stack or any(name.startswith("pt_") for name in names)


def runs_python(facts: RunFacts) -> bool:
    """Whether a process of it is one of Python, or none was seen."""
    names = [process.name for sample in facts.samples for process in sample.tree]
    return not names or any(name.startswith(_PYTHONS) for name in names)


def more_memory(facts: RunFacts, need_bytes: int | None = None) -> tuple[Advice, ...]:
    """A number: what it needs, or the most that was seen or allowed, with a margin of a quarter."""
    is_other_limit = facts.met_another_limit or (facts.kills == 0 and facts.kernel_named_victim)
    if (facts.limit_bytes is None and need_bytes is None) or is_other_limit:
        return ()
    if not facts.in_slurm and facts.limit_at in ("", "host"):
        return ()  # there is no more, or nothing is known of what allows it
    need = need_bytes or max(facts.peak_bytes or 0, facts.limit_bytes or 0)
    wanted, of_plan = _round_up(_MARGIN * need), None if need_bytes else recommended(facts)
    seen = (
        ""
        if need_bytes
        else ": what it wants beyond the limit is not known, so look again after the next run"
    )
    if of_plan and of_plan > (facts.limit_bytes or 0):
        wanted, seen = of_plan, f": by its own estimate it needs {format_bytes(estimated(facts) or 0)}"
    if facts.host_bytes and wanted > facts.host_bytes:
        seen += f"; that machine has {format_bytes(facts.host_bytes)}, so it takes a larger one"
    if not facts.in_slurm:
        return (Advice(f"{_HIGHER} {facts.limit_at}, {format_bytes(wanted)}{seen}"),)
    amount = f"{wanted >> 30}G" if wanted % (1 << 30) == 0 else f"{wanted >> 20}M"
    is_of_step = has_less_than_its_job(facts)
    if is_of_step and (not facts.is_ours or facts.setting("slurm.pack") == 1):
        return (
            Advice(f"more memory for the step, {format_bytes(wanted)}{seen}{OF_SRUN}", f"--mem={amount}"),
        )
    each = "; so much for each run that shares the job, slurm.pack" if is_of_step else ""
    words = (
        f"more memory for the job, {format_bytes(wanted)}{seen}{OF_SBATCH}, such as slurm.mem={amount}{each})"
    )
    return (Advice(words, f"--mem={amount}"),)


def is_more_memory(advice: Advice) -> bool:
    """Whether it asks for more memory, which is shown once, and last."""
    return (advice.override or "").startswith("--mem") or advice.text.startswith(_HIGHER)


def _round_up(amount: float) -> int:
    """To a whole GB, below 4 GB to a quarter, below 1 GB to a sixteenth of one."""
    grain = 1 << 30 if amount > 4 << 30 else 1 << 28 if amount > 1 << 30 else 1 << 26
    return -(-int(amount) // grain) * grain
