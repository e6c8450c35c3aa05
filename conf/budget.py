"""How much a run reads, and in which portions: whichever budget key is given, turned into steps."""

from __future__ import annotations

from dataclasses import dataclass

from conf import AUTO
from conf.schema import DEFAULT_EFFECTIVE_BATCH, Training
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted, format_count

AUTO_MICRO_BATCH_TOKENS = {"cpu": 16_384, "cuda": 65_536}
"""Most tokens of an automatic micro-batch, by device. A GPU launches as many operations for few tokens as for
many, so that it computes more of them in nearly the same time.
"""


@dataclass(frozen=True)
class Budget:
    """How much a run reads, and in which portions.

    tokens = steps * batch_tokens; batch_tokens = effective_batch * seq_len;
    effective_batch = micro_batch * accumulation * ranks (windows).
    """

    steps: int
    tokens: int
    effective_batch: int
    batch_tokens: int
    micro_batch: int
    accumulation: int
    epochs: float
    ranks: int = 1


def effective_batch(training: Training) -> int:
    """Windows in an optimizer step, from whichever of its two keys is given."""
    if training.batch_tokens is not None:
        return training.batch_tokens // training.seq_len
    return training.effective_batch or DEFAULT_EFFECTIVE_BATCH


def batch_of_rank(training: Training, ranks: int) -> int:
    """Windows of an optimizer step that each rank reads.

    Raises:
        UserError: a step does not divide over so many; tells the choices.
    """
    batch = effective_batch(training)
    if batch % ranks == 0:
        return batch // ranks
    fitting = [str(count) for count in range(1, batch + 1) if batch % count == 0 and count <= 2 * ranks]
    below = batch // ranks * ranks
    batches = " or ".join(str(size) for size in (below, below + ranks) if size)
    raise UserError(
        Problem(
            "training.effective_batch",
            f"a step of {counted(batch, 'window')} does not divide over {ranks} ranks. Start the run on "
            f"{', '.join(fitting)} of them; or set training.effective_batch={batches}, which is another run",
            "step-not-over-ranks",
        )
    )


def micro_batch(training: Training, ranks: int = 1, device: str = "cpu") -> int:
    """Windows that are computed together. `auto`: most that divide the step of a rank, up to
    `AUTO_MICRO_BATCH_TOKENS` of the device (cpu or cuda).

    Raises:
        UserError: the step of each rank is no whole number of them.
    """
    batch = batch_of_rank(training, ranks)
    if training.micro_batch == AUTO:
        at_most = max(1, AUTO_MICRO_BATCH_TOKENS[device] // training.seq_len)
        return max(size for size in range(1, batch + 1) if batch % size == 0 and size <= at_most)
    size = int(training.micro_batch)
    if ranks > 1 and batch % size:
        fitting = [str(size) for size in range(1, batch + 1) if batch % size == 0]
        raise UserError(
            Problem(
                "training.micro_batch",
                f"each of {ranks} ranks reads {counted(batch, 'window')} of a step, no whole number of "
                f"micro-batches of {size}. Choices: {', '.join(fitting)}, or {AUTO}",
                "micro-batch-not-a-divisor",
            )
        )
    return size


def resolve_budget(
    training: Training,
    *,
    parameters: int,
    train_windows: int,
    repeat: bool,
    default_max_tokens: int,
    micro: int | None = None,
    what: str = "the train split",
    to_repeat: str = "dataset.repeat=true",
    ranks: int = 1,
) -> Budget:
    """Turn whichever budget key is given into steps.

    Steps are rounded up: a run never reads less than was asked for. Without any key the budget is
    `default_max_tokens`, or one epoch where the data are fewer. micro: the micro-batch, where it was
    settled in view of the memory. what, to_repeat: for messages: what the windows are of, and how to read
    more than an epoch. ranks: processes that share each step.

    Raises:
        UserError: when the data hold fewer windows than the budget needs and `repeat` is false.
    """
    batch = effective_batch(training)
    batch_tokens = batch * training.seq_len
    steps_in_epoch = train_windows // batch
    if training.max_steps is not None:
        where, steps = "training.max_steps", training.max_steps
    elif training.max_tokens is not None:
        where, steps = "training.max_tokens", -(-training.max_tokens // batch_tokens)
    elif training.tokens_per_param is not None:
        where = "training.tokens_per_param"
        steps = -(-round(training.tokens_per_param * parameters) // batch_tokens)
    else:
        where, steps = "dataset.default_max_tokens", -(-default_max_tokens // batch_tokens)
        if not repeat:
            steps = max(1, min(steps, steps_in_epoch))
    if steps > steps_in_epoch and not repeat:
        raise UserError(
            Problem(
                where,
                f"asks for {format_count(steps * batch_tokens)} tokens ({counted(steps, 'step')} of "
                f"{counted(batch, 'window')}), but {what} has {counted(train_windows, 'window')} of "
                f"{training.seq_len}: one epoch is {format_count(steps_in_epoch * batch_tokens)} tokens "
                f"({counted(steps_in_epoch, 'step')}). Set training.max_steps={max(1, steps_in_epoch)}, or "
                f"read the data more than once with {to_repeat}",
            )
            if steps_in_epoch > 0
            else Problem(
                "training.batch_tokens" if training.batch_tokens is not None else "training.effective_batch",
                f"one step needs {counted(batch, 'window')} of {training.seq_len} tokens, but {what} has "
                f"{train_windows:,}. Set training.effective_batch={max(1, train_windows)} or less, or "
                f"{to_repeat}",
            )
        )
    micro = micro or micro_batch(training, ranks)
    return Budget(
        steps=steps,
        tokens=steps * batch_tokens,
        effective_batch=batch,
        batch_tokens=batch_tokens,
        micro_batch=micro,
        accumulation=batch // (micro * ranks),
        epochs=steps * batch / train_windows if train_windows else 0.0,
        ranks=ranks,
    )


def milestones(steps: int, count: int, spacing: str) -> list[int]:
    """The steps after which to evaluate: at most `count`, ascending, the last one is `steps`.

    spacing: `linear`, or `log`: equal ratios from step 1 on.
    """
    if spacing == "log":
        wanted = [steps ** (i / (count - 1)) if count > 1 else steps for i in range(count)]
    else:
        wanted = [steps * (i + 1) / count for i in range(count)]
    return sorted({min(steps, max(1, round(step))) for step in wanted} | {steps})
