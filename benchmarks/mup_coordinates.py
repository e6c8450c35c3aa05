"""Do activations move as much at every width? The coordinate check of muP, beside the standard.

    python benchmarks/mup_coordinates.py     # some minutes; benchmarks/results/mup_coordinates.json

Models of 2 blocks and widths 32 to 1024, bytes of Python's own source, AdamW with one learning rate. After
each of a few steps: the mean size of what changed since the start, of embeddings, of both branches of the
last block and of logits, on the same tokens (Yang & Hu et al., arXiv:2203.03466, appendix D.1). With muP the
lines are flat; where one grows with the width, so does what a learning rate does. `--picture` draws the
saved result.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save
from benchmarks.pictures import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from models import LanguageModel

WIDTHS = (32, 64, 128, 256, 512, 1024)
INITS = {"default": "standard", "mup": "muP"}
STEPS, LR, SEEDS = 5, 1e-2, (0, 1, 2)
BATCH, SEQ, VOCAB, LAYERS, BASE_WIDTH = 8, 64, 257, 2, 32
PLACES = ("embedding", "attention", "feed_forward", "logits")


def coordinates(width: int, init: str, seed: int, *, steps: int, ids: Tensor) -> dict[str, list[float]]:
    """By place: the mean size of its change since the start, after each step; `start`: its size there."""
    import torch

    from conf.schema import Arch, Model, Optimizer
    from models import LossModel, build_model
    from training.optimizers import build_optimizer
    from training.optimizers.groups import set_lr

    base = BASE_WIDTH if init in ("mup", "completep") else Arch().base_width
    arch = Arch(init=init, base_width=base)
    generator = torch.Generator().manual_seed(seed)
    model = build_model(
        Model(d_model=width, n_layers=LAYERS, n_heads=width // 16), arch, VOCAB, SEQ, generator
    )
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
    """What comes out of the embedding, of both parts of the last block, and as logits."""
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
    """Of log size over log width, by least squares: 0 is flat, 1 grows as the width does."""
    x, y = [math.log(width) for width in sizes], [math.log(size) for size in sizes.values()]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mean_x) ** 2 for a in x)


def bytes_of_source() -> Tensor:
    """Windows of a text that every Python has."""
    import textwrap

    import torch

    text = Path(textwrap.__file__).read_bytes()[2000:]
    return torch.tensor(list(text[: BATCH * SEQ])).view(BATCH, SEQ)


def measure(widths: tuple[int, ...] = WIDTHS, seeds: tuple[int, ...] = SEEDS) -> dict[str, Any]:
    """Medians over seeds, by rule, place, step and width; and the slope of each line."""
    ids = bytes_of_source()
    rows = []
    for init in INITS:
        by_width = {
            width: [coordinates(width, init, seed, steps=STEPS, ids=ids) for seed in seeds]
            for width in widths
        }
        for place in PLACES:
            for step in range(STEPS):
                sizes = {
                    width: statistics.median(found[place][step] for found in of_seeds)
                    for width, of_seeds in by_width.items()
                }
                rows.append(
                    {"init": init, "place": place, "step": step + 1, "change": sizes, "slope": slope(sizes)}
                )
    return {"lr": LR, "layers": LAYERS, "base_width": BASE_WIDTH, "seeds": len(seeds), "rows": rows}


def figure(found: dict[str, Any]) -> Figure:
    """Change of activations by width, a line for each step."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

    drawn = Figure(figsize=(9.6, 4.8), layout="constrained")
    axes = drawn.subplots(len(INITS), len(PLACES), sharex=True, sharey="col")
    for row, (init, name) in enumerate(INITS.items()):
        for column, place in enumerate(PLACES):
            panel = axes[row][column]
            for line in found["rows"]:
                if (line["init"], line["place"]) == (init, place):
                    widths = [int(width) for width in line["change"]]
                    panel.plot(
                        widths, list(line["change"].values()), color="#0b6e99", lw=1.4,
                        alpha=0.25 + 0.75 * line["step"] / STEPS, label=str(line["step"]),
                    )  # fmt: skip
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.xaxis.set_major_locator(FixedLocator([32, 128, 512]))
            panel.yaxis.set_major_locator(LogLocator(numticks=5))
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.set_minor_formatter(NullFormatter())
            if row == 0:
                panel.set_title(place.replace("_", "-"), fontsize=9)
            if column == 0:
                panel.set_ylabel(f"{name}: change")
            if row == len(INITS) - 1:
                panel.set_xlabel("width")
    lines, names = axes[0][0].get_legend_handles_labels()
    drawn.legend(lines, names, title="after step", loc="outside right center", frameon=False)
    return drawn


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", action="store_true", help="draw the saved result")
    if not parser.parse_args().picture:
        save("mup_coordinates", measure())
    draw("mup_coordinates.png")
