"""The sections of docs/figures.md about the loader."""

from __future__ import annotations

from typing import Any

from benchmarks.tokenizing_parts.page import goals, read, section, table

_PROVISIONAL = (
    "**Provisional**: measured while other programs held the machine's cores, with fewer tokens or rounds; "
    "ratios are rough, absolute speeds far too low."
)
_MEMORY = ("VmRSS", "RssAnon", "RssFile", "peak of VmRSS")


def speed() -> str:
    found = read("loading")
    parts = [
        _note(found),
        f"{found['tokens']:,} random uint16 tokens, each loader's files in its own format, page cache warm; "
        "batches of int64 tensors, inputs and labels, shuffled. Each is measured in a fresh process, in its "
        f"first epoch, so that its pages are not mapped yet; medians of {found['rounds']} rounds, with 2 "
        'workers of one. "Ours is" so many times as fast (mmap), of processes of the same round.',
        *(_speed_table(found, workers) for workers in (0, 2)),
        "Against the floor, `view[starts]` of a strided view and `astype(int64)`, in one process, on the "
        "same windows in the same order. mapped: this process has read the pages before; cached: they are in "
        "the page cache, and mapped by neither; cold: on the disk.",
        _pairs_table(found["against_floor"]),
        _goals(found),
        _peers(found),
        "![Speed by loader](images/loading_speed.png)",
    ]
    return section("How fast batches are read", "loading", found, "\n\n".join(filter(None, parts)), "")


def memory() -> str:
    found = read("loading")
    rows = [
        (row["loader"], *(f"{row['growth_mb'][name]:,.1f}" for name in _MEMORY)) for row in found["memory"]
    ]
    cold = [
        (row["loader"], f"{row['seq_len']} x {row['batch_size']}", f"{row['batches']:,}",
         f"{row['million_tokens_s']:.1f}", f"{row['read_over_useful']:.1f}")
        for row in found["cold"]
    ]  # fmt: skip
    parts = [
        _note(found),
        f"Growth over {found['memory_batches']:,} batches of 1024 x 32, page cache warm, no workers, MB. "
        "RssFile is page cache that is mapped: it can be taken back, and still counts where RSS is polled. "
        "The highest RSS is counted from the first batch on.",
        table(("loader", "RSS", "RssAnon", "RssFile", "highest RSS"), rows),
        "From a cold disk, for a few seconds: what was read from it for each byte of tokens delivered.",
        table(("loader", "window x batch", "batches", "million tokens/s", "read / useful"), cold),
        "![Growth of memory](images/loading_memory.png)",
    ]
    text = "\n\n".join(filter(None, parts))
    return section("What the loaders hold, and what they read", "loading", found, text, "")


def order() -> str:
    found = read("loading_order")
    rows = [
        (row["windows"], f"{row['ns']['median']:.1f}", f"{row['ns']['min']:.1f} to {row['ns']['max']:.1f}",
         f"{row['memory_bytes'] / 1e6:.1f}")
        for row in found["rows"]
    ]  # fmt: skip
    goal, ratio = found["goals"], found["worst_over_best"]["median"]
    worst = max(row["ns"]["median"] for row in found["rows"])
    text = (
        f"CPU time of an index, in blocks of {found['block']:,}. Memory is that of two blocks, however many "
        "windows there are."
    )
    header = ("windows", "ns, median", "range", "memory, MB")
    wanted = goals(
        [
            ("an index", f"{worst:.1f} ns", f"at most {goal['ns']:g} ns", worst <= goal["ns"]),
            ("the worst / the best, same round", f"{ratio:.2f}", f"at most {goal['worst_over_best']:g}",
             ratio <= goal["worst_over_best"]),
        ]
    )  # fmt: skip
    both = f"{table(header, rows)}\n\n{wanted}"
    return section("The order", "loading_order", found, _with_note(found, text), both)


def resume() -> str:
    found = read("loading_resume")
    rows = [
        (name, f"{one['median'] * 1e3:.1f}", f"{one['min'] * 1e3:.1f} to {one['max'] * 1e3:.1f}")
        for name, one in {**found["first_batch_s"], "added": found["added_s"]}.items()
    ]
    different = [row for row in found["exact"] if not row["same"]]
    ranks = sorted({row["ranks"] for row in found["exact"]})
    workers = sorted({row["workers"] for row in found["exact"]})
    told = "the very stream" if not different else f"**another stream** for {different}"
    text = (
        f"From opening a set of {found['tokens']:,} tokens to the first batch, in a fresh process. "
        f"{found['compared_batches']} global batches after a state at "
        f"80% of one loader, by {_listed(ranks)} ranks with {_listed(workers)} workers each: {told}."
    )
    header = ("first batch", "ms, median", "range")
    added_ms, limit_ms = found["added_s"]["median"] * 1e3, found["goal_s"] * 1e3
    wanted = goals([("added", f"{added_ms:.1f} ms", f"at most {limit_ms:.0f} ms", added_ms <= limit_ms)])
    return section(
        "What going on costs the loader",
        "loading_resume",
        found,
        _with_note(found, text),
        "\n\n".join([table(header, rows), wanted]),
    )


