"""Training loop of several runs: that of `core.train`, with one step for all of them.

Each run writes the files that it would write alone. A run that ends before the others, because it diverged or
no longer improves, leaves the stack: its weights stop, and the others continue without it.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from experiment_utils.quantities import format_count, format_duration
from memory import Stage, stage
from training.checkpoint.async_writer import BackgroundCheckpoints
from training.devices.out_of_memory import is_device_oom, release
from training.devices.step_clock import StepClock, marker_of
from training.ensemble.evaluation import can_evaluate_together, evaluate_together
from training.ensemble.member_log import ON_TERMINAL, about
from training.ensemble.step import EnsembleStep
from training.report.progress import NonFinite, read_pending
from training.run.early_stopping import MAX_TIME, ended_by, is_over, time_is_over
from training.run.finish import finish
from training.run.loop import (
    check_there_is_time,
    checkpoint_is_due,
    evaluate_run,
    log_leak,
    next_boundary,
    save_checkpoint,
)
from training.run.text_samples import take_if_due
from training.step.spike_guard import Diverged

if TYPE_CHECKING:
    from training.evaluation.evaluate import Evaluation
    from training.report.external_logger import Logger
    from training.run.prepared_run import Started

log = logging.getLogger("training")

Ended = Callable[["Started", BaseException | None], None]
"""Called with a run that has ended and the error that ended it; None: it is done."""


class EnsembleLoop:
    """Trains runs at the same step until each has ended.

    ended: called for each run at its end. logger: of `logging.to`, checked between steps.
    """

    def __init__(self, members: Sequence[Started], ended: Ended, logger: Logger | None = None) -> None:
        # Members with equal settings are adjacent: a step updates them as one tensor (StackedOptimizer).
        self.going = sorted(members, key=lambda member: repr(member.run.config.optimizer))
        self._ended, self._logger = ended, logger
        self._savings: dict[int, BackgroundCheckpoints] = {}
        self._logged_at = self._began = time.monotonic()
        self._first_step = members[0].run.step
        self._together: EnsembleStep | None = None
        self._clock = StepClock(marker_of(members[0].run.device))
        self._before_s: dict[int, float] = {}

    def run(self) -> None:
        """Train until each run has ended.

        Raises:
            Interrupted: a signal requested a stop; unfinished runs are checkpointed at their step.
        """
        with ExitStack() as saving:
            for member in self.going:
                background = BackgroundCheckpoints(member.checkpoints, is_on=member.run.writes_in_background)
                self._savings[id(member)] = saving.enter_context(background)
                member.run.ended_by = ended_by(member.run)
            self._end_those_that_are_through()
            name = "first_step"
            while self.going:
                self._train(name)
                if name == "first_step" and self.going:  # it takes longer than all others
                    self._began, self._first_step = time.monotonic(), self.going[0].run.step
                self._check()
                self._evaluate()
                self._take_samples()
                self._log_progress()
                if self._logger is not None:
                    self._logger.check()
                self._save()
                self._end_those_that_are_through()
                name = "train"

    def _train(self, name: str) -> None:
        """Take steps up to the next boundary."""
        lead = self.going[0].run
        until = lead.step + 1 if name == "first_step" else min(next_boundary(m.run) for m in self.going)
        with self._stage(name, may_stop=True) as measured:
            self._start_clock()
            # Read from the members that are left: the first can leave, and its step stays.
            while self.going and self.going[0].run.step < until:
                self._step()
                if self.going and self.going[0].run.step < until:  # else its evaluation comes first
                    self._log_progress()
                if lead.interrupt.agree() is not None or any(is_over(member.run) for member in self.going):
                    break
            waited_s = time.monotonic()
            self._clock.end()
            self._note_time(time.monotonic() - waited_s)
            if self.going:
                log_leak(self.going[0].run, measured)

    def _start_clock(self) -> None:
        self._clock.begin(0.0)
        self._before_s = {id(member): member.run.train_seconds for member in self.going}

    def _note_time(self, lasted_s: float) -> None:
        """Add host time of the steps to each run, and set its time of training."""
        for member in self.going:
            run = member.run
            run.seconds["step"] = run.seconds.get("step", 0.0) + lasted_s
            run.train_seconds = self._before_s[id(member)] + self._clock.now()

    def _stacked(self) -> EnsembleStep:
        """The remaining members as one stack."""
        if self._together is None:
            self._together = EnsembleStep(self.going)
        return self._together

    def _step(self) -> None:
        together = self._stacked()
        started = time.monotonic()
        lrs = together.lrs()
        results = together.step()
        ended = self._clock.step()
        self._note_time(time.monotonic() - started)
        lost: list[tuple[Started, BaseException]] = []
        for member, lr, result in zip(self.going, lrs, results, strict=True):
            run = member.run
            run.step += 1
            if isinstance(result, Diverged):
                lost.append((member, result))
                continue
            if run.average is not None and not result.is_skipped:
                run.average.after_step(run.step)
            own = dataclasses.replace(ended, before_s=self._before_s[id(member)])
            member.progress.add(run.step, result, lr, own)
            run.status.beat(step=run.step, stage="train")
        self.going[0].run.leaks.sample(self.going[0].run.step)
        # On a GPU this is checked only where something else is due: it would wait for every step.
        is_finite = self.going[0].run.device.kind != "cpu" or bool(together.is_finite)
        for member, error in lost:
            self._end(member, error)
        if not is_finite:
            self._check()

    def _check(self) -> None:
        """End members whose loss or gradient is not finite; the others are not affected."""
        read_pending([member.progress for member in self.going])
        for member in list(self.going):
            try:
                with about(member.run.folder.name):
                    member.progress.check()
            except NonFinite as error:
                self._end(member, error)

    def _evaluate(self) -> None:
        due = [member for member in self.going if member.run.step in member.run.plan.evaluations]
        if due:
            check_there_is_time(due[0].run, times=len(due))
        losses: dict[int, float] = {}
        if due:
            with self._stage("evaluate"):
                measured = self._measure(due)
                for member, found in zip(due, measured, strict=True):
                    run, started = member.run, time.monotonic()
                    with about(run.folder.name):
                        losses[id(member)] = evaluate_run(run, member.model, member.val_sets, measured=found)
                    share_s = sum(one.seconds for one in found or ())
                    run.add_time("evaluate", share_s + time.monotonic() - started)
            lead = due[0].run
            tokens = format_count(lead.step * lead.plan.budget.batch_tokens)
            with about(ON_TERMINAL):
                log.info("after %s tokens %s", tokens, _in_words("val loss", list(losses.values())))
        for member in self.going:
            with about(member.run.folder.name):
                member.progress.flush(losses.get(id(member)))
            member.run.ended_by = ended_by(member.run)

    def _take_samples(self) -> None:
        for member in self.going:
            with about(member.run.folder.name):
                take_if_due(member.samples, member.run, member.model)

    def _measure(self, due: Sequence[Started]) -> Sequence[list[Evaluation] | None]:
        """Evaluations of each due member on its held-out sets; None: it is evaluated alone."""
        if len(due) < len(self.going) or not can_evaluate_together(due):
            return [None] * len(due)
        together = self._stacked()
        try:
            return evaluate_together(due, together.stack)
        except RuntimeError as error:
            if not (is_device_oom(error) and together.passes.release()):
                raise
            release(error)
        log.warning("CUDA out of memory in an evaluation: CUDA graphs are left out, which hold memory")
        return evaluate_together(due, together.stack)

    def _save(self) -> None:
        """Checkpoint all members if it is due for one of them.

        No checkpoint begins before all members have written the last one, so all have one of a common step.
        """
        if not any(checkpoint_is_due(member.run) for member in self.going):
            return
        with self._stage("checkpoint"):
            for member in self.going:
                self._savings[id(member)].wait()
            for member in self.going:
                for file in (member.metrics, member.sources):
                    if file is not None:
                        file.sync()
                with member.run.timed("checkpoint"):
                    save_checkpoint(
                        member.run, self._savings[id(member)], member.model, member.optimizer, member.loader
                    )

    def _end_those_that_are_through(self) -> None:
        for member in list(self.going):
            run = member.run
            if run.ended_by == MAX_TIME:
                with about(run.folder.name):
                    evaluate_run(run, member.model, member.val_sets, is_extra=True)
                    error = time_is_over(run)
                self._end(member, error)
            elif run.step >= run.plan.budget.steps or run.ended_by is not None:
                self._savings[id(member)].wait()
                with about(run.folder.name), run.timed("finish"):
                    self._leave(member)
                    finish(run, member.data, member.model)
                self._ended(member, None)

    def _end(self, member: Started, error: BaseException) -> None:
        with about(member.run.folder.name):
            self._savings[id(member)].wait()
            self._leave(member)
            self._ended(member, error)

    def _leave(self, member: Started) -> None:
        """Remove a member; the stack is made again from the others."""
        self.going.remove(member)
        if self._together is not None:
            self._together.release()
            self._together = None
        member.metrics.close()
        if member.sources is not None:
            member.sources.close()

    @contextmanager
    def _stage(self, name: str, *, may_stop: bool = False) -> Iterator[Stage]:
        """Stage of all members, measured once, like `Run.stage` of one."""
        lead = self.going[0].run
        if may_stop:
            lead.interrupt.check()
        for member in self.going:
            write = member.run.status.beat if name == "train" else member.run.status.update
            write(stage=name, step=member.run.step)
        with stage(name, step=lead.step) as measured:
            yield measured

    def _log_progress(self) -> None:
        """Every `logging.every_s`, log a line for each member, and one for all on the terminal."""
        if not self.going:
            return
        lead = self.going[0].run
        every_s, now = lead.config.logging.every_s, time.monotonic()
        if now - self._logged_at < every_s or lead.step == self._first_step:
            return
        self._logged_at = now
        read_pending([member.progress for member in self.going])
        for member in self.going:
            with about(member.run.folder.name):
                member.progress.tell(0.0)
        losses = [member.progress.last.train_loss for member in self.going if member.progress.last]
        seconds_a_step = (now - self._began) / max(1, lead.step - self._first_step)
        budget = lead.plan.budget
        with about(ON_TERMINAL):
            log.info(
                "step %6s/%s | %s runs, %s | %s tok/s | %s to go",
                f"{lead.step:,}",
                f"{budget.steps:,}",
                len(self.going),
                _in_words("loss", losses),
                format_count(round(len(self.going) * budget.batch_tokens / seconds_a_step)),
                format_duration(seconds_a_step * (budget.steps - lead.step)),
            )


def _in_words(what: str, values: Sequence[float]) -> str:
    """`loss 2.0101 to 2.2203`"""
    if not values:
        return what
    low, high = min(values), max(values)
    return f"{what} {low:.4f}" + (f" to {high:.4f}" if high > low else "")
