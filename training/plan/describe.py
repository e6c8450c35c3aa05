"""What the model is and how its weights are moved, in words: for the page of a plan. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conf import Config
from conf.between_keys.restore_rules import milestone_tokens
from conf.budget import Budget
from conf.schema import Optimizer, Training
from conf.step_range import parse_steps
from experiment_utils.quantities import counted, format_count, format_duration, parse_duration
from models.options.family_keys import RECURRENT
from training.step.schedules import course_of

_FORWARD = 1 / 3
"""Cost of a token in an evaluation, which has no backward pass, as a share of its cost in training."""
_MOST_EVALUATION = 0.2
"""Share of the cost of training from which a plan warns of evaluations."""


def model_words(config: Config) -> str:
    """`transformer, width 32, 2 layers, 2 heads`; a recurrence has no heads."""
    model = config.model
    words = f"{config.arch.name}, width {model.d_model}, {counted(model.n_layers or 0, 'layer')}"
    return words if config.arch.family in RECURRENT else f"{words}, {counted(model.n_heads or 0, 'head')}"


def learning_words(config: Config, budget: Budget) -> str:
    """`lr 0.003, cosine_warmup`; with the optimizer's name where it is another, and what there is to say of
    a warm-up that the run does not get through.
    """
    optimizer, schedule = config.optimizer, config.schedule
    course = course_of(config, budget)
    name = f"{optimizer.name}, " if optimizer.name != Optimizer().name else ""
    words = f"{name}lr {optimizer.lr:g}, {schedule.name}"
    if schedule.name == "transformer":
        words += f" (peak {course.peak:.3g})"
    if course.length.warmup > budget.steps and course.own is None:
        last = course.lr_at(budget.steps - 1)
        return f"{words}, rising to {last:.3g} at its end: the warm-up has {course.length.warmup:,} steps"
    if schedule.name == "wsd":
        words += f", falling from step {course.length.decay_from:,} on"
    return words


def besides(config: Config, budget: Budget) -> Iterator[str]:
    """Lines of what else is done with weights and steps."""
    training = config.training
    if training.ema is not None:
        yield f"evaluated: a moving average of the weights, decay {training.ema:g}"
    if config.optimizer.name == "schedule_free":
        yield "evaluated: the average of schedule_free"
    if config.optimizer.grad_noise:
        yield f"noise in the gradient, variance {config.optimizer.grad_noise:g} / step^0.55"
    if training.on_spike != "none":
        what = "are skipped"
        if training.on_spike == "rollback":
            what = f"are gone back from, to the last multiple of {training.rollback_every} or evaluation"
        yield (
            f"steps whose loss or gradient is {training.spike_threshold:g} deviations above the last "
            f"{training.spike_window} {what}"
        )
    if training.patience is not None:
        yield f"ends after {training.patience} evaluations without a new best"
    if training.profile is not None and parse_steps(training.profile).start > budget.steps:
        yield f"training.profile={training.profile}: the run ends at step {budget.steps:,}: nothing is traced"
    beyond = [tokens for tokens in milestone_tokens(training.milestones) if tokens > budget.tokens]
    if beyond:
        counts = ", ".join(map(format_count, beyond))
        yield f"training.milestones: beyond the {format_count(budget.tokens)} tokens of the run: {counts}"
    limit_s = None if training.max_time is None else parse_duration(training.max_time)
    if limit_s is not None:
        yield f"stops after {format_duration(limit_s)} of training"


def evaluation_words(budget: Budget, evaluations: Sequence[int], eval_tokens: int) -> str:
    """`10 evaluations of 100,096 tokens, the first after step 49: 50% of what training reads`."""
    if not evaluations:
        return "nothing is held out, no evaluations"
    read = len(evaluations) * eval_tokens / budget.tokens
    return (
        f"{counted(len(evaluations), 'evaluation')} of {counted(eval_tokens, 'token')}, the first after step "
        f"{evaluations[0]:,}: {read:.0%} of what training reads"
    )


def dear_evaluations(budget: Budget, evaluations: int, eval_tokens: int, training: Training) -> list[str]:
    """A warning if evaluation costs more than a fifth of training, with the override for a fifth."""
    share = _FORWARD * evaluations * eval_tokens / budget.tokens
    if share <= _MOST_EVALUATION:
        return []
    windows = int(_MOST_EVALUATION / share * eval_tokens) // training.seq_len
    if windows:
        less = f"training.eval_tokens={windows * training.seq_len}"
    else:
        less = f"training.evals={max(1, int(_MOST_EVALUATION / share * evaluations))}"
    return [f"warning: evaluation costs about {share:.0%} of training; for {_MOST_EVALUATION:.0%}: {less}"]
