"""The sections of docs/figures.md about the pretokenizer."""

from __future__ import annotations

from typing import Any

from benchmarks.tokenizing_parts.page import goals, read, section, table
from benchmarks.tokenizing_parts.tools import DEFAULT, GIGATOKEN

_PROVISIONAL = (
    "**Provisional**: measured while other programs held the machine's cores, on shorter texts; ratios are "
    "rough, absolute speeds far too low."
)


def speed() -> str:
    found = read("tokenizing")
    header = (
        "text",
        "command",
        "MB",
        "MB/s",
        "CPU s",
        "peak memory, MB",
        "ours is",
        "with gigatoken",
        "same ids",
    )
    rows = [_speed_row(row, found["exactness"]["tools"]) for row in found["rows"]]
    ceiling = [
        (one["corpus"], one["engine"], f"{one['bare_mb_s']['median']:.0f}",
         f"{one['ours_share_of_it']['median']:.0%}", f"{one['ours_share_of_it_by_cpu']['median']:.0%}")
        for one in found["ceiling"]
    ]  # fmt: skip
    wanted = goals(
        (goal["what"], _amount(goal["measured"], goal["unit"]), _amount(goal["wanted"], goal["unit"]),
         goal["met"])
        for goal in found["goals"]
    )  # fmt: skip
    parts = [
        _note(found),
        f"{_what(found)}, {found['rounds']} rounds, {found['workers']} cores. "
        f'Memory: {found["memory"]}. {_texts(found)} Slow tools got a prefix. "Ours is" so many times as '
        "fast, in brackets where the start of both (their time for the first megabyte) is left out.",
        table(header, rows),
        _exactness(found),
        "The bare engine has its text in memory, cut and decoded, in one loaded process a core:",
        table(("text", "engine", "bare, MB/s", "ours reaches", "by CPU time"), ceiling),
        wanted,
        f"Peers: {', '.join(f'{name} {version}' for name, version in found['peers'].items())}.",
        "![Speed by tool](images/tokenizing_speed.png)",
    ]
    return section("How fast text becomes tokens", "tokenizing", found, "\n\n".join(filter(None, parts)), "")


def memory() -> str:
    found = read("tokenizing_memory")
    rows = [
        (f"{row['text_bytes'] / 1e6:,.0f} MB", row["engine"],
         *(f"{row[f'{part}_peak_bytes'] / 1e6:.0f}" for part in ("parent", "worker", "job")))
        for row in found["rows"]
    ]  # fmt: skip
    text = f"{_what(found)}: {found['memory']}.\n\n![Peak memory](images/tokenizing_memory.png)"
    most = {name: max(row[f"{name}_peak_bytes"] for row in found["rows"]) for name in found["goals_bytes"]}
    wanted = goals(
        ({"worker": "a worker", "job": "the whole job"}[name], _mb(most[name]), f"at most {_mb(goal)}",
         most[name] <= goal)
        for name, goal in found["goals_bytes"].items()
    )  # fmt: skip
    header = ("text", "engine", "parent, MB", "largest worker, MB", "whole job, MB")
    return section(
        "What tokenizing holds in memory",
        "tokenizing_memory",
        found,
        _with_note(found, text),
        f"{table(header, rows)}\n\n{wanted}",
    )


def models() -> str:
    found = read("tokenizing_models")
    trained = [
        f"{name} on {_mb(size)} of {'the mix' if corpus == 'mix' else corpus}"
        for name, (corpus, size) in found["trained_on"].items()
    ]
    rows = [
        (row["tokenizer"], f"{row['ids']:,}", row["engine"], f"{row['ours_mb_s']['median']:.1f}",
         f"{row['hugging_face_best_mb_s']['median']:.1f}", f"{row['ours_over_its_best']['median']:.2f}",
         f"{row['worker_peak_bytes'] / 1e6:.0f}")
        for row in found["rows"]
    ]  # fmt: skip
    text = f"{_what(found)}; trained here, {' and '.join(trained)}, since no hub is asked."
    ratios = {row["tokenizer"]: row["ours_over_its_best"]["median"] for row in found["rows"]}
    wanted = goals(
        (f"{name}, ours / its best", f"{ratio:.2f}", "at least 1", ratio >= 1)
        for name, ratio in ratios.items()
    )
    header = ("tokenizer", "ids", "engine", "ours, MB/s", "its best, MB/s", "ratio", "largest worker, MB")
    both = f"{table(header, rows)}\n\n{wanted}"
    return section("Other tokenizers", "tokenizing_models", found, _with_note(found, text), both)


