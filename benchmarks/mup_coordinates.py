"""Check by coordinates whether activations move as much at every width, with muP and with the standard.

Models of 2 blocks and widths 32 to 1024, bytes of Python's own source, AdamW with one learning rate. After
each of a few steps: the mean size of what changed since the start, of embeddings, of both branches of the
last block and of logits, on the same tokens (Yang & Hu et al., arXiv:2203.03466, appendix D.1). With muP
the lines are flat; a line that grows with the width shows that the effect of a learning rate does.

    python benchmarks/mup_coordinates.py     # some minutes
"""

from __future__ import annotations

import math
import statistics
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import benchmark
from benchmarks.lr_transfer import INITS

if TYPE_CHECKING:
    from torch import Tensor

    from models import LanguageModel

STEPS, LR = 5, 1e-2
BATCH, SEQ, VOCAB, LAYERS, BASE_WIDTH = 8, 64, 257, 2, 32
PLACES = ("embedding", "attention", "feed_forward", "logits")


def coordinates(width: int, init: str, seed: int, *, steps: int, ids: Tensor) -> dict[str, list[float]]:
    """By place: the mean size of its change since the start, after each step."""
    import torch

    from conf.schema import Arch, Model, Optimizer
    from models import LossModel, build_model
    from training.optimizers import build_optimizer
    from training.optimizers.groups import set_lr

    base = BASE_WIDTH if init in ("mup", "completep") else Arch().base_width
    generator = torch.Generator().manual_seed(seed)
    shape = Model(d_model=width, n_layers=LAYERS, n_heads=width // 16)
    model = build_model(shape, Arch(init=init, base_width=base), VOCAB, SEQ, generator)
    optimizer = build_optimizer(model, Optimizer(lr=LR, weight_decay=0.0), "cpu")
    set_lr(optimizer.param_groups, LR)
    loss_of = LossModel(model)
    start = places(model, ids)
    found: dict[str, list[float]] = {place: [] for place in PLACES}
    for _ in range(steps):
        loss_of(ids, ids.roll(-1, 1), None, 1 << 20).backward()
        optimizer.step()
        optimizer.zero_grad()
        for place, now in places(model, ids).items():
            found[place].append((now - start[place]).abs().mean().item())
    return found


def places(model: LanguageModel, ids: Tensor) -> dict[str, Tensor]:
    """Outputs of the embedding and of both parts of the last block, and logits."""
    import torch

    found: dict[str, Tensor] = {}
    last: Any = model.blocks[-1]
    modules = {"embedding": model.embedding, "attention": last.attention, "feed_forward": last.feed_forward}

    def keep(place: str) -> Any:
        def hook(_module: Any, _inputs: Any, result: Any) -> None:
            found[place] = (result[0] if isinstance(result, tuple) else result).clone()

        return hook

    hooks = [module.register_forward_hook(keep(place)) for place, module in modules.items()]
    with torch.no_grad():
        found["logits"] = model(ids)
    for hook in hooks:
        hook.remove()
    return found


def slope(sizes: dict[int, float]) -> float:
    """Slope of log size over log width by least squares: 0 is flat, 1 grows as the width does."""
    x, y = [math.log(width) for width in sizes], [math.log(size) for size in sizes.values()]
    return statistics.linear_regression(x, y).slope


def bytes_of_source() -> Tensor:
    """Windows of a text that every Python has."""
    import torch

    text = Path(textwrap.__file__).read_bytes()[2000:]
    return torch.tensor(list(text[: BATCH * SEQ])).view(BATCH, SEQ)


@benchmark(widths=([32, 64, 128, 256, 512, 1024], [32, 64]), seeds=(3, 1))
def measured(chosen: Any) -> Any:
    ids, rows = bytes_of_source(), []
    for init in INITS:
        by_width = {
            width: [coordinates(width, init, seed, steps=STEPS, ids=ids) for seed in range(chosen.seeds)]
            for width in chosen.widths
        }
        for place in PLACES:
            for step in range(STEPS):
                sizes = {
                    width: statistics.median(found[place][step] for found in of_seeds)
                    for width, of_seeds in by_width.items()
                }
                row = {"init": init, "place": place, "step": step + 1}
                rows.append(row | {"change": sizes, "slope": slope(sizes)})
    facts = {"lr": LR, "layers": LAYERS, "base_width": BASE_WIDTH, "seeds": chosen.seeds}
    return facts | {"rows": rows}
