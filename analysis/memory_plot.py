"""Memory of an attempt: what counts against the limit, what is merely cached, and which stage took it.

Setup is short and is where most memory is taken, so that each of its stages gets the same width; the
rest is drawn over time. Both share one axis of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILLION,
    YELLOW,
    duration_unit,
    new_figure,
    size_unit,
)
from analysis.run_folder import RunFolder
from analysis.stages import StageSpan, amount, stage_spans
from memory import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PART_COLORS = {"anon": BLUE, "shared": GREEN, "kernel": ORANGE}
_LOOP_COLORS = {"train": SKY, "evaluate": YELLOW, "checkpoint": "black", "finish": GREY}
_DASHED = (0, (5, 2))
_SETUP_STAGE_WIDTH = 0.055
"""Of a setup stage, relative to all that is drawn over time."""
_NARROWEST_BAND = 1 / 400
"""Relative to the axis: a stage of milliseconds is still seen."""
_LABELS_HEIGHT_INCHES = 0.48
"""Of an axis's tick labels and label."""
_CHARACTERS_ACROSS = 70
"""Of a band's label, that fit across the axis."""


@dataclass(frozen=True)
class _Panel:
    """Records and where they stand on the x axis; spans: the stages among them."""

    indices: Sequence[int]
    positions: Sequence[float]
    spans: Sequence[StageSpan]


@dataclass(frozen=True)
class _Amounts:
    """By record, in bytes; nan where it is not known. parts: what U is made of; scope: whose it is."""

    scope: str
    parts: dict[str, list[float]]
    rss: list[float]
    gpu: dict[str, list[float]]
    largest: float


def memory_figure(run: RunFolder) -> Figure | None:
    """The figure of the newest attempt, or None when nothing was measured in it."""
    records = run.last_attempt_memory
    amounts = _amounts(records)
    if not amounts.largest:
        return None
    spans = stage_spans(records)
    in_setup = next((i for i, span in enumerate(spans) if span.name in _LOOP_COLORS), len(spans))
    setup, loop = _setup_panel(spans[:in_setup]), _loop_panel(records, spans, in_setup)
    panels = [panel for panel in (setup, loop) if panel.indices]
    heights = [0.05, 1.0, *([0.5] if amounts.gpu else [])]
    figure = new_figure()
    grid = figure.subplots(
        len(heights), len(panels), squeeze=False, sharey="row", sharex="col",
        height_ratios=heights,
        width_ratios=[_SETUP_STAGE_WIDTH * max(4, len(setup.spans)), 1.0][-len(panels):],
    )  # fmt: skip
    for column, panel in enumerate(panels):
        strip, axes, *gpu_axes = grid[:, column]
        _draw_memory(axes, panel, amounts)
        for lower in gpu_axes:
            _draw_gpu(lower, panel, amounts)
        if panel is setup:
            _draw_setup_stages(grid[:, column], panel)
        else:
            _draw_loop_stages(strip, grid[-1, column], panel, records)
    _draw_limit(grid[1], records[-1], amounts.largest)
    _tell(grid, amounts)
    _legend(figure, grid, is_below_names=len(panels) == 1 and panels[0] is setup)
    number = records[-1]["attempt"]
    title = (
        run.name
        + (f", attempt {number}" if number > 1 else "")
        + _limit_far_above(records[-1], amounts.largest)
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, color=GREY)
    return figure


def _amounts(records: Sequence[dict[str, Any]]) -> _Amounts:
    def series(*path: str) -> list[float]:
        found = (amount(record, *path) for record in records)
        return [float("nan") if n is None else float(n) for n in found]

    def is_known(values: list[float]) -> bool:
        return any(value > 0 for value in values)

    has_job = all(amount(record, "job", "anon_bytes") is not None for record in records)
    parts = (
        {"anon": ("job", "anon_bytes"), "shared": ("job", "shmem_bytes"), "kernel": ("job", "kernel_bytes")}
        if has_job
        else {"anon": ("anon_bytes",), "shared": ("shmem_bytes",)}
    )
    known = {name: values for name, path in parts.items() if is_known(values := series(*path))}
    rss = series("rss_bytes")
    gpu = {name: series("gpu", f"{name}_bytes") for name in ("allocated", "reserved")}
    stacked = [sum(n for n in at if n > 0) for at in zip(*known.values(), strict=True)]
    return _Amounts(
        scope="of the job" if has_job else "of the run",
        parts=known,
        rss=rss if is_known(rss) else [],
        gpu=gpu if is_known(gpu["allocated"]) else {},
        largest=max([*stacked, *(n for n in rss if n > 0)], default=0.0),
    )


