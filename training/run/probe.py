"""Try the micro-batch that `auto` chose by one forward and backward pass on a GPU, before training.

The pass runs only if the estimate is close to the free memory, or that is not known. A tensor reserves room
for the optimizer's state. On a CPU the estimate and its margin decide.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from conf import AUTO
from memory import format_bytes
from training.devices.out_of_memory import is_device_oom, release
from training.plan.memory_plan import divisors
from training.run.micro_batch import take_smaller

if TYPE_CHECKING:
    from models import LanguageModel
    from training.run.loop import Run

log = logging.getLogger("training")

CLOSE = 0.6
"""Share of the free memory below which an estimate is trusted without a pass."""


def settle_micro_batch(run: Run, model: LanguageModel) -> None:
    """Try the micro-batch of the run's plan on its GPU, and reduce it until a pass fits.

    Changes `run.plan` and run.json. A micro-batch of an earlier attempt is not tried again.
    """
    config, plan = run.config, run.plan
    is_auto = config.training.micro_batch == AUTO and not config.training.compile
    if not is_auto or run.is_pinned or run.device.kind != "cuda":
        return
    free = plan.memory.room.gpu_choice_bytes
    is_close = free is None or plan.memory.estimate.gpu_bytes >= CLOSE * free
    size = run.ranks.least(_tried(run, model, free) if is_close else plan.budget.micro_batch)
    if size != plan.budget.micro_batch:
        take_smaller(run, size)


def _tried(run: Run, model: LanguageModel, free_bytes: int | None) -> int:
    """Largest micro-batch up to the plan's with which a pass fits; 1 if none does."""
    sizes = divisors(run.config.training, run.ranks.size)
    where = "what is free" if free_bytes is None else f"the {format_bytes(free_bytes)} that are free"
    for size in (size for size in sizes if size <= run.plan.budget.micro_batch):
        if fits_a_pass(run, model, size):
            log.info("micro-batch %s was tried: a forward and backward pass fits", size)
            return size
        log.warning("a pass with micro-batch %s does not fit in %s", size, where)
    return 1


def fits_a_pass(run: Run, model: LanguageModel, micro_batch: int) -> bool:
    """Whether a forward and backward pass fits. Gradients and random numbers are left unchanged."""
    import torch

    rng = torch.get_rng_state()
    try:
        _pass(run, model, micro_batch)
    except RuntimeError as error:
        if not is_device_oom(error):
            raise
        release(error)
        return False
    finally:
        model.zero_grad(set_to_none=True)
        torch.set_rng_state(rng)
        torch.cuda.empty_cache()
    return True


def _pass(run: Run, model: LanguageModel, micro_batch: int) -> None:
    import torch

    from training.own_parts.own_step import loss_model_of

    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    kept = max(0, run.plan.checkpoint_bytes - parameters)  # moments, averages, states of rows
    ids = torch.zeros((micro_batch, run.config.training.seq_len), dtype=torch.int64)
    optimizers = torch.empty(kept, dtype=torch.uint8, device=run.device.torch_device)
    on_device = run.device.put(ids)
    with run.device.autocast():
        loss_of = loss_model_of(run.config, model)
        if run.config.training.step != "default":
            loss, _ = loss_of(batch={"input_ids": on_device, "labels": on_device})
        else:
            loss = loss_of(on_device, on_device, None, run.loss_chunk)
    loss.backward()
    # an optimizer that is not fused works on a copy of the parameters
    del loss, on_device
    torch.empty(parameters, dtype=torch.uint8, device=optimizers.device)
