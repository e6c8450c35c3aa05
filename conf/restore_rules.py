"""What can be taken over from another run, and which checkpoints are kept for that."""

from __future__ import annotations

from conf.errors import Problem
from conf.quantities import parse_count
from conf.schema import Config, Restore, name_of


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


def milestone_tokens(milestones: list[str]) -> list[int]:
    """The counts. Raises ValueError."""
    counts: list[int] = []
    for text in milestones:
        count = parse_count(text)
        if count <= (counts[-1] if counts else 0):
            raise ValueError(f"{text}: expected counts of tokens that rise, for example [50M,100M]")
        counts.append(count)
    return counts