def _setup_panel(spans: Sequence[StageSpan]) -> _Panel:
    """Stage i from position i, when it begins, to i + 1, when it has ended."""
    indices = [index for span in spans for index in (span.begin, span.end)]
    positions = [float(edge) for i in range(len(spans)) for edge in (i, i + 1)]
    return _Panel(indices, positions, spans)


def _loop_panel(records: Sequence[dict[str, Any]], spans: Sequence[StageSpan], first: int) -> _Panel:
    """All records from the first stage after setup on, over the time since the attempt's first record."""
    if first == len(spans):
        return _Panel([], [], [])
    scale, _ = duration_unit(records[-1]["elapsed_s"])
    indices = range(spans[first].begin, len(records))
    return _Panel(indices, [records[index]["elapsed_s"] / scale for index in indices], spans[first:])


def _draw_memory(axes: Axes, panel: _Panel, amounts: _Amounts) -> None:
    """Stacked parts of U, and the line of RSS."""
    scale, _ = size_unit(amounts.largest)
    parts = {name: [values[i] / scale for i in panel.indices] for name, values in amounts.parts.items()}
    if parts:
        axes.stackplot(
            panel.positions, *parts.values(), labels=list(parts),
            colors=[_PART_COLORS[name] for name in parts],
        )  # fmt: skip
        top = [sum(at) for at in zip(*parts.values(), strict=True)]
        axes.plot(
            panel.positions, top, color="black", linewidth=1.0, marker="o", markersize=2.0,
            label=f"unreclaimable, {amounts.scope}",
        )  # fmt: skip
    if amounts.rss:
        rss = [amounts.rss[i] / scale for i in panel.indices]
        axes.plot(
            panel.positions,
            rss,
            color="black",
            linewidth=1.2,
            linestyle=_DASHED,
            label="rss of the run, with mapped files",
        )


def _draw_gpu(axes: Axes, panel: _Panel, amounts: _Amounts) -> None:
    """What tensors hold, and what torch's allocator holds for them."""
    scale, _ = size_unit(max(n for n in amounts.gpu["reserved"] if n > 0))
    for (name, values), color, line in zip(
        amounts.gpu.items(), (VERMILLION, "black"), ("-", _DASHED), strict=True
    ):
        shown = [values[i] / scale for i in panel.indices]
        axes.plot(panel.positions, shown, color=color, linestyle=line, linewidth=1.2, label=f"GPU, {name}")


def _draw_setup_stages(column: Any, panel: _Panel) -> None:
    """Each stage's name below its part of the axis. column: the strip, then the axes below it."""
    strip, *below = column
    count = len(panel.spans)
    strip.set_axis_off()
    strip.text(0, 0.5, "setup (not to scale)", ha="left", va="center", fontsize=8.5, color=GREY)
    for axes in below:
        for i in range(0, count, 2):
            axes.axvspan(i, i + 1, color="#EEEEEE", zorder=0, linewidth=0)
    lowest = below[-1]
    lowest.set_xlim(0, count)
    lowest.set_xticks([i + 0.5 for i in range(count)], [span.name for span in panel.spans])
    for axes in below:
        axes.tick_params(axis="x", labelrotation=90, length=0, labelsize=8)


