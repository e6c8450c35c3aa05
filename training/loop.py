"""The parts of the training loop: steps up to a boundary, and what is due there."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import experiment_utils
from conf import Config
from conf.quantities import format_count
from memory import stage
from training.interrupt import Interrupt
from training.plan import Plan

if TYPE_CHECKING:
    import torch

    from data_loading import Data, Loader, MixedData
    from models import LanguageModel
    from training.checkpoints import Checkpoints
    from training.device import Device
    from training.evaluation import Evaluation, HeldOut
    from training.progress import Progress
    from training.step import Batch

log = logging.getLogger("training")


@dataclass
class Run:
    """One attempt at a run: what it is, what `auto` became, and how far it is.

    step: optimizer steps done. best: `{"step", "val_loss"}` of the best evaluation so far.
    seconds: spent in each stage by this attempt, and in the steps themselves (`step`).
    train_seconds: spent in train stages by all attempts.
    """

    folder: Path
    config: Config
    plan: Plan
    device: Device
    loss_chunk: int
    status: experiment_utils.Status
    interrupt: Interrupt
    step: int = 0
    saved_step: int = 0
    best: dict[str, Any] | None = None
    val_loss: float | None = None
    train_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage, known to status.json and to memory. Does not begin when a stop is wanted.

        Raises:
            Interrupted: a signal has asked the run to stop.
        """
        self.interrupt.check()
        with self.last_stage(name):
            yield

    @contextmanager
    def last_stage(self, name: str) -> Iterator[None]:
        """A stage that is also gone through on the way out."""
        self.status.update(stage=name, step=self.step)
        with stage(name, step=self.step), self.timed(name):
            yield

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the block to `seconds[name]`."""
        started = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


def restore_newest(
    run: Run,
    checkpoints: Checkpoints,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    loader: Loader,
) -> None:
    """Go on from the newest whole checkpoint, if there is one; evaluations after it are dropped."""
    from training.metrics import cut_evaluations
    from training.state import restore

    checkpoint = checkpoints.newest()
    if checkpoint is not None:
        restore(checkpoint, model, optimizer, loader)
        run.step = run.saved_step = checkpoint.state["step"]
        run.train_seconds = checkpoint.state["train_seconds"]
        run.best, run.val_loss = checkpoint.state["best"], checkpoint.state["val_loss"]
        log.info("going on from the checkpoint of step %s", f"{run.step:,}")
    cut_evaluations(run.folder / "evals.jsonl", run.step, run.plan.evaluations)
    experiment_utils.update_attempt(run.folder, resumed_from_step=run.step)


def train_until(
    run: Run,
    until: int,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Batch],
    progress: Progress,
) -> None:
    """Take steps up to `until`, or up to the step at which a stop is asked for."""
    from training.schedules import lr_at
    from training.step import train_step

    config, budget = run.config, run.plan.budget
    seconds_before, entered = run.train_seconds, time.monotonic()
    while run.step < until and run.interrupt.requested is None:
        lr = lr_at(run.step, budget.steps, config.optimizer, config.schedule)
        with run.timed("step"):
            result = train_step(
                model,
                optimizer,
                batches,
                accumulation=budget.accumulation,
                lr=lr,
                grad_clip=config.optimizer.grad_clip,
                loss_chunk=run.loss_chunk,
                device=run.device,
                sources=len(run.plan.sources),
            )
        run.step += 1
        run.train_seconds = seconds_before + time.monotonic() - entered
        progress.add(run.step, result, lr, run.train_seconds)
        if run.step < until:
            progress.tell(config.logging.every_s)
        run.status.beat(step=run.step)


def next_boundary(run: Run) -> int:
    """The next step after which something other than a step is due."""
    periods = (run.config.memory.every_steps, run.config.training.checkpoint_every)
    due = [run.step - run.step % period + period for period in periods]
    evaluations = [step for step in run.plan.evaluations if step > run.step]
    return min([*due, *evaluations[:1], run.plan.budget.steps])


def test_losses(run: Run, model: LanguageModel, data: Data | MixedData) -> dict[str, float]:
    """Loss (nats a token) over the test split, of as many tokens as an evaluation reads at most: `test`, and
    of a mixture, whose mean that is, `test/NAME` of each source.
    """
    from training.evaluation import held_out

    losses = {
        source: found.loss for source, found in _evaluate(run, model, held_out(data, "test", run.config))
    }
    log.info("test loss %s", _in_words(losses))
    return losses


def _evaluate(run: Run, model: LanguageModel, sets: Sequence[HeldOut]) -> list[tuple[str, Evaluation]]:
    """(source, what was measured) of each set, then of their mean where they are several."""
    from training.evaluation import evaluate, evaluation_windows, mean_of

    training = run.config.training
    found = [
        evaluate(
            model,
            one.dataset,
            windows=evaluation_windows(len(one.dataset), training.eval_tokens, training.seq_len),
            batch_size=run.plan.budget.micro_batch,
            loss_chunk=run.loss_chunk,
            device=run.device,
        )
        for one in sets
    ]
    named = [(one.source, of_one) for one, of_one in zip(sets, found, strict=True)]
    return (
        named if "/" not in named[0][0] else [*named, (named[0][0].partition("/")[0], mean_of(sets, found))]
    )


def evaluate_run(run: Run, model: LanguageModel, val_sets: Sequence[HeldOut]) -> float:
    """Measure the validation loss (nats a token) at this step, of a mixture also that of each source, and add
    it to evals.jsonl.
    """
    from training.metrics import append_evaluation

    tokens = run.step * run.plan.budget.batch_tokens
    all_found = _evaluate(run, model, val_sets)
    append_evaluation(
        run.folder / "evals.jsonl",
        *(
            {
                "version": experiment_utils.RUN_FOLDER_VERSION,
                "step": run.step,
                "tokens": tokens,
                "source": source,
                "loss": found.loss,
                "perplexity": found.perplexity,
                "eval_tokens": found.tokens,
                "seconds": round(found.seconds, 3),
            }
            for source, found in all_found
        ),
    )
    found = all_found[-1][1]
    run.val_loss = found.loss
    is_best = run.best is None or found.loss < run.best["val_loss"]
    if is_best:
        run.best = {"step": run.step, "val_loss": found.loss}
    log.info(
        "val loss %s (perplexity %.4g) after %s tokens%s",
        _in_words({source: of_source.loss for source, of_source in all_found}),
        found.perplexity,
        format_count(tokens),
        ", the best so far" if is_best else "",
    )
    return found.loss


def _in_words(losses: Mapping[str, float]) -> str:
    """The mean, with those of the sources: `2.1034 (web 2.2012, code 1.9031)`."""
    *each, mean = losses.items()
    words = ", ".join(f"{source.partition('/')[2]} {loss:.4f}" for source, loss in each)
    return f"{mean[1]:.4f}" + (f" ({words})" if words else "")


def checkpoint_is_due(run: Run) -> bool:
    """At every period, at a new best validation loss, at the end, and when a stop is asked for."""
    if run.step == run.saved_step:
        return False
    at_period = run.step % run.config.training.checkpoint_every == 0
    at_best = run.best is not None and run.best["step"] == run.step
    at_end = run.step == run.plan.budget.steps
    return at_period or at_best or at_end or run.interrupt.requested is not None


def save_checkpoint(
    run: Run,
    checkpoints: Checkpoints,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    loader: Loader,
) -> None:
    """Put this step on the disk."""
    from training.state import capture

    checkpoints.save(
        capture(
            model,
            optimizer,
            loader,
            step=run.step,
            train_seconds=run.train_seconds,
            best=run.best,
            val_loss=run.val_loss,
        )
    )
    run.saved_step = run.step
