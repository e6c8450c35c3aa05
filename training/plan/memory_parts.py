"""Memory that a run needs, joined from model, optimizer, data and process. No torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from conf import AUTO, Config
from conf.between_keys.gpu_rules import graph_obstacle
from conf.budget import batch_of_rank, effective_batch
from conf.schema import Training
from memory.estimate import constants
from memory.estimate.estimate import (
    AFTER_FIRST_STEP,
    ALWAYS,
    COMPILE_BACKWARD,
    COMPILE_EVALUATION,
    COMPILE_FORWARD,
    COMPILES,
    PHASES,
    RESTORE,
    STEP,
    Estimate,
    Part,
)
from memory.estimate.torch_build import ROCM, torch_build
from models.costs.memory_parts import ALLOCATOR, StepSizes
from models.loss.loss_chunk import resolve_loss_chunk
from models.options.shape import resolve_shape
from training.devices.device import GPU_MATRIX
from training.devices.gpu_check import cuda_is_available, may_have_gpu
from training.distributed.memory_parts import parts_of_ranks
from training.evaluation.evaluation_batch import evaluation_parts, evaluation_step
from training.own_parts.model_counts import memory_of_model, parameter_counts
from training.plan.optimizer_memory import (
    averages,
    checkpoint_bytes,
    staged_bytes,
    state_bytes,
    working_bytes,
)
from training.step.recurrent_state import row_state_bytes

BACKGROUND, FOREGROUND = "background", "foreground"
COPY_SHARE = 1 / 16
"""Share of the free memory that a copy of the state can take, for checkpoints written in the background."""

_INT64 = 8
_GRAPHS = "CUDA graphs"
_HELD_ONCE = ("page tables", "tokens in memory")
_ONE_BY_ONE = {"evaluate", "checkpoint", RESTORE}
"""Phases in which the runs of an ensemble follow each other, or need less together than in a step."""


def estimate_run(
    config: Config,
    *,
    vocab_size: int,
    micro_batch: int,
    data: Mapping[str, Any] | None = None,
    kept: Mapping[str, Any] | None = None,
    ranks: int = 1,
    ranks_here: int = 1,
    together: int = 1,
) -> Estimate:
    """Estimate a resolved configuration at this micro-batch, by part and phase.

    Args:
        data: facts of the plan; None if the text is not tokenized yet.
        kept: what `auto` became in an earlier attempt.
        ranks: processes of the run.
        ranks_here: ranks on one node. Amounts on the host are of all of these, on the GPU of one.
        together: runs of this shape that are one process.

    Raises:
        UserError: as `models.options.shape.resolve_shape`.
    """
    training, kept = config.training, kept or {}
    step = step_sizes(config, vocab_size, micro_batch, kept, ranks)
    step = replace(step, keeps_gradients=together > 1, members=together)
    positions = config.arch.max_positions or training.seq_len
    count = parameter_counts(config, vocab_size, positions)
    parameters = 4 * count.total
    moments = state_bytes(config, vocab_size, positions)
    model = _ensemble_parts(_model_parts(config, vocab_size, positions, step), together)
    if step.on_gpu and ranks == 1 and _may_use_graphs(config, kept):
        model.append(_graph_part(model))
    state = checkpoint_bytes(config, vocab_size, positions)
    pinned = staged_bytes(config, vocab_size, positions) if step.on_gpu else 0
    run = [
        *_optimizer_parts(config, parameters, moments, step),
        *_checkpoint_parts(state, pinned, step, training, kept),
        *_data_parts(config, data, step, batch_of_rank(training, ranks)),
    ]
    parts = [*model, *_ensemble_parts(run, together), *_process_parts(model, step, config.arch.family)]
    if ranks > 1:
        layers = max(1, resolve_shape(config.model, config.arch).n_layers)
        block = 4 * count.non_embedding // layers
        parts = list(
            parts_of_ranks(
                parts, training.parallel, ranks, ranks_here, parameters, layers, block, moments, step
            )
        )
    elif step.on_gpu:  # a matrix and its product, before the first step: the peak of a small model of bytes
        parts.append(Part("peak FLOP/s measured", 0, 2 * GPU_MATRIX**2 * step.product_bytes, when=("build",)))
    if config.logging.to is not None:  # one for all ranks and members
        held = constants.LOGGERS[config.logging.to].in_bytes
        parts.append(Part("logger", held, when=AFTER_FIRST_STEP, in_other_process=True))
    return Estimate.of(parts)


def step_sizes(
    config: Config, vocab_size: int, micro_batch: int, kept: Mapping[str, Any], ranks: int = 1
) -> StepSizes:
    """Options of a step of the configuration here, as far as they decide what it holds."""
    training = config.training
    device, precision = expected_device(training, kept)
    chunk = training.loss_chunk
    if chunk == AUTO:
        chunk = kept.get("loss_chunk", AUTO)
    return StepSizes(
        micro_batch=micro_batch,
        seq_len=training.seq_len,
        precision=precision,
        loss_chunk=resolve_loss_chunk(chunk, vocab_size, device),
        activation_checkpointing=training.activation_checkpointing,
        compiled=training.compile,
        accumulates=effective_batch(training) > micro_batch * ranks,
        masks_documents=config.dataset.documents != "across",
        on_gpu=device == "cuda",
    )


def expected_device(training: Training, kept: Mapping[str, Any]) -> tuple[str, str]:
    """Device and precision that a run here will have; does not import torch."""
    device = str(kept.get("device", training.device))
    if device == AUTO:
        torch = sys.modules.get("torch")
        has_gpu = (
            cuda_is_available()
            if torch is not None and hasattr(torch, "cuda")
            else sys.platform.startswith("linux") and may_have_gpu()
        )
        device = "cuda" if has_gpu else "cpu"
    precision = str(kept.get("precision", training.precision))
    if precision == AUTO:
        precision = "bf16" if device == "cuda" else "fp32"
    return device, precision


def _model_parts(config: Config, vocab_size: int, positions: int, step: StepSizes) -> list[Part]:
    """Parts of a model: those of steps, and those of evaluations, which may compute more windows at once."""
    at_once = evaluation_step(config, vocab_size, step)
    evaluations = evaluation_parts(memory_of_model(config, vocab_size, positions, at_once))
    every = memory_of_model(config, vocab_size, positions, step)
    steps = [part for part in every if part.when != ("evaluate",)]
    return [_while_compiling(part) if step.compiled else part for part in (*steps, *evaluations)]


def _while_compiling(part: Part) -> Part:
    """The part, also held while the first backward pass waits for its compiler if it is saved for it."""
    waits = "backward" in part.when and part.name in ("activations", "logits and loss")
    return replace(part, when=(*part.when, COMPILE_BACKWARD)) if waits else part


def _ensemble_parts(parts: Iterable[Part], members: int) -> list[Part]:
    """The parts of one run as those of an ensemble: each member has all of them but those held in turn."""
    return [
        part
        if part.in_turn or part.name in _HELD_ONCE or set(part.when) <= _ONE_BY_ONE
        else replace(part, host_bytes=members * part.host_bytes, gpu_bytes=members * part.gpu_bytes)
        for part in parts
    ]


def _may_use_graphs(config: Config, kept: Mapping[str, Any]) -> bool:
    is_wanted = config.training.cuda_graph is not False and kept.get("cuda_graph") is not False
    return is_wanted and graph_obstacle(config) is None


def _graph_part(model: Iterable[Part]) -> Part:
    """Memory that CUDA graphs of a step keep during checkpoints and evaluations: all that a step makes."""
    model = [part for part in model if part.when != ALWAYS]
    made = Estimate.of(model)
    most = max(made.gpu_at(phase) + _split_block(model, phase) for phase in STEP)
    return Part(_GRAPHS, 0, most, when=("checkpoint", "evaluate"))


def _split_block(model: Iterable[Part], phase: str) -> int:
    """Memory of a second block for logits, which torch's allocator takes once small tensors are in the first.

    What else a step has computed and freed leaves room for those. Measured on an H100 with 50,257 ids:
    876 MB reserved for 506 MB of tensors at 32d, 938 for 586 at 64d, 6,592 for 6,575 at 512d.
    """
    parts = [part for part in model if part.when != ALWAYS and phase in part.when and part.name != _GRAPHS]
    logits = sum(part.gpu_bytes for part in parts if part.name == "logits and loss")
    return max(0, 2 * logits - sum(part.gpu_bytes for part in parts))


def _optimizer_parts(config: Config, parameters: int, moments: int, step: StepSizes) -> Iterator[Part]:
    """Moments, averaged weights, and temporaries of a step."""
    part = partial(Part.on, step.on_gpu)
    yield part("optimizer state", moments, *AFTER_FIRST_STEP, COMPILE_EVALUATION)
    if config.arch.state_reset is not None:
        yield part("states of rows", 2 * row_state_bytes(config), *AFTER_FIRST_STEP)
    if config.training.ema is not None:
        yield part("averaged weights", parameters, *AFTER_FIRST_STEP, COMPILE_EVALUATION)
    if averages(config):
        yield part("weights set aside", parameters, "checkpoint", "evaluate", COMPILE_EVALUATION)
        yield part("averaged weights", parameters, RESTORE)
    working = working_bytes(config.optimizer, parameters, on_gpu=step.on_gpu)
    yield part("optimizer's step", working, "optimizer_step")


def writing_of(
    training: Training, kept: Mapping[str, Any], free_bytes: int | None = None, state: int = 0
) -> str:
    """`background` or `foreground` writing of checkpoints. state: bytes of one, copied for the background."""
    if training.checkpoint_writing != AUTO:
        return training.checkpoint_writing
    if "checkpoint_writing" in kept:
        return str(kept["checkpoint_writing"])
    return FOREGROUND if free_bytes is not None and state > COPY_SHARE * free_bytes else BACKGROUND


def _checkpoint_parts(
    state: int, pinned: int, step: StepSizes, training: Training, kept: Mapping[str, Any]
) -> Iterator[Part]:
    """Host memory of saving a checkpoint and reading it.

    state: bytes of its tensors. pinned: bytes of the page-locked copy that a GPU run makes of them.
    """
    if writing_of(training, kept) == BACKGROUND:
        copy = pinned if step.on_gpu else state
        yield Part("checkpoint copy", copy, when=(*AFTER_FIRST_STEP, COMPILE_EVALUATION))
    elif step.on_gpu:
        yield Part("checkpoint on its way to disk", state, when=("checkpoint",))
    when = (RESTORE, "checkpoint") if training.on_spike == "rollback" else (RESTORE,)
    yield Part("checkpoint read back", state, when=when)


def _data_parts(
    config: Config, data: Mapping[str, Any] | None, step: StepSizes, batch: int
) -> Iterator[Part]:
    dataset = config.dataset
    windows = batch if step.masks_documents else step.micro_batch
    one_batch = 2 * _INT64 * windows * step.seq_len
    yield Part("batches", 2 * one_batch, one_batch if step.on_gpu else 0, when=AFTER_FIRST_STEP)
    if config.dataset.source == "hf" and not dataset.materialize:
        held = _INT64 * dataset.buffer_windows * step.seq_len
        yield Part("windows to draw from", held, when=AFTER_FIRST_STEP)
    file_bytes = int((data or {}).get("file_bytes") or 0)
    if file_bytes and dataset.reader == "memory":
        yield Part("tokens in memory", file_bytes)
    elif file_bytes and dataset.reader in (AUTO, "mmap"):
        tables = int(constants.PAGE_TABLES.value * file_bytes)
        yield Part("page tables", tables, when=AFTER_FIRST_STEP, is_anon=False)


def compilers_at_once() -> int:
    """Return how many compilers torch.compile runs at a time: C++ compilers on a CPU, Triton's on a GPU."""
    wanted = os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else constants.COMPILERS_AT_ONCE


