"""Compare the best learning rate of narrow and wide models, with the standard parametrization and with muP.

Models of 2 blocks and widths 32 to 256, bytes of Python's own source, AdamW through training's own step, the
same tokens in the same order for all: the loss on text that was held out, by learning rate (Yang & Hu et al.,
arXiv:2203.03466, figure 1). With muP of base width 32 one learning rate should serve all widths; in the
standard parametrization the best one falls as the width grows.

    nice -n 19 python benchmarks/lr_transfer.py      # half an hour of one core
"""

from __future__ import annotations

import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import benchmark

if TYPE_CHECKING:
    from torch import Tensor

    from training.step.train_step import Batch

INITS = {"default": "standard", "mup": "muP"}
LAYERS, BASE_WIDTH, VOCAB, BATCH, SEQ, WARM_UP = 2, 32, 257, 4, 64, 30
VAL_WINDOWS, VAL_EVERY = 128, 10
"""Windows that are evaluated. One of Python's files in VAL_EVERY is held out."""


def train(width: int, init: str, lr: float, seed: int, steps: int) -> float | None:
    """The loss on held-out text after a run, nats a byte; None: it diverged."""
    import torch

    from conf.schema import Arch, Model, Optimizer, Schedule
    from models import LossModel, build_model
    from training.devices.device import Device
    from training.optimizers import build_optimizer
    from training.step.schedules import Course, Length
    from training.step.train_step import Step

    torch.set_num_threads(1)
    arch = Arch(init=init, base_width=BASE_WIDTH if init == "mup" else Arch().base_width)
    shape = Model(d_model=width, n_layers=LAYERS, n_heads=width // 16)
    model = build_model(shape, arch, VOCAB, SEQ, torch.Generator().manual_seed(seed))
    optimizer = build_optimizer(model, Optimizer(lr=lr), "cpu")
    course = Course(lr, Schedule(name="cosine_warmup"), Length(steps, WARM_UP, WARM_UP))
    train_ids, val_ids = texts()
    batches = _batches(train_ids, seed)
    step = Step(model, optimizer, Device("cpu", "fp32", 1), accumulation=1, loss_chunk=1 << 20, grad_clip=1.0)
    for number in range(steps):
        result = step.take(batches, course.lr_at(number), number)
        if not (result.loss + result.grad_norm).isfinite():
            return None
    windows = val_ids[: VAL_WINDOWS * SEQ + 1]
    with torch.no_grad():
        inputs, labels = windows[:-1].view(-1, SEQ), windows[1:].view(-1, SEQ)
        loss = float(LossModel(model).eval()(inputs, labels, None, 1 << 20))
    return round(loss, 5) if loss == loss else None


def _batches(ids: Tensor, seed: int) -> Iterator[Batch]:
    """Windows at random places, the same for all runs of a seed."""
    import torch

    generator = torch.Generator().manual_seed(1000 + seed)
    while True:
        starts = torch.randint(len(ids) - SEQ, (BATCH, 1), generator=generator)
        windows = ids[starts + torch.arange(SEQ + 1)]
        yield {"input_ids": windows[:, :-1], "labels": windows[:, 1:]}


def texts() -> tuple[Tensor, Tensor]:
    """Bytes of Python's own modules, int64: to train on, and of other files, to measure on."""
    import torch

    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for number, file in enumerate(sorted(Path(textwrap.__file__).parent.glob("*.py"))):
        parts[number % VAL_EVERY == 0].append(file.read_bytes())
    train_ids, val_ids = (torch.frombuffer(bytearray(b"".join(part)), dtype=torch.uint8) for part in parts)
    return train_ids.long(), val_ids.long()


def curves(result: dict[str, Any]) -> dict[str, dict[int, dict[float, float]]]:
    """By init and width: mean loss over the seeds by learning rate, without rates at which a run diverged."""
    losses: dict[tuple[str, int, float], list[float | None]] = defaultdict(list)
    for row in result["rows"]:
        losses[row["init"], row["width"], row["lr"]].append(row["val_loss"])
    found: dict[str, dict[int, dict[float, float]]] = {init: defaultdict(dict) for init in INITS}
    for (init, width, lr), each in sorted(losses.items()):
        if None not in each:
            found[init][width][lr] = sum(each) / len(each)  # type: ignore[arg-type]
    return found


def transfer(result: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """By width, for each init: best rate, its loss, and what the best rate of the narrowest model costs.

    The cost is in nats a byte; None: it diverged.
    """
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for by_width in curves(result).values():
        narrowest = by_width[min(by_width)]
        taken_over = min(narrowest, key=narrowest.__getitem__)
        for width, losses in by_width.items():
            best = min(losses, key=losses.__getitem__)
            costs = losses[taken_over] - losses[best] if taken_over in losses else None
            found[width].append({"lr": best, "loss": losses[best], "costs": costs})
    return found


@benchmark(widths=([32, 64, 128, 256], [32, 64]), seeds=(2, 1), steps=(300, 3), lrs=(8, 2))
def measured(chosen: Any) -> Any:
    lrs = [2.0 ** (-11 + place) for place in range(chosen.lrs)]
    rows = []
    for seed, width, init, lr in product(range(chosen.seeds), chosen.widths, INITS, lrs):
        rows.append({"seed": seed, "init": init, "width": width, "lr": lr})
        rows[-1]["val_loss"] = train(width, init, lr, seed, chosen.steps)
        print(rows[-1], file=sys.stderr)
    setting = {
        "layers": LAYERS, "base_width": BASE_WIDTH, "vocab_size": VOCAB, "steps": chosen.steps,
        "batch": BATCH, "seq_len": SEQ, "warm_up": WARM_UP, "schedule": "cosine_warmup",
        "widths": chosen.widths, "inits": INITS, "lrs": lrs,
    }  # fmt: skip
    return {"setting": setting, "rows": rows}
