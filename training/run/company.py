"""Groups of runs that are trained together, and the step from which they continue. No torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Company:
    """Runs that a run is trained with."""

    members: tuple[str, ...] = ()
    """Names of all runs of the ensemble in order, including this one; empty for a single run."""
    together: int = 1
    """Number of runs trained at a time."""
    from_step: int | None = None
    """Checkpoint to resume from, 0: the beginning; None: the newest checkpoint."""

    def to_json(self) -> dict[str, Any] | None:
        """For run.json."""
        return {"members": list(self.members), "together": self.together} if self.members else None


ALONE = Company()


@dataclass(frozen=True)
class Group:
    """Runs that are trained together from this step."""

    members: list[str]
    step: int


def groups(
    steps: Mapping[str, Sequence[int]],
    together: int,
    by_themselves: Collection[str] = (),
    begins: Mapping[str, int] | None = None,
) -> list[Group]:
    """Group runs that have a checkpoint of the same step, at most `together` in a group.

    Runs at unequal steps, after a kill between the writes of two checkpoints, resume from the last step that
    all have. A run that lacks it among its last two checkpoints, since it was trained alone for longer, is
    in another group.

    Args:
        steps: run -> steps of its complete checkpoints, ascending; runs in the order of the ensemble.
        by_themselves: runs whose last attempt was alone. No kill left them one checkpoint ahead of others, so
            they resume from their newest one, and no other run goes back for them.
        begins: run -> steps of another run that a branch continues; 0 for all others.
    """
    found: list[Group] = []
    waiting = {name: [(begins or {}).get(name, 0), *of_one] for name, of_one in steps.items()}

    while waiting:
        step = min(of_one[-1] for of_one in waiting.values())
        at_step = {name for name, of_one in waiting.items() if of_one[-1] == step}
        ahead = {name for name, of_one in waiting.items() if step in of_one[-2:-1]}.difference(by_themselves)
        with_them = at_step | ahead if at_step.difference(by_themselves) else at_step
        same = [name for name in waiting if name in with_them]
        for name in same:
            del waiting[name]
        found += [Group(same[i : i + together], step) for i in range(0, len(same), together)]
    return found
