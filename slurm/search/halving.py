"""Rung after rung, through whatever starts the runs.

Nothing is kept of a search but its runs: the same command draws the same candidates, and of these what is
done is not run again. So one that was killed is gone on with by typing it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.composing.overrides import Value
from experiment_utils.quantities import counted
from slurm.launch.hydra_task import RequestedRuns, RunFailed
from slurm.search.rungs import Rung, best_first, kept
from slurm.search.search_request import Search, read_search
from training.checkpoint.checkpoints import checkpoint_steps

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn

log = logging.getLogger("slurm")


def search(runs: RequestedRuns, launcher: Any) -> list[list[JobReturn]]:
    """Of each rung what Hydra's launcher returned.

    Raises:
        UserError: something is wrong with a run; none of its rung was started.
    """
    asked = read_search(runs.request)
    candidates: list[tuple[Mapping[str, Value], str | None]] = [(one, None) for one in asked.candidates]
    returned: list[list[JobReturn]] = []
    for rung, after in zip(asked.rungs, [*asked.rungs[1:], None], strict=True):
        log.info("rung %s of %s: %s", rung.number, len(asked.rungs), counted(len(candidates), "run"))
        batch = [asked.arguments(values, rung, trunk) for values, trunk in candidates]
        results = list(launcher.launch(batch, initial_job_idx=sum(map(len, returned))))
        runs.take(results)
        returned.append(results)
        losses = [_loss(result) for result in results]
        _tell_best(asked, candidates, losses, rung)
        if after is None or not best_first(losses):
            break
        candidates = [
            (candidates[place][0], _trunk(results[place]) if asked.goes_on else None)
            for place in kept(losses, after.count)
        ]
    return returned


def _loss(result: JobReturn) -> float | None:
    """None: it did not end as done; one that diverged has none that is finite."""
    value = result._return_value
    return None if isinstance(value, RunFailed) or not isinstance(value, int | float) else float(value)


def _trunk(result: JobReturn) -> str | None:
    """The run's folder; None where it has kept no checkpoint, and the next begins anew."""
    folder = Path(str(result.working_dir))
    return str(folder) if checkpoint_steps(folder / "checkpoints") else None


def _tell_best(
    asked: Search,
    candidates: Sequence[tuple[Mapping[str, Value], str | None]],
    losses: Sequence[float | None],
    rung: Rung,
) -> None:
    order = best_first(losses)
    if not order:
        log.warning("rung %s: none of its runs has a result, so none goes on", rung.number)
        return
    best = order[0]
    values = " ".join(f"{key}={value.text}" for key, value in candidates[best][0].items())
    without = len(losses) - len(order)
    left = f"; {without} without a result" if without else ""
    log.info("rung %s of %s: best val %.4f: %s%s", rung.number, len(asked.rungs), losses[best], values, left)
