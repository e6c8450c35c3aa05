"""train(): one run, stage by stage, from its folder to its last checkpoint.

Read `begin` and `train` from top to bottom: they are the story of a run. `python core.py RUN_FOLDER` is the
process that an entry or a job starts; it exits 0 when the run is done, 1 when it failed, 2 when the
user's input cannot be used, 130 when it was interrupted.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from conf import AUTO
from conf.seeding import seed_all, seeds
from data_loading.interruptible_wait import checked_while_waiting
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from experiment_utils.typed_here import print_as_typed_here
from memory import black_box, record_to, stage
from memory.attribute.attribution import largest
from memory.record.earlier_attempts import keep_earlier
from training.attempt.begin import FILES_OF_ATTEMPT, check_code, code_allowed, finish_beginning_again
from training.attempt.run_files import Status, next_attempt, read_config, read_run, read_status, run_lock
from training.devices.thread_waiting import choose_waiting, log_shared_cores
from training.distributed.place import place_of
from training.distributed.ranks import AgreedInterrupt, Ranks
from training.distributed.watch import Failure
from training.interrupt import SIGNALS, Interrupt, stop_with_parent
from training.report.efficiency import log_efficiency
from training.report.external_logger import Logger
from training.report.log import IN_FILE, log_to
from training.report.progress import Progress
from training.run.company import ALONE, Company
from training.run.early_stopping import MAX_TIME, ended_by, time_is_over
from training.run.exit_reason import ending_of
from training.run.finish import finish
from training.run.loop import (
    Run,
    check_there_is_time,
    checkpoint_is_due,
    evaluate_run,
    log_holders,
    log_leak,
    next_boundary,
    restore_newest,
    save_checkpoint,
    step_of,
    train_until,
)
from training.run.micro_batch import SplitBatches, fitted
from training.run.prepared_run import Started
from training.run.rollback import goes_back, note_point, roll_back
from training.run.text_samples import samples_of, take_if_due

if TYPE_CHECKING:
    from models import LanguageModel
    from training.devices.device import Device
    from training.step.train_step import Batch

log = logging.getLogger("core")


def begin(
    folder: Path,
    status: Status,
    interrupt: Interrupt,
    ranks: Ranks | None = None,
    company: Company = ALONE,
) -> Started:
    """All that is done before the first step of an attempt. company: the runs that it is trained with.

    Raises:
        UserError, Interrupted, RankFailed, RanksMissing: as `train`.
    """
    with stage("start"):
        run = _start(folder, status, interrupt, ranks or Ranks(), company)
    config, plan, device = run.config, run.plan, run.device

    with run.stage("load_tokenizer"):
        from training.plan.run_plan import open_data

        # With its data: where it is found nowhere else, it is the copy in their set.
        data = open_data(config.dataset, config.tokenizer, (plan.data or {}).get("sets", ()))
        log.info("tokenizer %s, %s ids", data.tokenizer_name, f"{data.vocab_size:,}", extra=IN_FILE)

    with run.stage("open_dataset"):
        from data_loading import open_train
        from training.evaluation.evaluate import held_out
        from training.report.log_data import tell_data

        seq_len = config.training.seq_len
        seed_init, seed_data = seeds(config)
        train_set = open_train(data, config.dataset, seq_len, seed_data, plan.budget.effective_batch)
        val_sets = held_out(data, "val", config)
        tell_data(plan, train_set, val_sets)
        samples = samples_of(config, data, val_sets)

    with run.stage("build_model"):
        from training.own_parts.own_model import build_run_model
        from training.plan.run_plan import max_positions
        from training.run.built_model import check_counts

        seed_all(seed_init)
        model = build_run_model(config, data.vocab_size, max_positions(config.arch, seq_len))
        check_counts(run, model)
        model.activation_checkpointing = config.training.activation_checkpointing
        model.to(device.torch_device)
        if config.training.compile:
            _compile(model, device)

    with run.stage("build_optimizer"):
        from training.distributed.parallel import Parallel
        from training.own_parts.own_optimizer import build_run_optimizer
        from training.own_parts.own_step import loss_model_of
        from training.own_parts.watchers import watchers_of
        from training.run.probe import settle_micro_batch
        from training.step.recurrent_state import row_states_of
        from training.step.weight_average import average_of

        settle_micro_batch(run, model)
        plan = run.plan
        kind, is_bf16 = config.training.parallel, device.precision == "bf16"
        loss = loss_model_of(config, model)
        run.parallel = Parallel(model, run.ranks, kind, gathers_bf16=is_bf16, loss=loss)
        optimizer = build_run_optimizer(model, config, device.kind)
        run.watchers = watchers_of(run, model, optimizer)
        run.average = average_of(model, optimizer, config)
        run.row_states = row_states_of(config, plan.budget.effective_batch, device)

    with run.stage("restore"):
        from training.checkpoint.checkpoints import Checkpoints
        from training.distributed.loader import loader_of
        from training.plan.mixture import repeats
        from training.report.metrics import MetricsFile, SourcesFile

        loader = loader_of(
            train_set,
            run.ranks,
            batch_size=plan.budget.micro_batch,
            repeat=repeats(config),
        )
        # Runs that are killed between two writes go on from the one before, which all of them have.
        keep = max(config.training.keep_checkpoints, 2 if company.members else 1)
        checkpoints = Checkpoints(folder / "checkpoints", keep, plan.milestones)
        restore_newest(run, checkpoints, model, optimizer, loader)
        # Of rank 0 the run's own; others make theirs of what all of them computed, and drop them.
        rows = folder if run.ranks.is_first else None
        own = run.watchers.columns if run.watchers is not None else ()
        metrics = MetricsFile(rows and rows / "metrics.csv", run.step, own)
        sources = SourcesFile(rows and rows / "sources.csv", run.step) if plan.sources else None

    with run.stage("first_batch"):
        from training.devices.device import measure_peak_flops
        from training.plan.mixture import tokens_read

        ready = _with_first_ready(iter(loader)) if run.step < plan.budget.steps else iter(())
        batches = SplitBatches(ready, lambda: run.step)
        peak_flops = measure_peak_flops(device)
        if peak_flops is not None:
            peak_flops *= run.ranks.size
        progress = Progress(
            plan,
            metrics,
            seconds=run.train_seconds,
            peak_flops=peak_flops,
            sources=sources,
            read=tokens_read(train_set, plan.budget),
            parameters=[name for name, _ in model.named_parameters()],
        )

    step = step_of(run, model, optimizer)
    return Started(
        run, data, val_sets, model, optimizer, loader, checkpoints, metrics, sources, step, batches, progress,
        samples,
    )  # fmt: skip


def train(
    folder: Path,
    status: Status,
    interrupt: Interrupt,
    ranks: Ranks | None = None,
    logger: Logger | None = None,
) -> None:
    """Run the config of `folder` until its budget is met, going on from its newest checkpoint.

    ranks: the processes of this run, where it has several: each calls this. logger: of `logging.to`; whoever
    hands it in closes it.

    Raises:
        UserError: the config, the data or the device do not serve.
        OSError: the disk is full or read-only; checkpoints are as they were.
        NonFinite, Diverged: the loss diverged; checkpoints before it are kept.
        TimeIsOver: training.max_time was spent; the step it stopped at is checkpointed.
        Interrupted: a signal asked to stop; the step it stopped at is checkpointed.
        RankFailed: another rank ended, and this one cannot go on without it.
        RanksMissing: not all of them came.
    """
    from training.checkpoint.async_writer import BackgroundCheckpoints
    from training.step.graphed_step import graphed

    started = begin(folder, status, interrupt, ranks)
    run, plan, progress = started.run, started.run.plan, started.progress
    data, val_sets, model = started.data, started.val_sets, started.model
    optimizer, loader = started.optimizer, started.loader
    checkpoints, metrics, sources = started.checkpoints, started.metrics, started.sources
    started.steps = graphed(run, started.step)

    run.attributions.begin()
    if logger is not None:
        logger.start(run.config.logging)
    name, until = "first_step", run.step + 1
    with BackgroundCheckpoints(checkpoints, is_on=run.writes_in_background) as saving:
        run.ended_by = ended_by(run)
        while run.step < plan.budget.steps and run.ended_by is None:
            with run.stage(name) as measured:
                fitted(started, partial(train_until, started, until), steps=True)
                log_leak(run, measured)
            log_holders(run, name, measured)
            progress.check()
            if goes_back(run):
                with run.last_stage("restore"):
                    roll_back(run, saving, checkpoints, model, optimizer)
            note_point(run)
            val_loss = None
            if run.step in plan.evaluations:
                check_there_is_time(run)
                with run.last_stage("evaluate"):
                    val_loss = fitted(started, partial(evaluate_run, run, model, val_sets))
            progress.flush(val_loss, run.measured)
            take_if_due(started.samples, run, model)
            if logger is not None:
                logger.check()
            if run.step < plan.budget.steps:
                progress.tell(run.config.logging.every_s)
            run.ended_by = ended_by(run)
            if checkpoint_is_due(run):
                with run.last_stage("checkpoint"):
                    for file in (metrics, sources):
                        if file is not None:
                            file.sync()
                    save_checkpoint(run, saving, model, optimizer, loader)
            name, until = "train", next_boundary(run)

    if run.ended_by == MAX_TIME:
        with run.last_stage("evaluate"):
            if val_sets:
                fitted(started, partial(evaluate_run, run, model, val_sets, is_extra=True))
        raise time_is_over(run)
    if run.attributions.is_on:
        with run.last_stage("attribute"):
            run.attributions.take("finish", run.step)
    with run.last_stage("finish"):
        metrics.close()
        if sources is not None:
            sources.close()
        fitted(started, partial(finish, run, data, model))


def _start(
    folder: Path,
    status: Status,
    interrupt: Interrupt,
    ranks: Ranks,
    company: Company,
) -> Run:
    """Meet the other ranks; read the config, plan it again on this machine, settle every `auto`, note the
    attempt. Rank 0 does that for all.
    """
    if not ranks.is_alone:  # a peer that is gone fills the log with stacks of C++, before we say who it is
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

    from conf.composing.check import to_config
    from training.devices.device import resolve_device, take_gpu
    from training.own_parts.of_run import load_of_run
    from training.run.resolve_auto import settle
    from training.step.graphed_step import settled_graph

    config = to_config(read_config(folder))
    load_of_run(folder, config)
    before = read_run(folder)
    if not ranks.is_alone:
        status.update(stage="start")  # the others may be minutes away
        kind = take_gpu(config.training, before.get("auto", {}), ranks.place.local_rank)
        ranks.join(device=kind, check=interrupt.check, on_stuck=partial(_told_at_its_end, status))
    settled = ranks.share(lambda: settle(folder, config, before, ranks.place, company), interrupt.check)
    plan = settled.plan
    if not ranks.is_alone:
        interrupt = AgreedInterrupt(interrupt, ranks)
    device = resolve_device(config.training, settled.auto)
    device.take()
    log_shared_cores(device)
    status.update(stage="start", total_steps=plan.budget.steps)
    log.info("run %s, attempt %s, on %s", folder, status.attempt, device.describe())
    run = Run(
        folder,
        config,
        plan,
        device,
        settled.auto["loss_chunk"],
        status,
        interrupt,
        is_pinned=settled.is_pinned,
        ranks=ranks,
        company=company,
        writes_in_background=settled.auto["checkpoint_writing"] == "background",
    )
    if company is ALONE:
        run.cuda_graph = settled_graph(run, settled.auto.get("cuda_graph", AUTO))
    return run


COMPILED_BY_BLOCK = ("cuda",)
"""Devices on which one compiled block serves all blocks of a model: a deep one compiles no longer than
a shallow one. On a CPU the model as one graph is faster.
"""


def _compile(model: LanguageModel, device: Device) -> None:
    """Compile the model in place."""
    import torch
    from torch._inductor import config as inductor

    from training.plan.memory_parts import compilers_at_once

    # one a core would take more memory on a large node than many a run, which its estimate does not know
    inductor.compile_threads = min(inductor.compile_threads or 1, compilers_at_once())
    if device.kind == "cpu":
        # The CUDA build of torch starts Triton's compilers for a CPU too, which never calls them: 430 MB.
        os.environ.setdefault("TORCH_WARM_POOL", "0")
    if device.kind == "cpu" and device.threads > 1:
        log.warning(
            "training.compile=true on a CPU with %s threads: losses will not be reproducible bit for bit",
            device.threads,
        )
    if device.kind in COMPILED_BY_BLOCK and len(model.blocks):
        for block in model.blocks:
            block.compile()
    else:
        model.states = torch.compile(model.states)  # type: ignore[method-assign]


def _with_first_ready(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, the first of them read already."""
    first = next(batches)

    def ready() -> Iterator[Batch]:
        yield first
        yield from batches
        raise UserError(
            "the training data have ended before the budget did. Read them again from their beginning with "
            "dataset.repeat=true, or set a smaller budget"
        )

    return ready()