def restart() -> str:
    found = read("tokenizing_restart")
    names = {
        "undisturbed": "whole_s",
        "until the kill": "until_the_kill_s",
        "after it": "after_it_s",
        "time lost": "lost_s",
        "of it the second start": "start_s",
        "time lost but for that": "lost_without_a_second_start_s",
        "one block per worker": "a_block_per_worker_s",
    }
    rows = [
        (what, f"{found[name]['median']:.2f}", f"{found[name]['min']:.2f} to {found[name]['max']:.2f}")
        for what, name in names.items()
    ]
    same = "the same bytes each time" if found["same_bytes"] else "**other bytes**"
    return section(
        "What a kill costs", "tokenizing_restart", found, _with_note(found, f"{found['what']}: {same}."),
        table(("", "s, median", "range"), rows),
    )  # fmt: skip


def _speed_row(row: dict[str, Any], exact: dict[str, Any]) -> tuple[str, ...]:
    same = exact[row["tool"]]["same_ids"]
    return (
        row["corpus"], row["tool"], f"{row['text_bytes'] / 1e6:,.0f}", f"{row['mb_s']['median']:.1f}",
        f"{row['cpu_s']['median']:.1f}", f"{row['peak_memory_bytes'] / 1e6:,.0f}",
        _ratio(row, DEFAULT), _ratio(row, GIGATOKEN),
        "" if row["corpus"] != "mix" else "yes" if same else "no",
    )  # fmt: skip


def _ratio(row: dict[str, Any], ours: str) -> str:
    if f"{ours} / this" not in row:
        return ""
    without = row[f"{ours} / this, both without their start"]
    return f"{row[f'{ours} / this']['median']:.1f}" + ("" if without is None else f" ({without:.1f})")


def _exactness(found: dict[str, Any]) -> str:
    others = [
        f"{name} ({facts['tokens']:,} tokens for {facts['tokens_of_ours']:,}: "
        f"{facts.get('why', 'not known why')})"
        for name, facts in found["exactness"]["tools"].items()
        if not facts["same_ids"]
    ]
    equal = found["exactness"]["ours_equals_the_reference_on_the_prefix"]
    return (
        f"The default's ids of the prefix are {'' if equal else '**not** '}those of the reference tokenizer, "
        f"and the ids of each document those of all other tools, but for {'; '.join(others)}."
    )


def _texts(found: dict[str, Any]) -> str:
    texts = found["corpora"]["corpora"]
    told = [
        f"{name} {_mb(found['text_bytes'][name])} (of a corpus of {_mb(facts['text_bytes'])} with "
        f"{facts['distinct_words_share']:.1%} distinct words)"
        for name, facts in texts.items()
    ]
    mix = ", ".join(f"{_mb(size)} {kind}" for kind, size in texts["mix"]["bytes_by_kind"].items())
    return f"Texts, from {found['corpora']['suite']}: {', '.join(told)}; the mix holds {mix}."


def _what(found: dict[str, Any]) -> str:
    return f"{found['what'][0].upper()}{found['what'][1:]}"


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _amount(value: float, unit: str) -> str:
    return f"{value:g} {unit}" if unit != "times" else f"{value:g}x"


def _note(found: dict[str, Any]) -> str:
    return _PROVISIONAL if found.get("provisional") else ""


def _with_note(found: dict[str, Any], text: str) -> str:
    return "\n\n".join(filter(None, (_note(found), text)))
