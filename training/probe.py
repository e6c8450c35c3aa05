"""The micro-batch that `auto` chose, tried for one forward and backward pass before the run relies on it.

Only where the estimate says that it is close, or the GPU's memory is not known. The pass has room left for
what the optimizer keeps: on a GPU a tensor of that size, on a CPU a smaller limit on data (setrlimit(2),
RLIMIT_DATA), under which what does not fit is an error and no kill.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from conf import AUTO
from memory import format_bytes
from memory.files.procfs import kilobytes, read_file
from training.memory_plan import divisors
from training.micro_batch import take_smaller
from training.out_of_memory import is_device_oom, release

if TYPE_CHECKING:
    from models import LanguageModel
    from training.loop import Run

log = logging.getLogger("training")

CLOSE = 0.6
"""Share of what is free below which an estimate is not tried."""


def settle_micro_batch(run: Run, model: LanguageModel) -> None:
    """Try the micro-batch of the run's plan, and make it smaller until a pass fits.

    Changes `run.plan` and what run.json says of it. One that an earlier attempt settled is not tried again.
    """
    config, plan = run.config, run.plan
    is_auto = config.training.micro_batch == AUTO and not config.training.compile
    if not is_auto or run.is_pinned:
        return
    room, estimate, on_gpu = plan.memory.room, plan.memory.estimate, run.device.kind == "cuda"
    free = room.gpu_choice_bytes if on_gpu else room.free_bytes
    needed = estimate.gpu_bytes if on_gpu else estimate.host_bytes
    is_close = on_gpu if free is None else needed >= CLOSE * free
    size = run.ranks.least(_tried(run, model, free) if is_close else plan.budget.micro_batch)
    if size != plan.budget.micro_batch:
        take_smaller(run, size)


def _tried(run: Run, model: LanguageModel, free_bytes: int | None) -> int:
    """The largest micro-batch up to the plan's of which a pass fits; 1 where none does."""
    sizes = divisors(run.config.training, run.ranks.size)
    where = "what is free" if free_bytes is None else f"the {format_bytes(free_bytes)} that are free"
    for size in (size for size in sizes if size <= run.plan.budget.micro_batch):
        if fits_a_pass(run, model, size, free_bytes):
            log.info("micro-batch %s was tried: a forward and backward pass fits", size)
            return size
        log.warning("a pass with micro-batch %s does not fit in %s", size, where)
    return 1


def fits_a_pass(run: Run, model: LanguageModel, micro_batch: int, free_bytes: int | None) -> bool:
    """Whether a forward and backward pass goes through; gradients and random numbers are left alone."""
    import torch

    rng = torch.get_rng_state()
    torch.ones(256, 256) @ torch.ones(256, 256)  # its threads are there before memory is limited
    try:
        _pass(run, model, micro_batch, free_bytes)
    except (MemoryError, RuntimeError) as error:
        refused = isinstance(error, MemoryError) or is_device_oom(error) or "allocate" in str(error)
        if not refused:
            raise
        release(error)
        return False
    finally:
        model.zero_grad(set_to_none=True)
        torch.set_rng_state(rng)
        if run.device.kind == "cuda":
            torch.cuda.empty_cache()
    return True


def _pass(run: Run, model: LanguageModel, micro_batch: int, free_bytes: int | None) -> None:
    import torch

    from models import LossModel

    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    kept = max(0, run.plan.checkpoint_bytes - parameters)  # moments, averages, states of rows
    on_cpu = run.device.kind == "cpu"
    ids = torch.zeros((micro_batch, run.config.training.seq_len), dtype=torch.int64)
    with data_limited((free_bytes or 0) - kept, on_cpu=on_cpu):
        optimizers = torch.empty(0 if on_cpu else kept, dtype=torch.uint8, device=run.device.torch_device)
        on_device = run.device.put(ids)
        with run.device.autocast():
            loss = LossModel(model)(on_device, on_device, None, run.loss_chunk)
        loss.backward()
        # an optimizer that is not fused works on a copy of the parameters
        del loss, on_device
        torch.empty(0 if on_cpu else parameters, dtype=torch.uint8, device=optimizers.device)


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
