"""End of a run that is done: its results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from training.attempt.run_files import update_attempt, update_run
from training.run.loop import Run, test_losses

if TYPE_CHECKING:
    from conf import Config
    from data_loading import Data, MixedData
    from models import LanguageModel


def finish(run: Run, data: Data | MixedData, model: LanguageModel) -> None:
    """Write the results into run.json, then the state `done`."""
    tested = test_losses(run, model, data) if "test" in data.splits else {}
    if not run.ranks.is_first:
        return
    floor = (run.plan.data or {}).get("floor_loss")
    results = {
        "val_loss": run.val_loss,
        "test_loss": tested.pop("test", None),
        "best": run.best,
        "floor_loss": floor,
        # Counting reads all of train; computed tokens have any number of it, and a floor.
        "bigram_val_loss": _bigram_loss(run.config, data) if floor is None else None,
        **({"test_losses": tested} if tested else {}),
        **({"ended_by": run.ended_by} if run.ended_by else {}),
        **(run.guard.results() if run.guard is not None else {}),
        "train_seconds": round(run.train_seconds, 3),
    }
    update_run(run.folder, results=results)
    update_attempt(
        run.folder, ended_s=round(time.time(), 3), seconds={k: round(v, 4) for k, v in run.seconds.items()}
    )
    run.status.update(state="done", stage="finish", step=run.step)


def _bigram_loss(config: Config, data: Data | MixedData) -> float | None:
    """Val loss of a bigram table, for one set with a small vocabulary and plain labels; otherwise None."""
    from data_loading import Data, bigram_loss

    plain_labels = (config.dataset.shift, config.dataset.documents) == (1, "across")
    if not isinstance(data, Data) or not data.is_counted or "val" not in data.splits:
        return None
    if data.vocab_size > 1024 or not plain_labels:
        return None
    return bigram_loss(data, eval_tokens=config.training.eval_tokens, seq_len=config.training.seq_len)
