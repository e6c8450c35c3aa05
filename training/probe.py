"""The micro-batch that `auto` chose, tried for one forward and backward pass before the run relies on it.

Only where the estimate says that it is close; elsewhere nothing is run. On a CPU the pass is taken under a
limit on data (setrlimit(2), RLIMIT_DATA), so that what does not fit is an error and no kill.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import experiment_utils
from conf import AUTO
from memory import format_bytes
from memory.kernel_files import kilobytes, read_file
from training.memory_plan import divisors
from training.optimizer_state import NUMBERS_A_PARAMETER

if TYPE_CHECKING:
    from models import LanguageModel
    from training.loop import Run

log = logging.getLogger("training")

CLOSE = 0.6
"""Of what is free: an estimate below it is not tried."""


def settle_micro_batch(run: Run, model: LanguageModel) -> None:
    """Try the micro-batch of the run's plan, and make it smaller until a pass fits.

    Changes `run.plan` and what run.json says of it. One that an earlier attempt settled is not tried again.
    """
    config, plan = run.config, run.plan
    free = plan.memory.room.gpu_free_bytes if run.device.kind == "cuda" else plan.memory.room.free_bytes
    needed = plan.memory.estimate.gpu_bytes if run.device.kind == "cuda" else plan.memory.estimate.host_bytes
    is_auto = config.training.micro_batch == AUTO and not config.training.compile
    if not is_auto or run.is_pinned:
        return
    size = plan.budget.micro_batch
    if free is not None and needed >= CLOSE * free:
        size = _tried(run, model, free)
    size = run.ranks.least(size)
    if size != plan.budget.micro_batch:
        accumulation = plan.budget.effective_batch // (size * run.ranks.size)
        budget = dataclasses.replace(plan.budget, micro_batch=size, accumulation=accumulation)
        run.plan = dataclasses.replace(plan, budget=budget)
        if run.ranks.is_first:
            auto = {**experiment_utils.read_run(run.folder).get("auto", {}), "micro_batch": size}
            experiment_utils.update_run(run.folder, auto=auto, micro_batch=size, accumulation=accumulation)


def _tried(run: Run, model: LanguageModel, free_bytes: int) -> int:
    """The largest micro-batch up to the plan's of which a pass fits; 1 where none does."""
    sizes = divisors(run.config.training, run.ranks.size)
    for size in (size for size in sizes if size <= run.plan.budget.micro_batch):
        if fits_a_pass(run, model, size, free_bytes):
            log.info("micro-batch %s was tried: a forward and backward pass fits", size)
            return size
        log.warning(
            "a pass with micro-batch %s does not fit in the %s that are free", size, format_bytes(free_bytes)
        )
    return 1


def fits_a_pass(run: Run, model: LanguageModel, micro_batch: int, free_bytes: int) -> bool:
    """Whether a forward and backward pass goes through; gradients and random numbers are left alone."""
    import torch

    from models import LossModel

    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    moments = NUMBERS_A_PARAMETER[run.config.optimizer.name] * parameters
    rng = torch.get_rng_state()
    loss_of = LossModel(model)
    ids = torch.zeros((micro_batch, run.config.training.seq_len), dtype=torch.int64)
    torch.ones(256, 256) @ torch.ones(256, 256)  # its threads are there before memory is limited
    try:
        with data_limited(free_bytes - moments, on_cpu=run.device.kind == "cpu"):
            on_device = run.device.put(ids)
            with run.device.autocast():
                loss = loss_of(on_device, on_device, None, run.loss_chunk)
            loss.backward()
    except (MemoryError, torch.OutOfMemoryError):
        return False
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        return False
    finally:
        model.zero_grad(set_to_none=True)
        torch.set_rng_state(rng)
        if run.device.kind == "cuda":
            torch.cuda.empty_cache()
    return True


@contextlib.contextmanager
def data_limited(free_bytes: int, *, on_cpu: bool = True) -> Iterator[None]:
    """In the block this process can get so much more than it has, or what it holds less what is free.

    free_bytes: for all that this process has and gets. Nothing is limited where the system cannot.
    """
    status = (read_file("/proc/self/status") or b"") if on_cpu else b""
    amounts = status[max(0, status.find(b"VmHWM:")) : max(0, status.find(b"CoreDumping:"))]
    data, anon = kilobytes(amounts, (b"VmData:", b"RssAnon:"))
    if data is None or anon is None:
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = data + max(0, free_bytes - anon)
    if before[1] != resource.RLIM_INFINITY:
        wanted = min(wanted, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
