"""One rung after another, through whatever starts the runs.

A search keeps nothing but its runs: the same command draws the same candidates, and runs that are done are
not run again. So a search that was killed continues when its command is typed again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.composing.overrides import Value
from experiment_utils.quantities import counted
from slurm.launch.hydra_task import RequestedRuns, RunFailed
from slurm.search.rungs import best_first, kept
from slurm.search.search_request import read_search
from training.checkpoint.checkpoints import checkpoint_steps

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn

log = logging.getLogger("slurm")


def search(runs: RequestedRuns, launcher: Any) -> list[list[JobReturn]]:
    """Run the search; returns the results of Hydra's launcher for each rung.

    Raises:
        UserError: something is wrong with a run; none of its rung was started.
    """
    asked = read_search(runs.request)
    returned: list[list[JobReturn]] = []
    candidates: list[tuple[Mapping[str, Value], str | None]] = [(values, None) for values in asked.candidates]
    for rung, after in zip(asked.rungs, [*asked.rungs[1:], None], strict=True):
        name = f"rung {rung.number} of {len(asked.rungs)}"
        log.info("%s: %s", name, counted(len(candidates), "run"))
        batch = [asked.arguments(values, rung, trunk) for values, trunk in candidates]
        results = list(launcher.launch(batch, initial_job_idx=sum(map(len, returned))))
        runs.take(results)
        returned.append(results)
        losses = [_loss(result) for result in results]
        order = best_first(losses)
        if not order:
            log.warning("%s: none of its runs has a result, so none continues", name)
            break
        values = " ".join(f"{key}={value.text}" for key, value in candidates[order[0]][0].items())
        without = len(losses) - len(order)
        left = f"; {without} without a result" if without else ""
        log.info("%s: best val %.4f: %s%s", name, losses[order[0]], values, left)
        if after is not None:
            candidates = [
                (candidates[place][0], _trunk(results[place]) if asked.continues else None)
                for place in kept(losses, after.count)
            ]
    return returned


def _loss(result: JobReturn) -> float | None:
    """The validation loss; None if the run is not done, not finite if it diverged."""
    value = result._return_value
    return None if isinstance(value, RunFailed) or not isinstance(value, int | float) else float(value)


def _trunk(result: JobReturn) -> str | None:
    """The run's folder; None if it kept no checkpoint: then the next run begins at step 0."""
    folder = Path(str(result.working_dir))
    return str(folder) if checkpoint_steps(folder / "checkpoints") else None
