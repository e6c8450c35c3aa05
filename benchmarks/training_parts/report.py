"""What a run of training_speed.py is summed up to: rows, ratios of one round, goals, a picture."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.environment import summary
from benchmarks.tokenizing_parts.page import goals as goals_table
from benchmarks.tokenizing_parts.page import read, section, table
from benchmarks.training_parts.cases import (
    AS_INSTALLED,
    FLOOR,
    MODERN,
    NANOGPT,
    OURS,
    TRAINER,
    TUNED,
    TUNED_NAME,
    Running,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "training_speed"
SEQ, VOCAB = 128, 50_257
_OURS_COLOR, _PEER_COLOR, _FLOOR_COLOR, _GREY = "#0b6e99", "#b9c2c9", "#d9d2c0", "#555555"
_GOALS = {  # width: as installed, over the floor, share of their memory
    32: (2.0, 1.35, 1 / 8),
    64: (2.0, 1.2, 1 / 8),
    256: (1.2, None, 2 / 3),
}
_FROM_LN_V = 0.5
"""First losses are this near to ln V at most, which a model that has learned nothing has; litgpt's first
weights are larger than the others'."""


def rows_of(width: int, running: list[Running]) -> list[dict[str, Any]]:
    """A row for each case of a width, in the order in which they stand in the table."""
    ours = next(one for one in running if one.case.name == OURS and not one.case.is_tuned)
    floor = next((one for one in running if one.case.name == FLOOR), None)
    return [_row(width, one, ours, floor) for one in running]


def _row(width: int, one: Running, ours: Running, floor: Running | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": f"{width}d",
        "case": one.case.name,
        "allocator": one.case.allocator,
        "step_s": summary([step["step_s"] for step in one.found]),
        "cpu_s": summary([step["cpu_s"] for step in one.found]),
        "over_ours": _ratio(one, ours),
        "over_floor": None if floor is None else _ratio(one, floor),
        "torch_mb": _mb(one.found[-1]["torch_bytes"]),
        "peak_mb": _mb(one.found[-1]["peak_bytes"]),
        "above_torch_mb": _mb(_above_torch(one)),
        "above_torch_over_ours": round(_above_torch(one) / _above_torch(ours), 3),
        "first_loss": one.first_loss(),
    }
    if "chunk" in one.found[-1]:
        row["chunk"] = one.found[-1]["chunk"]
    return row


def _above_torch(one: Running) -> int:
    last = one.found[-1]
    return last["peak_bytes"] - last["torch_bytes"]


def _mb(count: int) -> int:
    return round(count / 2**20)


def _ratio(one: Running, other: Running) -> float:
    """Of steps of the same round, their median."""
    pairs = zip(one.found, other.found, strict=True)
    return round(statistics.median(a["step_s"] / b["step_s"] for a, b in pairs), 3)


def result(
    provisional: bool, batch: int, rows: list[dict[str, Any]], left_out: dict[str, str], peers: dict[str, str]
) -> dict[str, Any]:
    """What is saved."""
    return {
        "provisional": provisional,
        "setting": {
            "batch": batch, "seq_len": SEQ, "vocab_size": VOCAB, "threads": 2, "dtype": "fp32",
            "tuned": TUNED, "ln_vocab_size": round(math.log(VOCAB), 4),
        },
        "peers": peers,
        "left_out": left_out,
        "rows": rows,
        "goals": goals(rows),
    }  # fmt: skip


def goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was wanted, what was measured, whether that is enough."""
    found: list[dict[str, Any]] = []
    by_case = {(row["model"], row["case"], row["allocator"]): row for row in rows}
    for width, (faster, over_floor, share) in _GOALS.items():
        model = f"{width}d"
        ours = by_case.get((model, OURS, AS_INSTALLED))
        if ours is None:
            continue
        for name in (NANOGPT, TRAINER):
            peer = by_case.get((model, name, AS_INSTALLED))
            if peer is None:
                continue
            found.append(_at_least(f"{model}: {name} / ours, as installed", peer["over_ours"], faster))
            tuned = by_case.get((model, name, TUNED_NAME))
            if tuned is not None:
                found.append(_at_least(f"{model}: {name}, tuned / ours", tuned["over_ours"], 1.0))
            measured = 1 / peer["above_torch_over_ours"]
            found.append(_at_most(f"{model}: memory of ours / {name}", measured, share))
        if over_floor is not None and ours["over_floor"] is not None:
            found.append(_at_most(f"{model}: ours / the floor", ours["over_floor"], over_floor))
    far = [
        abs(row["first_loss"] - math.log(VOCAB)) for row in rows if row["first_loss"] is not None
    ]  # fmt: skip
    if far:
        found.append(_at_most("first losses, farthest from ln V", max(far), _FROM_LN_V))
    return found


def _at_least(what: str, measured: float, wanted: float) -> dict[str, Any]:
    met = measured >= wanted
    return {"what": what, "measured": round(measured, 3), "wanted": f"at least {wanted:.3g}", "met": met}


def _at_most(what: str, measured: float, wanted: float) -> dict[str, Any]:
    met = measured <= wanted
    return {"what": what, "measured": round(measured, 3), "wanted": f"at most {wanted:.3g}", "met": met}


def page() -> str:
    """The section of docs/figures.md."""
    found = read(NAME)
    setting = found["setting"]
    rows = [
        (row["model"], row["case"], row["allocator"], f"{row['step_s']['median']:.2f}",
         f"{row['over_ours']:.2f}", "" if row["over_floor"] is None else f"{row['over_floor']:.2f}",
         "" if row["case"] == FLOOR else f"{row['above_torch_mb']:,}",
         "" if row["case"] == FLOOR else f"{row['above_torch_over_ours']:.1f}",
         "" if row["first_loss"] is None else f"{row['first_loss']:.2f}")
        for row in found["rows"]
    ]  # fmt: skip
    note = (
        "**Provisional**: measured while other programs held the machine's cores.\n\n"
        if found["provisional"]
        else ""
    )
    intro = (
        f"{note}GPT-2's shape, heads 16 wide, {setting['vocab_size']:,} ids, a step of {setting['batch']} x "
        f"{setting['seq_len']} tokens, {setting['dtype']}, {setting['threads']} threads, whole unchanged "
        "loops, each in a process of its own, their steps in turn; ratios are medians of steps of the same "
        "round. "
        "Memory is the peak above what loading torch takes. `tuned` sets "
        + " ".join(f"`{name}={value}`" for name, value in setting["tuned"].items())
        + ". The floor is the three products of the head alone. litgpt has rotary positions in place of "
        f"learned ones, and compiles always; `{MODERN}` has QK-norm, squared ReLU, a head of its own, "
        "and logits that are capped and have a z-loss: several more passes over them. First losses: "
        "a model that has learned nothing has "
        f"ln {setting['vocab_size']:,} = {setting['ln_vocab_size']:.2f}."
    )
    header = (
        "model", "what trains", "allocator", "s a step", "/ ours", "/ floor", "memory, MB", "memory / ours",
        "first loss",
    )  # fmt: skip
    wanted = goals_table(
        (goal["what"], f"{goal['measured']:.2f}", goal["wanted"], goal["met"]) for goal in found["goals"]
    )
    left_out = "".join(f"\n\nLeft out: {name}: {why}." for name, why in found["left_out"].items())
    peers = ", ".join(f"{name} {version}" for name, version in found["peers"].items())
    text = "\n\n".join(
        [
            intro,
            table(header, rows),
            wanted + left_out,
            f"Peers: {peers}.",
            "![Seconds a step and memory, by what trains](images/training_speed.png)",
        ]
    )
    return section("How fast a step is", NAME, found, text, "")


def figure(found: dict[str, Any]) -> Figure:
    """Seconds a step and memory, by what trains."""
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(row["model"] for row in found["rows"]))
    sizes = [sum(row["model"] == model for row in found["rows"]) for model in models]
    drawn = Figure(figsize=(9.6, 0.27 * sum(sizes) + 1.6), layout="constrained")
    panels = drawn.subplots(len(models), 2, squeeze=False, height_ratios=sizes)
    for (times, memory), model in zip(panels, models, strict=True):
        rows = [row for row in found["rows"] if row["model"] == model][::-1]
        names = [f"{row['case']}{', tuned' if row['allocator'] == TUNED_NAME else ''}" for row in rows]
        _bars(times, names, [row["step_s"]["median"] for row in rows], "{:.2f}")
        held = [0 if row["case"] == FLOOR else row["above_torch_mb"] for row in rows]
        _bars(memory, names, held, "{:,.0f}")
        memory.set_yticklabels([])
        times.set_title(f"{model}, s a step", fontsize=9, loc="left")
        memory.set_title(f"{model}, MB above torch's own", fontsize=9, loc="left")
    return drawn


def _bars(axes: Axes, names: list[str], values: list[float], form: str) -> None:
    colors = [
        _OURS_COLOR if name.startswith(OURS) else _FLOOR_COLOR if name == FLOOR else _PEER_COLOR
        for name in names
    ]
    axes.barh(names, values, height=0.7, color=colors)
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        if value:
            axes.annotate(
                form.format(value), (value, place), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=8, color=_OURS_COLOR if name.startswith(OURS) else _GREY,
            )  # fmt: skip
    axes.set_xlim(0, max(values) * 1.15)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#e8e8e8", linewidth=0.8)
    axes.set_axisbelow(True)