def run_attempt(folder: Path, *, terminal: bool, is_brief: bool = False) -> int:
    """Run `folder` once under its lock; returns the exit code and leaves the outcome in status.json.

    is_brief: the terminal shows the little that is needed of a run of a sweep.

    Raises:
        LockHeld: another process runs in this folder; nothing of it is touched.
        UserError: the folder's own files cannot be used.
    """
    place = place_of(folder.name)
    ranks = Ranks(place)
    own = place.folder(folder)
    own.mkdir(exist_ok=True)
    with (
        run_lock(folder) if place.is_first else nullcontext(),
        log_to(folder / place.file("log.txt"), terminal=terminal and place.is_first, is_brief=is_brief),
    ):
        if place.is_first:
            finish_beginning_again(folder)
        check_code(folder, code_allowed(folder), quiet=not place.is_first)
        attempt = next_attempt(folder)
        before = read_status(folder)
        if before.get("state") == "running" and place.is_first:
            log.warning(
                "attempt %s ended without a word in stage %s: killed, or the machine went down",
                before.get("attempt"),
                before.get("stage"),
            )
        if place.is_first:
            keep_earlier(folder, attempt, FILES_OF_ATTEMPT)
        status = Status(folder, attempt, is_written=place.is_first)
        echo = logging.getLogger("memory").info
        with (
            Interrupt() as interrupt,
            checked_while_waiting(interrupt.check),
            black_box.installed(own, attempt=attempt, largest=largest),
            record_to(folder, attempt=attempt, rank=place.rank, echo=echo, details=True),
        ):
            logger = Logger([folder]) if place.is_first else None
            try:
                train(folder, status, interrupt, ranks, logger)
                if place.is_first:
                    log_efficiency(own)
                ranks.leave()
            except BaseException as error:
                state, code, reason = ending_of(ranks.ends_with(error), folder)
                with suppress(OSError):
                    status.update(state=state, reason=reason)
                ranks.let_go()
                return code
            finally:
                if logger is not None:
                    logger.close(is_hurried=interrupt.requested is not None)
    return 0


