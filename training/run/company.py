"""Who is trained with whom, and from which step on. No torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Company:
    """Of a run: the names of the runs of its ensemble, itself among them, in order; none: it is by itself.

    together: how many are trained at a time. from_step: at which it goes on, 0 from its beginning; None: at
    its newest checkpoint.
    """

    members: tuple[str, ...] = ()
    together: int = 1
    from_step: int | None = None

    def to_json(self) -> dict[str, Any] | None:
        """For run.json."""
        return {"members": list(self.members), "together": self.together} if self.members else None


ALONE = Company()


@dataclass(frozen=True)
class Group:
    """members: that are trained together, from this step on."""

    members: list[str]
    step: int


def groups(
    steps: Mapping[str, Sequence[int]],
    together: int,
    by_themselves: Collection[str] = (),
    begins: Mapping[str, int] | None = None,
) -> list[Group]:
    """The runs in groups of at most `together`, each of runs that have a checkpoint of the same step.

    steps: of the whole checkpoints of each run, ascending, in the order of the ensemble. Runs at unequal
    steps, after a kill between the writing of two checkpoints, go on from the last step that all have.
    One that did not have it lately, since it was trained by itself for longer, goes on in another group.
    by_themselves: those whose last attempt had no company: no kill left them a step ahead of the others, so
    that they go on from their newest checkpoint and from no other, and nobody goes back for them. begins:
    steps that branches of another run have behind them as they begin; 0 of all others.
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
