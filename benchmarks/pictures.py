"""Pictures of docs/images that show saved results. Each file holds the digest of the result that it shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import RESULTS, ROOT
from benchmarks.lr_transfer import INITS, curves
from memory.report.drawing import DPI, own_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Result = dict[str, Any]
IMAGES = ROOT / "docs" / "images"
_KEY = "Result"
"""Name of the text in the file that holds the digest."""
OURS, PEER, FLOOR, ORANGE, GREY, GRID = "#0b6e99", "#b9c2c9", "#d9d2c0", "#d1772e", "#555555", "#e8e8e8"


def new(size: tuple[float, float], rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, Any]:
    """A figure and its axes, as an array of rows and columns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **more)


def amounts(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float],
    *,
    is_log: bool = False,
    form: str = "",
    remarks: Sequence[str] = (),
) -> None:
    """A bar for each name, or points on a logarithmic axis, on which the length of a bar has no meaning."""
    is_ours = [name.startswith(("ours", "Highwater")) for name in names]
    colors = [
        OURS if own else FLOOR if name == "the floor" else PEER
        for name, own in zip(names, is_ours, strict=True)
    ]
    if is_log:
        axes.scatter(values, names, color=colors, s=42, zorder=2)
        axes.set_xscale("log")
        axes.set_xlim(min(value for value in values if value) / 2, max(values) * 4)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.barh(names, values, height=0.68, color=colors)
        axes.set_xlim(0, max(values) * 1.15)
    for place, (value, own) in enumerate(zip(values, is_ours, strict=True)):
        style: Result = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
        text = format(value, form) if form else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
        color, weight = (OURS, "bold") if own else (GREY, "normal")
        if value:
            axes.annotate(text, (value, place), xytext=(8, 0), color=color, weight=weight, **style)
        if remarks:
            axes.annotate(remarks[place], (value, place), xytext=(40, 0), color="#8a8a8a", **style)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def training_speed(found: Result) -> Figure:
    """Seconds a step and memory by what trains, for each model."""
    models = list(dict.fromkeys(row["model"] for row in found["rows"]))
    sizes = [sum(row["model"] == model for row in found["rows"]) for model in models]
    figure, panels = new((9.6, 0.27 * sum(sizes) + 1.6), len(models), 2, height_ratios=sizes)
    for (times, memory), model in zip(panels, models, strict=True):
        rows = [row for row in found["rows"] if row["model"] == model][::-1]
        names = [f"{row['case']}{', tuned' if row['allocator'] == 'tuned' else ''}" for row in rows]
        held = [0 if row["case"] == "the floor" else row["above_torch_mb"] for row in rows]
        amounts(times, names, [row["step_s"]["median"] for row in rows], form=".2f")
        amounts(memory, names, held, form=",.0f")
        memory.set_yticklabels([])
        times.set_title(f"{model}, s a step")
        memory.set_title(f"{model}, MB above torch's own")
    return figure


def loading_speed(found: Result) -> Figure:
    """Speed of each loader, for each shape."""
    rows = [row for row in found["speed"] if not row.get("workers")]
    shapes = list(dict.fromkeys((row["seq_len"], row["batch_size"]) for row in rows))
    order = [row["loader"] for row in rows if (row["seq_len"], row["batch_size"]) == shapes[0]][::-1]
    figure, panels = new((7.6, 0.34 * len(order) + 1.2), 1, len(shapes), sharey=True)
    for axes, shape in zip(panels[0], shapes, strict=True):
        of_shape = [row for row in rows if (row["seq_len"], row["batch_size"]) == shape]
        speeds = {row["loader"]: row["million_tokens_s"]["median"] for row in of_shape}
        amounts(axes, order, [speeds.get(name, 0) for name in order], is_log=True)
        axes.set_title(f"windows of {shape[0]:,}, {shape[1]} a batch")
    figure.supxlabel("million tokens a second, int64, page cache warm (logarithmic)", fontsize=9, color=GREY)
    return figure