def _told_at_its_end(status: Status, failure: Failure) -> None:
    """The last word of a rank that is ended because it still waits for one that has failed."""
    log.error("failed: %s", failure)
    status.update(state="failed", reason=str(failure))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="core.py", description="Run, or go on with, the run of a folder that `experiments.py` made."
    )
    parser.add_argument(
        "folder",
        type=Path,
        nargs="+",
        help="the run folder, with its config.yaml; several: the runs of an ensemble, trained together",
    )
    parser.add_argument("--quiet", action="store_true", help="write to log.txt only")
    parser.add_argument("--brief", action="store_true", help="show the little that is needed in a sweep")
    parser.add_argument(
        "--parent", type=int, help="checkpoint and stop when this process, its parent, is gone"
    )
    options = parser.parse_args(arguments)
    choose_waiting()
    if options.parent is not None:
        stop_with_parent(options.parent)
    try:
        for folder in options.folder:
            with atomic_files.reading(folder):
                is_run = (folder / "config.yaml").is_file()
            if not is_run:
                print(f"error: {folder} is no run folder: it has no config.yaml", file=sys.stderr)
                return 2
        if len(options.folder) > 1:
            from training.ensemble.attempt import run_members

            alone = partial(run_attempt, terminal=not options.quiet)
            return run_members(options.folder, begin, alone, terminal=not options.quiet)
        status = read_status(folder)
        # a run.json that was lost is written again from the last checkpoint
        if status.get("state") == "done" and read_run(folder).get("results"):
            if not options.quiet:
                step = status.get("step")
                steps = f" ({counted(step, 'step')})" if isinstance(step, int) else ""
                print(f"{folder} is finished{steps}; nothing to do")
            return 0
        code = run_attempt(folder, terminal=not options.quiet, is_brief=options.brief)
        if code and not place_of(folder.name).is_alone:
            # A library that waits for another rank, which is gone, would not let this process end.
            sys.stdout.flush()
            os._exit(code)
        return code
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return 2


if __name__ == "__main__":
    print_as_typed_here()
    exit_code = main()
    for number in SIGNALS:  # one that comes while torch is taken down must not change how the run ended
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.flush()
    sys.stderr.flush()
    if exit_code in (1, 130):  # where Slurm is about to kill, the seconds that torch takes would be missing
        os._exit(exit_code)
    sys.exit(exit_code)
