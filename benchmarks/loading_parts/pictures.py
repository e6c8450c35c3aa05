"""Two pictures for the documents: speed by loader, growth of memory by loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.loading_parts.loaders import FLOOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OURS, _PEER, _FLOOR, _GREY = "#0b6e99", "#b9c2c9", "#d9d2c0", "#555555"


def speed_figure(found: dict[str, Any]) -> Figure:
    """A point for each loader and shape, without workers, on a logarithmic axis."""
    from matplotlib.figure import Figure

    rows = [row for row in found["speed"] if row["workers"] == 0]
    shapes = list(dict.fromkeys((row["seq_len"], row["batch_size"]) for row in rows))
    order = [row["loader"] for row in rows if (row["seq_len"], row["batch_size"]) == shapes[0]][::-1]
    figure = Figure(figsize=(7.6, 0.34 * len(order) + 1.2), layout="constrained")
    for axes, shape in zip(
        figure.subplots(1, len(shapes), sharey=True, squeeze=False)[0], shapes, strict=True
    ):
        here = {
            row["loader"]: row["million_tokens_s"]["median"]
            for row in rows
            if (row["seq_len"], row["batch_size"]) == shape
        }
        _amounts(axes, order, [here.get(name, 0) for name in order], is_log=True)
        axes.set_title(f"windows of {shape[0]:,}, {shape[1]} a batch", fontsize=10)
    figure.supxlabel("million tokens a second, int64, page cache warm (logarithmic)", fontsize=9, color=_GREY)
    return figure


def memory_figure(found: dict[str, Any]) -> Figure:
    """A bar for each loader: growth of RSS, MB."""
    from matplotlib.figure import Figure

    growth = {row["loader"]: max(row["growth_mb"]["VmRSS"], 0) for row in found["memory"]}
    order = sorted(growth, key=lambda name: -growth[name])
    figure = Figure(figsize=(7.2, 0.34 * len(order) + 1.2), layout="constrained")
    axes = figure.subplots()
    _amounts(axes, order, [growth[name] for name in order], is_log=False)
    axes.set_xlabel(f"growth of RSS over {found['memory_batches']:,} batches, MB", fontsize=9, color=_GREY)
    return figure


def _amounts(axes: Axes, names: list[str], values: list[float], *, is_log: bool) -> None:
    """Bars from 0, or points on a logarithmic axis, where the length of a bar says nothing."""
    colors = [_OURS if name.startswith("ours") else _FLOOR if name == FLOOR else _PEER for name in names]
    if is_log:
        axes.scatter(values, names, color=colors, s=42, zorder=2)
    else:
        axes.barh(names, values, height=0.68, color=colors)
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        own = name.startswith("ours")
        axes.annotate(
            f"{value:,.0f}" if value >= 10 else f"{value:.1f}", (value, place),
            xytext=(8 if is_log else 4, 0), textcoords="offset points", va="center", fontsize=8.5,
            color=_OURS if own else _GREY, weight="bold" if own else "normal",
        )  # fmt: skip
    top = max(values)
    if is_log:
        axes.set_xscale("log")
        axes.set_xlim(min(value for value in values if value) / 2, top * 4)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_xlim(0, top * 1.15)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#e8e8e8", linewidth=0.8)
    axes.set_axisbelow(True)