def limits() -> str:
    found = read("loading_limits")
    rows = [
        (f"the loader, {reader}", f"{found['batches']:,} batches, cold at first",
         _mb(found["loader_limit_bytes"]), *_limit_cells(row))
        for reader, row in found["loader"].items()
    ]  # fmt: skip
    run = found["run"]
    rows.append(
        ("a run of 32d", f"{run['steps']:,} steps", _mb(found["run_limit_bytes"]), *_limit_cells(run))
    )
    tenths = run["tenths_limit_over_without"]
    text = (
        f"A set of {found['tokens'] * 2 / 1e9:.1f} GB, out of the page cache before each; a memory cgroup. "
        f"The tenths of the run one by one: "
        f"{min(tenths):.2f} to {max(tenths):.2f} times."
    )
    header = ("what", "how much", "limit", "s with", "s without", "with / without")
    ratios = {f"the loader, {reader}": row for reader, row in found["loader"].items()} | {"a run of 32d": run}
    reached = {what: row["limit_over_without"]["median"] for what, row in ratios.items()}
    reached["each tenth of the run"] = max(tenths)
    wanted = goals(
        (f"{what}, with / without", f"{ratio:.2f}", f"at most {found['goal']:g}", ratio <= found["goal"])
        for what, ratio in reached.items()
    )
    both = f"{table(header, rows)}\n\n{wanted}"
    return section("Under a limit of memory", "loading_limits", found, _with_note(found, text), both)


def _limit_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['limit_s']['median']:.2f}", f"{row['without_s']['median']:.2f}",
        f"{row['limit_over_without']['median']:.2f}",
    )  # fmt: skip


def _speed_table(found: dict[str, Any], workers: int) -> str:
    rows = [row for row in found["speed"] if row["workers"] == workers]
    shapes = list(dict.fromkeys((row["seq_len"], row["batch_size"]) for row in rows))
    names = list(dict.fromkeys(row["loader"] for row in rows))
    cells = {(row["loader"], row["seq_len"], row["batch_size"]): row for row in rows}
    header = [f"{workers or 'no'} workers, million tokens/s"]
    for seq_len, batch_size in shapes:
        header += [f"{seq_len} x {batch_size}", "range", "ours is"]
    lines = []
    for name in names:
        line = [name]
        for shape in shapes:
            row = cells.get((name, *shape))
            line += _speed_cells(row) if row else ["", "", ""]
        lines.append(tuple(line))
    return table(tuple(header), lines)


def _speed_cells(row: dict[str, Any]) -> list[str]:
    speed, ratio = row["million_tokens_s"], row["ours_over_this"]["median"]
    own = row["loader"].startswith("ours, mmap") and ratio == 1
    return [
        f"{speed['median']:,.1f}",
        f"{speed['min']:,.1f} to {speed['max']:,.1f}" if speed["n"] > 1 else "",
        "" if own else f"{ratio:.1f}",
    ]


def _pairs_table(pairs: list[dict[str, Any]]) -> str:
    rows = [
        (row["reader"], row["pages"], f"{row['seq_len']} x {row['batch_size']}",
         f"{row['ours_us']['median']:,.0f}", f"{row['floor_us']['median']:,.0f}",
         f"{row['share_of_floor']['median']:.0%}",
         f"{row['share_of_floor_by_cpu']['median']:.0%}" if row["pages"] != "cold" else "",
         f"{row['ours_read_over_useful']:.1f}" if row["pages"] == "cold" else "",
         f"{row['floor_read_over_useful']:.1f}" if row["pages"] == "cold" else "")
        for row in pairs
    ]  # fmt: skip
    return table(
        ("reader", "pages", "window x batch", "us a batch", "the floor", "share of it", "by CPU time",
         "read / useful", "the floor's"),
        rows,
    )  # fmt: skip


def _goals(found: dict[str, Any]) -> str:
    return goals(
        (goal["what"], f"{goal['measured']:g}{_unit(goal)}", f"{goal['wanted']}{_unit(goal)}", goal["met"])
        for goal in found["goals"]
    )


def _unit(goal: dict[str, Any]) -> str:
    return "x" if goal["unit"] == "times" else f" {goal['unit']}"


def _peers(found: dict[str, Any]) -> str:
    named = ", ".join(f"{name} {version}" for name, version in found["peers"].items())
    told = f"Peers: {named}." if named else ""
    left_out = "; ".join(f"{name} ({why})" for name, why in found["left_out"].items())
    return f"{told} Left out: {left_out}." if left_out else told


def _listed(numbers: list[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def _mb(size: int) -> str:
    return f"{size / 2**20:,.0f} MB"


def _note(found: dict[str, Any]) -> str:
    return _PROVISIONAL if found.get("provisional") else ""


def _with_note(found: dict[str, Any], text: str) -> str:
    return "\n\n".join(filter(None, (_note(found), text)))
