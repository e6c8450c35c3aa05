"""Is the best learning rate of a narrow model the best of a wide one? Standard parametrization beside muP.

    nice -n 19 python benchmarks/lr_transfer.py      # half an hour of one core; goes on where it was stopped
    python benchmarks/lr_transfer.py --picture       # draws the saved result
    python benchmarks/lr_transfer.py --anew          # drops what is saved and measures all of it again

Models of 2 blocks and widths 32 to 256, bytes of Python's own source, AdamW through training's own step, the
same tokens in the same order for all: the loss on text that was held out, by learning rate (Yang & Hu et al.,
arXiv:2203.03466, figure 1). With muP of base width 32 one learning rate should serve all widths; in the
standard parametrization the best one falls as the width grows. Each run is kept in
benchmarks/.lr_transfer.json when it is done, and a second start measures only those that are not there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save
from benchmarks.pictures import draw
from benchmarks.tokenizing_parts.page import read, section, table
from experiment_utils import atomic_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from models import LossModel
    from training.step import Batch

NAME = "lr_transfer"
KEPT = ROOT / "benchmarks" / f".{NAME}.json"
WIDTHS = (32, 64, 128, 256)
INITS = {"default": "standard", "mup": "muP"}
LRS = tuple(2.0**power for power in range(-11, -3))
SEEDS = (0, 1)
LAYERS, BASE_WIDTH, VOCAB = 2, 32, 257
STEPS, BATCH, SEQ, WARM_UP = 300, 4, 64, 30
VAL_WINDOWS = 128
VAL_EVERY = 10
"""One file of Python's in so many is held out."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--picture", action="store_true", help="draw the saved result, no more")
    parser.add_argument("--anew", action="store_true", help="drop what is saved")
    parser.add_argument("--cpu-minutes", type=float, metavar="M", help="begin no run after so much CPU time")
    options = parser.parse_args()
    if not options.picture:
        rows = measure(options.anew, options.cpu_minutes)
        missing = [
            f"{INITS[init]} {width}" for init, width in product(INITS, WIDTHS) if not _has(rows, init, width)
        ]
        if missing:
            sys.exit(f"not saved: no run yet of {', '.join(missing)}; the next start goes on")
        save(NAME, {"setting": setting(), "rows": rows}, tell=False)
    print(f"wrote {draw(f'{NAME}.png')[0].relative_to(ROOT)}")


def setting() -> dict[str, Any]:
    """What all runs have in common; results of another one are not mixed with these."""
    return {
        "layers": LAYERS, "base_width": BASE_WIDTH, "vocab_size": VOCAB, "steps": STEPS, "batch": BATCH,
        "seq_len": SEQ, "warm_up": WARM_UP, "schedule": "cosine_warmup", "widths": list(WIDTHS),
        "inits": INITS, "lrs": list(LRS),
    }  # fmt: skip


def measure(anew: bool = False, cpu_minutes: float | None = None) -> list[dict[str, Any]]:
    """Take the runs that are not there yet; returns the rows of all.

    Seed by seed, every other learning rate first: a study that is cut short has a coarser grid, or fewer
    seeds.
    """
    import torch

    torch.set_num_threads(1)
    rows = [] if anew else _kept()
    done = {(row["seed"], row["init"], row["width"], row["lr"]) for row in rows}
    wanted = [
        (seed, init, width, lr)
        for seed in SEEDS
        for lrs in (LRS[::2], LRS[1::2])
        for width in WIDTHS
        for init in INITS
        for lr in lrs
    ]
    for seed, init, width, lr in wanted:
        if (seed, init, width, lr) in done:
            continue
        if cpu_minutes is not None and time.process_time() > 60 * cpu_minutes:
            print("out of CPU time; the next start goes on", file=sys.stderr)
            break
        started = time.process_time()
        val_loss = train(width, init, lr, seed)
        cpu_s = round(time.process_time() - started, 1)
        rows.append(
            {"seed": seed, "init": init, "width": width, "lr": lr, "val_loss": val_loss, "cpu_s": cpu_s}
        )
        atomic_files.write_json(KEPT, {"setting": setting(), "rows": rows})
        print(f"{INITS[init]}, width {width}, lr {lr:.2g}, seed {seed}: {val_loss}", file=sys.stderr)
    return rows