def loading_memory(found: Result) -> Figure:
    """Growth of RSS by loader."""
    growth = {row["loader"]: max(row["growth_mb"]["VmRSS"], 0) for row in found["memory"]}
    order = sorted(growth, key=lambda name: -growth[name])
    figure, panels = new((7.2, 0.34 * len(order) + 1.2))
    amounts(panels[0][0], order, [growth[name] for name in order])
    label = f"growth of RSS over {found['memory_batches']:,} batches, MB"
    panels[0][0].set_xlabel(label, fontsize=9, color=GREY)
    return figure


_TOOLS = {
    "ours": "Highwater",
    "tiktoken, process pool": "tiktoken, process pool", "Megatron, fast": "Megatron-LM, fast",
    "datasets.map": "datasets.map", "Megatron, standard": "Megatron-LM", "datatrove": "datatrove",
    "litdata optimize": "litdata", "the one-list script": "all ids in one list",
}  # fmt: skip


def tokenizing_speed(found: Result) -> Figure:
    """Speed of each tool on the mix; remarks say which got less text or wrote other ids."""
    rows = [row for row in found["rows"] if row["corpus"] == "mix" and row["tool"] in _TOOLS]
    rows.sort(key=lambda row: row["mb_s"]["median"])
    whole, remarks = found["text_bytes"]["mix"], []
    for row in rows:
        less = [f"on {_size(row['text_bytes'])}"] if row["text_bytes"] < 0.9 * whole else []
        same = found["exactness"]["tools"][row["tool"]]["same_ids"]
        remarks.append(", ".join(less + ([] if same else ["loses text"])))
    figure, panels = new((7.2, 0.36 * len(rows) + 1.1))
    names, speeds = [_TOOLS[row["tool"]] for row in rows], [row["mb_s"]["median"] for row in rows]
    amounts(panels[0][0], names, speeds, is_log=True, remarks=remarks)
    panels[0][0].set_xlabel("MB of text a second, whole command (logarithmic)", fontsize=9, color=GREY)
    kinds = f"{_size(whole)} of English, source code and other languages to GPT-2 ids"
    panels[0][0].set_title(f"{kinds}, {found['workers']} cores")
    return figure


