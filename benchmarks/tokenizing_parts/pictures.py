"""Two pictures for the documents: speed by tool, peak memory against the size of the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.tokenizing_parts.tools import DEFAULT, GIGATOKEN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OURS, _PEER, _GREY = "#0b6e99", "#b9c2c9", "#555555"
_ENGINES = {"fastokens": "#0b6e99", "gigatoken": "#d1772e"}
_SHOWN = {
    GIGATOKEN: "Highwater, gigatoken",
    DEFAULT: "Highwater",
    "tiktoken, process pool": "tiktoken, process pool",
    "Megatron, fast": "Megatron-LM, fast",
    "datasets.map": "datasets.map",
    "Megatron, standard": "Megatron-LM",
    "datatrove": "datatrove",
    "litdata optimize": "litdata",
    "the one-list script": "all ids in one list",
}


def speed_figure(found: dict[str, Any]) -> Figure:
    """A point for each tool on the mix, MB/s on a logarithmic axis."""
    from matplotlib.figure import Figure

    speeds = {row["tool"]: row for row in found["rows"] if row["corpus"] == "mix" and row["tool"] in _SHOWN}
    order = sorted(speeds, key=lambda tool: speeds[tool]["mb_s"]["median"])
    figure = Figure(figsize=(7.2, 0.36 * len(order) + 1.1), layout="constrained")
    axes = figure.subplots()
    values = [speeds[tool]["mb_s"]["median"] for tool in order]
    is_ours = [tool in (DEFAULT, GIGATOKEN) for tool in order]
    colors = [_OURS if own else _PEER for own in is_ours]
    axes.scatter(values, [_SHOWN[tool] for tool in order], color=colors, s=42, zorder=2)
    for place, tool in enumerate(order):
        row, own = speeds[tool], tool in (DEFAULT, GIGATOKEN)
        value = row["mb_s"]["median"]
        axes.annotate(
            f"{value:.0f}" if value >= 10 else f"{value:.1f}", (value, place), xytext=(8, 0),
            textcoords="offset points", va="center", fontsize=9, color=_OURS if own else _GREY,
            weight="bold" if own else "normal",
        )  # fmt: skip
        remark = _remark(tool, row, found)
        axes.annotate(
            remark, (value, place), xytext=(35, 0), textcoords="offset points", va="center", fontsize=8,
            color="#8a8a8a",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(0.1, max(values) * 1.7)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#e8e8e8", linewidth=0.8)
    axes.set_axisbelow(True)
    size = found["text_bytes"]["mix"]
    axes.set_xlabel("MB of text a second, whole command (logarithmic)", fontsize=9, color=_GREY)
    axes.set_title(
        f"{_size(size)} of English, source code and other languages to GPT-2 ids, {found['workers']} cores"
    )
    return figure


def _remark(tool: str, row: dict[str, Any], found: dict[str, Any]) -> str:
    """What the bar does not show: less text, other ids."""
    whole = found["text_bytes"]["mix"]
    remarks = [f"on {_size(row['text_bytes'])}"] if row["text_bytes"] < 0.9 * whole else []
    if not found["exactness"]["tools"][tool]["same_ids"]:
        remarks.append("loses text")
    return ", ".join(remarks)


def memory_figure(found: dict[str, Any]) -> Figure:
    """Peak memory of the whole job by input size, a line for each engine."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    axes = figure.subplots()
    goal = found["goals_bytes"]["job"] / 1e6
    sizes = sorted({row["text_bytes"] for row in found["rows"]})
    axes.axhline(goal, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"limit: {goal:,.0f} MB", (sizes[0], goal), xytext=(0, -4), textcoords="offset points", va="top",
        fontsize=8.5, color=_GREY,
    )  # fmt: skip
    for engine, color in _ENGINES.items():
        rows = [row for row in found["rows"] if row["engine"] == engine]
        if rows:
            values = [row["job_peak_bytes"] / 1e6 for row in rows]
            axes.plot([row["text_bytes"] for row in rows], values, color=color, marker="o")
            others = [row["job_peak_bytes"] / 1e6 for row in found["rows"] if row["text_bytes"] == sizes[-1]]
            axes.annotate(
                engine, (rows[-1]["text_bytes"], values[-1]), xytext=(9, 0), textcoords="offset points",
                va="bottom" if values[-1] == max(others) else "top", fontsize=9, color=color,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(sizes, [_size(size) for size in sizes])
    axes.set_xlim(sizes[0] / 1.5, sizes[-1] * 3.2)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(0, 1.12 * max(goal, *(row["job_peak_bytes"] / 1e6 for row in found["rows"])))
    axes.grid(axis="y", color="#e8e8e8", linewidth=0.8)
    axes.set_xlabel("size of the text", fontsize=9, color=_GREY)
    axes.set_title("Peak memory of the whole job, MB")
    return figure


def _size(size: int) -> str:
    return f"{size / 1e9:.0f} GB" if size >= 0.95e9 else f"{size / 1e6:.0f} MB"
