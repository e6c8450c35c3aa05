"""The parts of the training loop: steps up to a boundary, and what is due there."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import Config
from conf.seeding import seeds
from experiment_utils.quantities import format_count
from memory import LeakMonitor, Stage, stage
from training.attempt.run_files import RUN_FOLDER_VERSION, Status, update_attempt
from training.devices.precision import loss_scaler
from training.devices.step_clock import StepClock, marker_of
from training.distributed.ranks import Ranks
from training.interrupt import Interrupt
from training.plan.run_plan import Plan
from training.report.log import SELDOM
from training.report.memory_attribution import Attributions
from training.report.profiling import Profiler
from training.run.company import ALONE, Company
from training.run.early_stopping import is_over
from training.run.rollback import FILE as ROLLBACKS
from training.run.rollback import goes_back
from training.run.text_samples import FILE as SAMPLES
from training.step.spike_guard import guard_of

if TYPE_CHECKING:
    import torch

    from data_loading import Data, Loader, MixedData, StreamLoader
    from models import LanguageModel
    from training.checkpoint.async_writer import BackgroundCheckpoints
    from training.checkpoint.checkpoints import Checkpoints
    from training.devices.device import Device
    from training.distributed.loader import PartOfStream
    from training.distributed.parallel import Parallel
    from training.evaluation.evaluate import Evaluation, HeldOut
    from training.own_parts.watchers import Watchers
    from training.run.prepared_run import Started
    from training.step.recurrent_state import RowStates
    from training.step.train_step import Batch, Step
    from training.step.weight_average import Average

log = logging.getLogger("training")


@dataclass
class Run:
    """One attempt at a run: what it is, what `auto` became, and how far it is.

    step: optimizer steps done. best: `{"step", "val_loss"}` of the best evaluation so far.
    seconds: spent in each stage by this attempt, in the steps themselves (`step`), and of these until the
    loader gave their batches (`batch`); longest_s: at most at once.
    train_seconds: spent in train stages by all attempts. leaks: memory by step, of this attempt. is_pinned:
    the micro-batch is that of an earlier attempt. ranks: of all its processes, of which the first alone
    writes what is not named by its rank. parallel: the model as they train it, from build_optimizer on.
    writes_in_background: checkpoints. cuda_graph: whether steps are graphs; `auto`: the first ones find
    out. company: the runs that it is trained with.
    row_states: what rows of a recurrent model go on with.
    average: of the weights, that is evaluated in their place. ended_by: what ends it
    before its budget is met, and stopped_val_loss, what was measured then. guard: says which steps to skip.
    """

    folder: Path
    config: Config
    plan: Plan
    device: Device
    loss_chunk: int
    status: Status
    interrupt: Interrupt
    step: int = 0
    saved_step: int = 0
    best: dict[str, Any] | None = None
    val_loss: float | None = None
    train_seconds: float = 0.0
    is_pinned: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    longest_s: dict[str, float] = field(default_factory=dict)
    leaks: LeakMonitor = field(default_factory=LeakMonitor)
    ranks: Ranks = field(default_factory=Ranks)
    company: Company = ALONE
    parallel: Parallel | None = None
    writes_in_background: bool = True
    cuda_graph: bool | str = False
    average: Average | None = None
    row_states: RowStates | None = None
    ended_by: str | None = None
    stopped_val_loss: float | None = None
    watchers: Watchers | None = None
    """Metrics and callbacks of the user's; None if the run has none."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """The user's metrics of the newest evaluation of this attempt."""

    def __post_init__(self) -> None:
        self.guard = guard_of(self.config.training)
        self.clock = StepClock(marker_of(self.device))
        self.scaler = loss_scaler(self.device.precision, self.device.kind)
        self.attributions = Attributions(
            self.folder, is_on=self.config.memory.attribute and self.ranks.is_first
        )
        asked = self.config.training.profile if self.ranks.is_first else None
        self.profiler = Profiler(
            self.folder, asked, self.plan.budget.steps, keeps_history=self.config.memory.attribute
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """A stage, known to status.json and to memory. Does not begin when a stop is wanted.

        Raises:
            Interrupted: a signal has asked the run to stop.
        """
        if self.step == self.saved_step:  # else a stop would lose steps: it is asked for after the next one
            self.interrupt.agree()
        self.interrupt.check()
        with self.last_stage(name) as measured:
            yield measured

    @contextmanager
    def last_stage(self, name: str) -> Iterator[Stage]:
        """A stage that is also gone through on the way out."""
        self.status.update(stage=name, step=self.step)
        with stage(name, step=self.step) as measured, self.timed(name):
            yield measured

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the block to `seconds[name]`."""
        started = time.monotonic()
        yield
        self.add_time(name, time.monotonic() - started)

    def add_time(self, name: str, lasted_s: float) -> None:
        """Add to `seconds[name]` what was spent at once."""
        self.seconds[name] = self.seconds.get(name, 0.0) + lasted_s
        self.longest_s[name] = max(self.longest_s.get(name, 0.0), lasted_s)

    def timing(self, name: str, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; the time until each is there is added to `seconds[name]`."""
        while True:
            with self.timed(name):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def restore_newest(
    run: Run,
    checkpoints: Checkpoints,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    loader: Loader | StreamLoader | PartOfStream,
) -> None:
    """Go on from the newest whole checkpoint, if there is one; evaluations after it are dropped."""
    from training.checkpoint.train_state import resume
    from training.report.metrics import cut_records

    # Which one is newest is looked up once: a shared file system may show it to others later.
    checkpoint = checkpoints.newest(run.company.from_step) if run.ranks.is_first else None
    step = run.ranks.share(lambda: checkpoint.state["step"] if checkpoint is not None else None)
    if step is not None and not run.ranks.is_first:
        checkpoint = checkpoints.of_step(step)
    if checkpoint is not None:
        if run.ranks.is_first:
            checkpoints.end_save_of(checkpoint)
        resume(run, checkpoint, model, optimizer, loader)
        log.info("going on from the checkpoint of step %s", f"{run.step:,}")
    elif run.plan.restored is not None:
        from training.run.init_from_checkpoint import begin

        begin(run, run.plan.restored, model, optimizer, loader)
    if run.ranks.is_first:
        cut_records(run.folder / "evals.jsonl", run.step, run.plan.evaluations)
        cut_records(run.folder / ROLLBACKS, run.step, ())
        cut_records(run.folder / SAMPLES, run.step, ())
        update_attempt(run.folder, resumed_from_step=run.step)


def step_of(run: Run, model: LanguageModel, optimizer: torch.optim.Optimizer) -> Step:
    """Build the step of a run from its configuration."""
    from training.step.dropout_seed import drops, seed_step
    from training.step.gradient_noise import add_noise
    from training.step.train_step import Step

    config, budget, rank = run.config, run.plan.budget, run.ranks.rank
    seed_init, seed_data = seeds(config)
    eta = config.optimizer.grad_noise
    has_own_loss = config.training.step != "default"
    draws = has_own_loss or drops(config.arch)
    return Step(
        model,
        optimizer,
        run.device,
        accumulation=budget.accumulation,
        loss_chunk=run.loss_chunk,
        grad_clip=config.optimizer.grad_clip,
        sources=len(run.plan.sources),
        parallel=run.parallel,
        row_states=run.row_states,
        seed=(lambda number: seed_step(seed_init, number, rank)) if draws else None,
        noise=(lambda of, number: add_noise(of, eta, number, seed_data)) if eta else None,
        refuses=None if run.guard is None else run.guard.refuses,
        scaler=run.scaler,
        has_own_loss=has_own_loss,
        watch=None if run.watchers is None else run.watchers.after_step,
    )


def train_until(started: Started, until: int) -> None:
    """Take steps up to `until`, or up to the step at which a stop is asked for."""
    from training.step.schedules import course_of

    run, progress = started.run, started.progress
    course = course_of(run.config, run.plan.budget)
    batches = run.timing("batch", started.batches)
    run.clock.begin(run.train_seconds)
    while run.step < until:
        lr = course.lr_at(run.step)
        with run.timed("step"), run.profiler.step(run.step + 1):
            result = started.steps.take(batches, lr, run.step)
            ended = run.clock.step()
        run.step += 1
        if run.average is not None and not result.is_skipped:
            run.average.after_step(run.step)
        run.train_seconds = run.clock.now()
        run.leaks.sample(run.step)
        progress.add(run.step, result, lr, ended)
        if run.step < until:
            progress.tell(run.config.logging.every_s)
        run.status.beat(step=run.step)
        # Ranks agree about once a second, and where something other than a step comes next.
        agrees = run.interrupt.is_due() or run.step == until
        if goes_back(run) or (agrees and (run.interrupt.agree() is not None or is_over(run))):
            run.profiler.close()
            break
    with run.timed("step"):
        run.train_seconds = run.clock.end()


def log_leak(run: Run, measured: Stage) -> None:
    """Add growth by step to the stage's record and line; warn of a leak that reaches a limit too soon."""
    report = run.leaks.look(run.step)
    measured.add("leak", report.to_json(), *report.parts())
    warning = run.leaks.warning(report, run.leaks.left_s(run.plan.budget.steps - run.step))
    if warning is not None:
        log.warning("%s", warning)


def log_holders(run: Run, when: str, measured: Stage) -> None:
    """With memory.attribute=true: who holds the memory, as a stage of its own, where it is due."""
    due = run.attributions.is_due(when, measured)
    if due is not None:
        with run.last_stage("attribute"):
            run.attributions.take(due, run.step)


def next_boundary(run: Run) -> int:
    """The next step after which something other than a step is due."""
    training = run.config.training
    periods = [run.config.memory.every_steps, training.checkpoint_every]
    periods += [training.rollback_every] if training.on_spike == "rollback" else []
    periods += [run.config.logging.sample_every] if run.config.logging.sample_every else []
    due = [run.step - run.step % period + period for period in periods]
    evaluations = [step for step in run.plan.evaluations if step > run.step]
    kept = [step for step in run.plan.milestones if step > run.step]
    return min([*due, *evaluations[:1], *kept[:1], run.plan.budget.steps])


def test_losses(run: Run, model: LanguageModel, data: Data | MixedData) -> dict[str, float]:
    """Loss (nats a token) over the test split, of as many tokens as an evaluation reads at most: `test`, and
    of a mixture, whose mean that is, `test/NAME` of each source.
    """
    from training.evaluation.evaluate import held_out

    sets = held_out(data, "test", run.config)
    losses = {source: found.loss for source, found in _named(sets, _evaluate(run, model, sets))}
    log.info("test loss %s", _in_words(losses))
    return losses


def _evaluate(run: Run, model: LanguageModel, sets: Sequence[HeldOut]) -> list[Evaluation]:
    """Evaluate the weights that the run evaluates on each set."""
    from training.evaluation.evaluate import evaluate, evaluation_windows
    from training.evaluation.evaluation_batch import evaluation_step
    from training.plan.memory_parts import step_sizes
    from training.step.weight_average import evaluated

    training, budget = run.config.training, run.plan.budget
    resolved = {"device": run.device.kind, "precision": run.device.precision, "loss_chunk": run.loss_chunk}
    step = step_sizes(run.config, run.plan.vocab_size, budget.micro_batch, resolved, run.ranks.size)
    at_once = evaluation_step(run.config, run.plan.vocab_size, step)
    with evaluated(model, run.average):
        return [
            evaluate(
                model,
                one.dataset,
                windows=evaluation_windows(len(one.dataset), training.eval_tokens, training.seq_len),
                batch_size=at_once.micro_batch,
                loss_chunk=at_once.loss_chunk,
                device=run.device,
                parallel=run.parallel,
                bytes_per_id=one.bytes_per_id,
                by_position=training.eval_by_position,
                metrics=None if run.watchers is None else run.watchers.sums(at_once.loss_chunk),
            )
            for one in sets
        ]


def _named(sets: Sequence[HeldOut], found: Sequence[Evaluation]) -> list[tuple[str, Evaluation]]:
    """(source, what was measured) of each set, then of their mean where they are several."""
    from training.evaluation.evaluate import mean_of

    named = [(one.source, of_one) for one, of_one in zip(sets, found, strict=True)]
    return (
        named if "/" not in named[0][0] else [*named, (named[0][0].partition("/")[0], mean_of(sets, found))]
    )


def evaluate_run(
    run: Run,
    model: LanguageModel,
    val_sets: Sequence[HeldOut],
    *,
    is_extra: bool = False,
    measured: Sequence[Evaluation] | None = None,
) -> float:
    """Measure the validation loss (nats a token) at this step, of a mixture also that of each source, and add
    it to evals.jsonl. is_extra: at no milestone; it is dropped where the run goes on, and is never the best.
    measured: of each set, where that is done already.
    """
    from training.evaluation.dead_units import watched, words
    from training.report.metrics import append_records

    tokens = run.step * run.plan.budget.batch_tokens
    with watched(model, is_on=run.config.training.dead_units) as units:
        all_found = _named(val_sets, measured or _evaluate(run, model, val_sets))
    dead = units.shares()
    records = [
        {
            "version": RUN_FOLDER_VERSION,
            "step": run.step,
            "tokens": tokens,
            "source": source,
            "loss": found.loss,
            "perplexity": found.perplexity,
            "bits_per_byte": found.bits_per_byte,
            "eval_tokens": found.tokens,
            "seconds": round(found.seconds, 3),
            **({"extra": True} if is_extra else {}),
            **({"dead_units": dead} if dead and source == "val" else {}),
            **({"by_position": found.by_position} if found.by_position else {}),
            **found.own,
        }
        for source, found in all_found
    ]
    if run.ranks.is_first:
        append_records(run.folder / "evals.jsonl", *records)
    found = all_found[-1][1]
    if is_extra:
        run.stopped_val_loss = found.loss
    else:
        run.val_loss, run.measured = found.loss, found.own
    is_best = not is_extra and (run.best is None or found.loss < run.best["val_loss"])
    if is_best:
        run.best = {"step": run.step, "val_loss": found.loss}
    log.info(
        "val loss %s after %s tokens, perplexity %.4g%s%s",
        _in_words({source: of_source.loss for source, of_source in all_found}),
        format_count(tokens),
        found.perplexity,
        "" if found.bits_per_byte is None else f", {found.bits_per_byte:.4f} bits a byte",
        ", best" if is_best else "",
        extra=SELDOM,
    )
    if words(dead):
        log.info("%s", words(dead), extra=SELDOM)
    if run.watchers is not None and not is_extra:
        run.watchers.after_evaluation(found.own)
    return found.loss


def _in_words(losses: Mapping[str, float]) -> str:
    """The mean, with those of the sources: `2.1034 (web 2.2012, code 1.9031)`."""
    *each, mean = losses.items()
    words = ", ".join(f"{source.partition('/')[2]} {loss:.4f}" for source, loss in each)
    return f"{mean[1]:.4f}" + (f" ({words})" if words else "")


def check_there_is_time(run: Run, times: int = 1) -> None:
    """Before an evaluation: a run that is to stop, and would be killed before the checkpoint behind it, stops
    here. Steps since its last checkpoint are taken again, as they were. times: number of runs that do both.

    Raises:
        Interrupted: there is not; as long as an evaluation and a checkpoint of this attempt took.
    """
    if run.interrupt.agree() is None:
        return
    left_s = run.interrupt.left_s()
    needed_s = times * (run.longest_s.get("evaluate", 0.0) + run.longest_s.get("checkpoint", 0.0))
    is_late = left_s is not None and needed_s > left_s
    if is_late:
        log.warning(
            "%.0f s are left, an evaluation and a checkpoint take %.0f: stopping without them",
            left_s,
            needed_s,
        )
    if run.ranks.largest(int(is_late)):  # rank 0 alone knows how long a checkpoint takes
        run.interrupt.check()


def checkpoint_is_due(run: Run) -> bool:
    """At every period and milestone, at a new best val loss, at a point that may be gone back to, at the end,
    and when a stop is asked for.
    """
    if run.step == run.saved_step:
        return False
    at_period = run.step % run.config.training.checkpoint_every == 0
    at_best = run.best is not None and run.best["step"] == run.step
    at_end = run.step == run.plan.budget.steps
    at_milestone = run.step in run.plan.milestones
    at_point = run.guard is not None and run.guard.point == run.step
    return (
        at_period
        or at_best
        or at_end
        or at_milestone
        or at_point
        or run.ended_by is not None
        or run.interrupt.requested is not None
    )


def save_checkpoint(
    run: Run,
    saving: BackgroundCheckpoints,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    loader: Loader | StreamLoader | PartOfStream,
) -> None:
    """Put this step on the disk, or on its way there; the last of an attempt is there when this returns."""
    from training.checkpoint.train_state import capture

    run.saved_step = run.step
    is_sharded = run.parallel is not None and run.parallel.is_sharded
    if not (run.ranks.is_first or is_sharded):
        return
    if run.watchers is not None:
        run.watchers.before_checkpoint()
    captured = capture(
        model,
        optimizer,
        loader,
        average=run.average,
        row_states=run.row_states,
        watchers=run.watchers,
        keep=run.ranks.is_first,
        step=run.step,
        train_seconds=run.train_seconds,
        best=run.best,
        val_loss=run.val_loss,
        **({"guard": run.guard.state()} if run.guard is not None else {}),
        **({"loss_scale": run.scaler.state_dict()} if run.scaler is not None else {}),
    )
    if run.ranks.is_first:
        saving.save(captured, is_own=is_sharded)
        if run.step == run.plan.budget.steps or run.interrupt.requested is not None:
            saving.wait()
        run.longest_s["checkpoint"] = max(run.longest_s.get("checkpoint", 0.0), saving.longest_s)