def tokenizing_memory(found: Result) -> Figure:
    """Peak memory of the whole job by size of the text."""
    figure, panels = new((7.2, 3.2))
    axes, goal = panels[0][0], found["goals_bytes"]["job"] / 1e6
    sizes = sorted({row["text_bytes"] for row in found["rows"]})
    axes.axhline(goal, color="#999999", linewidth=1, linestyle=(0, (4, 3)), label=f"limit: {goal:,.0f} MB")
    rows = [row for row in found["rows"] if row["engine"] == "fastokens"]
    values = [row["job_peak_bytes"] / 1e6 for row in rows]
    axes.plot([row["text_bytes"] for row in rows], values, color=OURS, marker="o", label="fastokens")
    axes.set_xscale("log")
    axes.set_xticks(sizes, [_size(size) for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(0, 1.12 * max(goal, *values))
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_xlabel("size of the text", fontsize=9, color=GREY)
    axes.set_title("Peak memory of the whole job, MB")
    axes.legend(ncols=3)
    return figure


def _size(size: int) -> str:
    return f"{size / 1e9:.0f} GB" if size >= 0.95e9 else f"{size / 1e6:.0f} MB"


def memory_leaks(found: Result) -> Figure:
    """False alarms by kind of noise, of the detector and of a straight line."""
    names = {"LeakWatch, every 20 steps": OURS, "line with p < 0.05, once at the end": PEER,
             "line with p < 0.05, every 20 steps": ORANGE}  # fmt: skip
    figure, panels = new((8, 3.6))
    axes, kinds = panels[0][0], list(found["by_kind"])
    for number, (name, color) in enumerate(names.items()):
        shares = [100 * found["by_kind"][kind][name]["false_alarms"] for kind in kinds]
        places = [place + 0.27 * (number - 1) for place in range(len(kinds))]
        axes.bar(places, shares, 0.25, label=name, color=color)
    axes.axhline(2, color="black", linewidth=0.8, linestyle="--", label="2%")
    axes.set_xticks(range(len(kinds)), [kind.replace("_", " ") for kind in kinds], rotation=20)
    axes.set_ylabel("clean runs called a leak, %")
    axes.legend(fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def mup_coordinates(found: Result) -> Figure:
    """Change of activations by width, a line for each step."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

    places = list(dict.fromkeys(row["place"] for row in found["rows"]))
    last = max(row["step"] for row in found["rows"])
    figure, panels = new((9.6, 4.8), len(INITS), len(places), sharex=True, sharey="col")
    for line in found["rows"]:
        axes = panels[list(INITS).index(line["init"])][places.index(line["place"])]
        shade = 0.25 + 0.75 * line["step"] / last
        widths, changes = [int(width) for width in line["change"]], list(line["change"].values())
        axes.plot(widths, changes, color=OURS, lw=1.4, alpha=shade, label=str(line["step"]))
    for axes in panels.flat:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator([32, 128, 512]))
        axes.yaxis.set_major_locator(LogLocator(numticks=5))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
    for column, place in enumerate(places):
        panels[0][column].set_title(place.replace("_", "-"))
        panels[-1][column].set_xlabel("width")
    for row, name in enumerate(INITS.values()):
        panels[row][0].set_ylabel(f"{name}: change")
    lines, names = panels[0][0].get_legend_handles_labels()
    figure.legend(lines, names, title="after step", loc="outside right center")
    return figure


def lr_transfer(found: Result) -> Figure:
    """Held-out loss by learning rate, a line for each width."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    by_init = curves(found)
    figure, panels = new((8.4, 3.6), 1, len(INITS), sharey=True)
    for axes, (init, name) in zip(panels[0], INITS.items(), strict=True):
        for number, (width, losses) in enumerate(by_init[init].items()):
            shade = 0.3 + 0.7 * number / max(1, len(by_init[init]) - 1)
            axes.plot(list(losses), list(losses.values()), color=OURS, alpha=shade, lw=1.6, label=str(width))
            best = min(losses, key=losses.__getitem__)
            axes.plot([best], [losses[best]], "o", color=OURS, alpha=shade, ms=5)
        axes.set_xscale("log", base=2)
        axes.set_title(name)
        axes.set_xlabel("learning rate (optimizer.lr)")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        axes.set_xticks(found["setting"]["lrs"][1::2])
        axes.xaxis.set_minor_formatter(NullFormatter())
    every = [losses for by_width in by_init.values() for losses in by_width.values()]
    lowest, top = min(min(one.values()) for one in every), max(one[min(one)] for one in every)
    panels[0][0].set_ylim(lowest - 0.05, top + 0.3)
    panels[0][-1].legend(title="width")
    panels[0][0].set_ylabel("held-out loss, nats a byte")
    return figure


PICTURES: dict[str, tuple[str, Callable[[Result], Figure]]] = {
    "training_speed.png": ("training_speed", training_speed),
    "mup_coordinates.png": ("mup_coordinates", mup_coordinates),
    "lr_transfer.png": ("lr_transfer", lr_transfer),
    "memory-leaks.png": ("memory_leaks", memory_leaks),
    "loading_speed.png": ("loading", loading_speed),
    "loading_memory.png": ("loading", loading_memory),
    "tokenizing_speed.png": ("tokenizing", tokenizing_speed),
    "tokenizing_memory.png": ("tokenizing_memory", tokenizing_memory),
}
"""By name: the result that a picture shows, and what draws it."""


def draw(*names: str, folder: Path = IMAGES) -> list[Path]:
    """Write these pictures, or all, from the saved results; returns their paths."""
    for name in names or PICTURES:
        result, figure = PICTURES[name]
        found = json.loads((RESULTS / f"{result}.json").read_text(encoding="utf-8"))
        with own_style():
            figure(found).savefig(folder / name, format="png", dpi=DPI, metadata={_KEY: digest(found)})
    return [folder / name for name in names or PICTURES]


def digest(found: Result) -> str:
    """SHA-256 of a result, independent of its layout in the file."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def shown_digest(path: Path) -> str | None:
    """Digest of the result that a picture shows, or None."""
    from PIL import Image

    with Image.open(path) as image:
        return image.info.get(_KEY)