def _has(rows: list[dict[str, Any]], init: str, width: int) -> bool:
    return any((row["init"], row["width"]) == (init, width) and row["val_loss"] is not None for row in rows)


def _kept() -> list[dict[str, Any]]:
    found = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return found["rows"] if found.get("setting") == setting() else []


def train(width: int, init: str, lr: float, seed: int) -> float | None:
    """The loss on held-out text after a run, nats a byte; None: it diverged."""
    import torch

    from conf.schema import Arch, Model, Optimizer, Schedule
    from models import LossModel, build_model
    from training.device import Device
    from training.optimizers import build_optimizer
    from training.schedules import Course, Length
    from training.step import Step

    arch = Arch(init=init, base_width=BASE_WIDTH if init == "mup" else Arch().base_width)
    shape = Model(d_model=width, n_layers=LAYERS, n_heads=width // 16)
    model = build_model(shape, arch, VOCAB, SEQ, torch.Generator().manual_seed(seed))
    optimizer = build_optimizer(model, Optimizer(lr=lr), "cpu")
    course = Course(lr, Schedule(name="cosine_warmup"), Length(STEPS, WARM_UP, WARM_UP))
    train_ids, val_ids = texts()
    batches = _batches(train_ids, seed)
    step = Step(model, optimizer, Device("cpu", "fp32", 1), accumulation=1, loss_chunk=1 << 20, grad_clip=1.0)
    for number in range(STEPS):
        result = step.take(batches, course.lr_at(number), number)
        if not (result.loss + result.grad_norm).isfinite():
            return None
    loss = _val_loss(LossModel(model), val_ids)
    return round(loss, 5) if loss == loss else None


def _batches(ids: Tensor, seed: int) -> Iterator[Batch]:
    """Windows from anywhere, the same for all runs of a seed."""
    import torch

    generator = torch.Generator().manual_seed(1000 + seed)
    while True:
        starts = torch.randint(len(ids) - SEQ, (BATCH, 1), generator=generator)
        windows = ids[starts + torch.arange(SEQ + 1)]
        yield {"input_ids": windows[:, :-1], "labels": windows[:, 1:]}


def _val_loss(loss_of: LossModel, ids: Tensor) -> float:
    import torch

    windows = ids[: VAL_WINDOWS * SEQ + 1]
    with torch.no_grad():
        inputs, labels = windows[:-1].view(-1, SEQ), windows[1:].view(-1, SEQ)
        return float(loss_of.eval()(inputs, labels, None, 1 << 20))


def texts() -> tuple[Tensor, Tensor]:
    """Bytes of Python's own modules, int64: to train on, and of other files, to measure on."""
    import textwrap

    import torch

    files = sorted(Path(textwrap.__file__).parent.glob("*.py"))
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for number, file in enumerate(files):
        parts[number % VAL_EVERY == 0].append(file.read_bytes())
    train_ids, val_ids = (torch.frombuffer(bytearray(b"".join(part)), dtype=torch.uint8) for part in parts)
    return train_ids.long(), val_ids.long()


def curves(rows: list[dict[str, Any]]) -> dict[str, dict[int, dict[float, float]]]:
    """By rule and width: the mean loss of the seeds by learning rate, of those that all seeds have and none
    of which diverged.
    """
    seeds = _seeds(rows)
    found: dict[str, dict[int, dict[float, float]]] = {}
    for init in INITS:
        for width in WIDTHS:
            losses: dict[float, list[float | None]] = {}
            for row in rows:
                if (row["init"], row["width"]) == (init, width) and row["seed"] in seeds:
                    losses.setdefault(row["lr"], []).append(row["val_loss"])
            of_width = {
                lr: sum(each) / len(each)  # type: ignore[arg-type]
                for lr, each in sorted(losses.items())
                if None not in each
            }
            if of_width:
                found.setdefault(init, {})[width] = of_width
    return found


def _seeds(rows: list[dict[str, Any]]) -> list[int]:
    """Those of which all runs are there, else the first."""
    counts = Counter(row["seed"] for row in rows)
    return [seed for seed, count in counts.items() if count == _RUNS_OF_A_SEED] or [SEEDS[0]]


_RUNS_OF_A_SEED = len(INITS) * len(WIDTHS) * len(LRS)


def transfer(found: dict[str, dict[int, dict[float, float]]]) -> list[dict[str, Any]]:
    """By rule and width: the best learning rate, its loss, and what the best one of the narrowest model
    costs there, nats a byte; None: it diverged.
    """
    rows = []
    for init, by_width in found.items():
        narrowest = by_width[min(by_width)]
        taken_over = min(narrowest, key=narrowest.__getitem__)
        for width, losses in by_width.items():
            best = min(losses, key=losses.__getitem__)
            costs = losses[taken_over] - losses[best] if taken_over in losses else None
            rows.append({"init": init, "width": width, "lr": best, "loss": losses[best], "costs": costs})
    return rows


def page() -> str:
    """The section of docs/figures.md."""
    found = read(NAME)
    how = found["setting"]
    by_rule = curves(found["rows"])
    rows = []
    told = {(row["init"], row["width"]): row for row in transfer(by_rule)}
    for width in WIDTHS:
        cells = [str(width)]
        for init in INITS:
            one = told[init, width]
            costs = "diverged" if one["costs"] is None else f"{one['costs']:.3f}"
            cells += [f"{one['lr']:.4f}", f"{one['loss']:.3f}", costs]
        rows.append(tuple(cells))
    seeds = len(_seeds(found["rows"]))
    text = (
        f"{how['layers']} blocks, bytes of Python's source, {how['steps']} steps of {how['batch']} x "
        f"{how['seq_len']} tokens, AdamW, {how['schedule']}, {seeds} seed{'s' * (seeds > 1)}, learning rates "
        f"from {how['lrs'][0]:.4f} to {how['lrs'][-1]:.4f} by factors of two; the loss is on held-out "
        f"files, nats a byte. muP: `arch.init=mup arch.base_width={how['base_width']}`. What it costs: the "
        f"loss with the learning rate that is the best at width {WIDTHS[0]}, less the best loss. Where that "
        "is little, the rate serves; runs so short say little about which rule ends lower.\n\n"
        "![Held-out loss by learning rate and width](images/lr_transfer.png)"
    )
    names = [f"{what}, {rule}" for rule in INITS.values() for what in ("best lr", "loss", "costs")]
    title = "Does a learning rate found on a narrow model serve a wide one"
    return section(title, NAME, found, text, table(("width", *names), rows))


def figure(result: dict[str, Any]) -> Figure:
    """Held-out loss by learning rate, a line for each width."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    found = curves(result["rows"])
    drawn = Figure(figsize=(8.4, 3.6), layout="constrained")
    for axes, (init, name) in zip(drawn.subplots(1, len(INITS), sharey=True), INITS.items(), strict=True):
        for number, (width, losses) in enumerate(found[init].items()):
            shade = 0.3 + 0.7 * number / (len(WIDTHS) - 1)
            line = list(losses.values())
            axes.plot(list(losses), line, color="#0b6e99", alpha=shade, lw=1.6, label=str(width))
            best = min(losses, key=losses.__getitem__)
            axes.plot([best], [losses[best]], "o", color="#0b6e99", alpha=shade, ms=5)
        axes.set_xscale("log", base=2)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("learning rate (optimizer.lr)")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        axes.set_xticks(LRS[1::2])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.05)
    top = max(losses[min(losses)] for by_width in found.values() for losses in by_width.values())
    lowest = min(min(losses.values()) for by_width in found.values() for losses in by_width.values())
    drawn.axes[0].set_ylim(lowest - 0.05, top + 0.3)
    drawn.axes[1].legend(title="width", frameon=False)
    drawn.axes[0].set_ylabel("held-out loss, nats a byte")
    return drawn


if __name__ == "__main__":
    main()
