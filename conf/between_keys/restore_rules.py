"""What a run takes over from another, which checkpoints it keeps for that, when it ends early or skips."""

from __future__ import annotations

from conf.schema import AUTO, Config, Restore, Training, name_of
from conf.sizes import by_width
from experiment_utils.errors import Problem
from experiment_utils.quantities import parse_count


def only_with_a_run(config: Config) -> list[Problem]:
    """What says how another run is taken over goes with one, and parts of it with weights alone."""
    restore, plain = config.restore, Restore()
    problems = [
        Problem(
            f"restore.{name_of(name)}",
            "it goes with another run to begin with (restore.from=FOLDER). Take it away",
        )
        for name in ("what", "step", "strict")
        if restore.from_ is None and getattr(restore, name) != getattr(plain, name)
    ]
    if restore.from_ is not None and not restore.strict and restore.what != "weights":
        problems.append(
            Problem(
                "restore.strict",
                f"restore.what={restore.what} takes all of it, so that all parameters must be alike. Use "
                "restore.what=weights, or restore.strict=true",
            )
        )
    return problems


def milestones_are_counts(config: Config) -> list[Problem]:
    """Each is a count of tokens, above the one before."""
    try:
        milestone_tokens(config.training.milestones)
    except ValueError as error:
        return [Problem("training.milestones", str(error))]
    return []


def time_is_a_time(config: Config) -> list[Problem]:
    """`auto` is a time of Slurm's, not of a run."""
    if config.training.max_time != AUTO:
        return []
    return [Problem("training.max_time", "expected a time such as 1h or 90min, or null, got auto")]


def spikes_are_looked_for(config: Config) -> list[Problem]:
    """What a spike is goes with something that is done about it."""
    training, plain = config.training, Training()
    problems = [
        Problem(f"training.{name}", "it goes with training.on_spike=skip or rollback. Take it away")
        for name in ("spike_threshold", "spike_window")
        if training.on_spike == "none" and getattr(training, name) != getattr(plain, name)
    ]
    if training.on_spike != "rollback":
        if training.rollback_every != plain.rollback_every:
            problems.append(
                Problem("training.rollback_every", "it goes with training.on_spike=rollback. Take it away")
            )
    elif config.restore.from_ is not None and config.restore.what == "run":
        problems.append(
            Problem(
                "training.on_spike",
                "rollback: what a branch (restore.what=run) would go back to lies in its trunk's folder. "
                "Use training.on_spike=skip, in the trunk too",
            )
        )
    return problems


def blocks_there_are(config: Config) -> list[Problem]:
    """No more blocks are computed again than there are."""
    asked, model = config.training.activation_checkpointing, config.model
    layers = model.n_layers or by_width(model.d_model)
    if isinstance(asked, bool) or asked <= layers:
        return []
    return [
        Problem(
            "training.activation_checkpointing",
            f"{asked}: the model has {layers} blocks. Use at most {layers}, or true for all",
        )
    ]


def units_can_be_looked_at(config: Config) -> list[Problem]:
    """What torch.compile has joined cannot be looked into."""
    if not (config.training.dead_units and config.training.compile):
        return []
    return [
        Problem("training.dead_units", "training.compile=true leaves nothing to look at. Use one of them")
    ]


def milestone_tokens(milestones: list[str]) -> list[int]:
    """The counts. Raises ValueError."""
    counts: list[int] = []
    for text in milestones:
        count = parse_count(text)
        if count <= (counts[-1] if counts else 0):
            raise ValueError(f"{text}: expected counts of tokens that rise, for example [50M,100M]")
        counts.append(count)
    return counts