def _draw_loop_stages(strip: Axes, lowest: Axes, panel: _Panel, records: Sequence[dict[str, Any]]) -> None:
    """A band a stage above the memory, named where the name fits; the colours are told above the bands."""
    from matplotlib.patches import Patch, Rectangle

    scale, unit = duration_unit(records[-1]["elapsed_s"])
    start, end = panel.positions[0], max(panel.positions[-1], panel.positions[0] + 1e-3)
    strip.set_axis_off()
    strip.set_ylim(0, 1)
    bands = [
        (records[span.begin]["elapsed_s"] / scale, records[span.end]["elapsed_s"] / scale, span.name)
        for span in panel.spans
    ]
    # the shortest last, so that none is hidden behind a longer one
    for begin, until, name in sorted(bands, key=lambda band: band[0] - band[1]):
        width = max(until - begin, (end - start) * _NARROWEST_BAND)
        color = _LOOP_COLORS.get(name, GREY)
        strip.add_patch(Rectangle((begin, 0), width, 1, color=color, linewidth=0))
        if width / (end - start) * _CHARACTERS_ACROSS > len(name) + 1 and color in (SKY, YELLOW):
            strip.text(begin + width / 2, 0.45, name, ha="center", va="center", fontsize=7)
    names = [name for name in _LOOP_COLORS if any(span.name == name for span in panel.spans)]
    strip.legend(
        handles=[Patch(color=_LOOP_COLORS[name], label=name) for name in names], loc="lower left",
        bbox_to_anchor=(0, 1), ncols=len(names), borderpad=0, borderaxespad=0.3, handlelength=1.0,
        handletextpad=0.5, columnspacing=1.4,
    )  # fmt: skip
    lowest.set_xlim(start, end)
    lowest.set_xlabel(f"{unit} since the first stage began")


def _tell(grid: Any, amounts: _Amounts) -> None:
    """Axes of the memory, in units that suit it."""
    grid[1, 0].set_ylabel(f"memory ({size_unit(amounts.largest)[1]})")
    if amounts.gpu:
        most = max(n for n in amounts.gpu["reserved"] if n > 0)
        scale, unit = size_unit(most)
        grid[2, 0].set_ylabel(f"GPU ({unit})")
        grid[2, 0].set_ylim(0, 1.1 * most / scale)
        grid[2, -1].legend(loc="lower right", ncols=2, handlelength=2.2)


def _draw_limit(row: Sequence[Axes], newest: dict[str, Any], largest: float) -> None:
    """The limit, where it does not flatten everything else."""
    scale, _ = size_unit(largest)
    limit = amount(newest, "limit_bytes")
    if limit is None or _limit_far_above(newest, largest):
        row[0].set_ylim(0, 1.05 * largest / scale)
        return
    for axes in row:
        label = f"{_whose_limit(newest)}: {format_bytes(limit)}"
        axes.axhline(limit / scale, color=VERMILLION, linewidth=1.6, label=label)
    row[0].set_ylim(0, 1.05 * max(limit, largest) / scale)


def _limit_far_above(newest: dict[str, Any], largest: float) -> str:
    """A remark on a limit that is out of view; empty when it is within."""
    limit = amount(newest, "limit_bytes")
    if limit is None or limit <= 2 * largest:
        return ""
    return f"; {_whose_limit(newest)}: {format_bytes(limit)}, far above"


def _whose_limit(newest: dict[str, Any]) -> str:
    return "memory of the host" if newest["snapshot"].get("limit_at") == "host" else "limit"


def _legend(figure: Figure, grid: Any, *, is_below_names: bool) -> None:
    """The legend of the memory: beside the long names of the setup stages is room for it."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = grid[1, 0].get_legend_handles_labels()
    if is_below_names:
        figure.legend(handles, labels, loc="outside lower center", ncols=2, handlelength=2.2)
        return
    lowest = grid[-1, -1]
    below_its_label = lowest.transAxes + ScaledTranslation(0, -_LABELS_HEIGHT_INCHES, figure.dpi_scale_trans)
    own = lowest.get_legend()
    lowest.legend(
        handles, labels, loc="upper right", bbox_to_anchor=(1, 0), bbox_transform=below_its_label, ncols=2,
        borderpad=0, borderaxespad=0, handlelength=2.2, columnspacing=1.4,
    )  # fmt: skip
    if own is not None:
        lowest.add_artist(own)