def _compiler_parts(step: StepSizes) -> Iterator[Part]:
    """Memory of torch.compile in the run's process and in the compilers that it starts."""
    yield Part("compiler", constants.COMPILER_BASE.in_bytes, when=(*COMPILES, *AFTER_FIRST_STEP))
    if step.on_gpu:
        workers = compilers_at_once() * constants.TRITON_WORKER.in_bytes
        held = constants.TRITON_POOL.in_bytes + workers
        yield Part("Triton compilers", held, when=(*COMPILES, *AFTER_FIRST_STEP), in_other_process=True)
        return
    kernels = compilers_at_once() * constants.COMPILER_KERNEL.in_bytes
    header = max(kernels, constants.COMPILER_HEADER.in_bytes)
    yield Part("C++ compilers", header, when=(COMPILE_FORWARD,), in_other_process=True)
    yield Part("C++ compilers", kernels, when=(COMPILE_BACKWARD, COMPILE_EVALUATION), in_other_process=True)


def _gpu_parts(model: list[Part]) -> Iterator[Part]:
    """Memory of CUDA and its libraries besides tensors, on the host and on the GPU."""
    yield Part("CUDA", constants.CUDA_HOST.in_bytes)
    yield Part("CUDA context", 0, constants.CUDA_CONTEXT.in_bytes)
    yield Part("cuBLAS workspaces", 0, constants.CUBLAS_WORKSPACES.in_bytes)
    for phase in PHASES:
        held = sum(part.gpu_bytes for part in model if phase in part.when)
        cache = int(constants.CUDA_CACHE_SHARE.value * held) + _split_block(model, phase)
        yield Part("allocator's cache", 0, cache, when=(phase,))


def _process_parts(model: list[Part], step: StepSizes, family: str) -> Iterator[Part]:
    """Memory of Python, torch, its compilers and the allocator besides tensors."""
    unmeasured = " (ROCm: not measured)" if torch_build() == ROCM else ""
    yield Part(f"python and torch{unmeasured}", constants.FRAMEWORK_BASE.in_bytes)
    yield Part("experiments.py", constants.ENTRY.in_bytes, in_other_process=True)
    if step.compiled:
        yield from _compiler_parts(step)
    if step.on_gpu:
        yield from _gpu_parts(model)
    elif family != "lstm":  # the buffers of its products are in the workspaces
        fixed = constants.HEAP_FIXED_TOGETHER if step.members > 1 else constants.HEAP_FIXED
        # buffers are of the size of what comes and goes: a model of bytes has few
        buffers = min(fixed.in_bytes, Estimate.of(model).own_bytes)
        yield Part(ALLOCATOR, buffers, when=(*AFTER_FIRST_STEP, COMPILE_EVALUATION))
