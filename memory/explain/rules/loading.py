"""Files and orders that were read whole into memory, and pages of files that became anon memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from experiment_utils.json_values import mapping, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.advice import more_memory, streamed
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding
from memory.explain.script import read_while_growing, script_lines, script_text
from memory.explain.telling import all_of, is_worth, rise, rise_line, stack_line, stage_line
from memory.explain.trend import last_rise

LOADS = re.compile(
    r"np\.load\(|numpy\.load\(|fromfile\(|\.read\(\)|read_bytes\(|read_text\(|readlines\(|json\.load|pickle\.load"
    r"|torch\.load\(|read_csv\(|read_parquet\(|loadtxt\(|load_file\("
)
"""Lines that read a file."""
COPIES = re.compile(r"\.tolist\(|\.astype\(|np\.array\(|np\.concatenate\(")
"""What loaded data often goes through; so does data that never was in a file."""
SAMPLES = re.compile(r"randperm|\.permutation\(|list\(range\(|shuffle\(|RandomSampler")
_COPY_ON_WRITE = r"(?:mode=|\b(?:memmap|load)\([^\n]*, *)[\"']c[\"']|ACCESS_COPY"
PRIVATE = re.compile(_COPY_ON_WRITE + r"|^(?!.*(?:ANON|mmap\(-1)).*MAP_PRIVATE")
_ASSIGNS = re.compile(r"[\w.]+\[.+\] *[-+*/|&^]?=[^=]")
_MAPS_PRIVATELY = re.compile(rf"\b(\w+) *=(?!=)[^\n]*?(?:{_COPY_ON_WRITE})")
_A_TEXT = re.compile(r"[\"']([^\"'\n]{1,400})[\"']")
_FACTORS = (1, 2, 4, 8)
_INDEX_BYTES = 39
_AT_ONCE_S = 30


def whole_file(facts: Facts) -> Iterator[Finding]:
    """Anon memory jumped by the size of a file, or by a small multiple of it; or it stood at a load."""
    found = rise(facts) if not facts.series("anon_bytes") else last_rise(facts.series("anon_bytes"))
    too_large = _larger_than_the_room(facts)
    if too_large and (found is None or found.is_jump or found.seconds < _AT_ONCE_S):
        yield _larger(facts, too_large)
        return
    if found is None or not (is_worth(facts, found.bytes) or facts.kills):
        return
    died = not facts.has_ended_well and not facts.is_running
    stack = facts.frames
    at = next((frame for frame in stack if LOADS.search(frame.source)), None)
    copies = next((frame for frame in stack if COPIES.search(frame.source)), None) if at is None else None
    sudden = found.is_jump or found.seconds < _AT_ONCE_S
    matched = _file_like(facts, found.bytes, cut_short=died) if sudden or at else None
    written = script_lines(facts, LOADS) if sudden and died and not script_lines(facts, PRIVATE) else []
    ratio = read_while_growing(facts)
    reads = ratio is not None and 0.2 < ratio < 1.5
    at = at or (copies if matched or (written and reads) else None)
    signs = [at is not None, bool(matched and matched[0] in _told_by_stage(facts)), bool(written) and reads]
    if not (any(signs) or matched or (written and found.is_jump)) or (at and PRIVATE.search(at.source)):
        return
    says = "A file was read whole into memory"
    if matched:
        says += f": {Path(matched[0]).name or matched[0]}, {format_bytes(matched[1])}, x{matched[2]}"
        says += " (as int64 or Python objects)" * (matched[2] >= 4)
    size = f"; {matched[0]} has {format_bytes(matched[1])}" if matched else ""
    yield Finding(
        rule="whole_file",
        says=says,
        confidence="likely" if any(signs) else "possible",
        cause="whole_file_load",
        evidence=all_of(
            f"anon rose by {format_bytes(found.bytes)}{size}",
            f"page cache rose with it, {ratio:.1f} bytes a byte of anon (memory.ring)"
            if reads and ratio
            else None,
            stack_line(facts) if at else None,
            *(f"{line} (the script)" for line in written[:2]),
            rise_line(facts),
            stage_line(facts),
        ),
        advice=(
            *streamed(facts),
            *more_memory(facts, found.from_bytes + matched[1] * matched[2] if matched else None),
        ),
    )


def _larger_than_the_room(facts: Facts) -> tuple[str, int, str] | None:
    """(file, its bytes, line of the script) of one that the script reads, and for which there was no room.

    Named in that line, or, where it names none, a word of the command: a read of it can only end in a kill.
    """
    limit = facts.limit_bytes
    if not limit or not facts.kills or facts.has_ended_well or script_lines(facts, PRIVATE):
        return None
    lines = [line for line in script_lines(facts, LOADS) if "mmap" not in line]
    for line in lines:
        for name, size in _sized(_A_TEXT.findall(line)) or _sized(facts.command[1:50]):
            if size > limit:
                return name, size, line
    return None


def _larger(facts: Facts, too_large: tuple[str, int, str]) -> Finding:
    name, size, line = too_large
    before = min((u for _, u in facts.u_series), default=0)
    return Finding(
        rule="whole_file",
        says=f"A file was read whole into memory: {Path(name).name} alone is larger than the limit",
        confidence="likely",
        cause="whole_file_load",
        evidence=all_of(
            f"{line} (the script)",
            f"{name} has {format_bytes(size)}, the limit is {format_bytes(facts.limit_bytes or 0)}",
            rise_line(facts),
            stage_line(facts),
        ),
        advice=(*streamed(facts), *more_memory(facts, before + size)),
    )


def sampler_list(facts: Facts) -> Iterator[Finding]:
    """A shuffled order as a Python list: 39 bytes an index."""
    stack = facts.frames
    at = next(
        (frame for frame in stack if frame.file.endswith("sampler.py") or SAMPLES.search(frame.source)), None
    )
    found = rise(facts)
    windows = _windows(facts)
    fits = (
        windows is not None
        and found is not None
        and found.is_jump
        and math.isclose(found.bytes, windows * _INDEX_BYTES, rel_tol=0.1)
        and windows * _INDEX_BYTES > 64 << 20
    )
    if (at is None and not fits) or found is None or not is_worth(facts, found.bytes):
        return
    size = (
        f"{windows:,} windows x {_INDEX_BYTES} B = {format_bytes(windows * _INDEX_BYTES)}"
        if windows
        else None
    )
    yield Finding(
        rule="sampler_list",
        says="The shuffled order is a Python list: 39 bytes an index, in each worker that gets a copy",
        confidence="likely" if at else "possible",
        cause="sampler",
        evidence=all_of(
            f"{size} (run.json)" if size else None, stack_line(facts) if at else None, rise_line(facts)
        ),
        advice=(
            Advice("an order that is computed, not stored", "dataset.order=shuffled")
            if facts.is_ours
            else Advice("keep the order in a NumPy array, or compute it", "torch.randperm(n).numpy()"),
        ),
    )


def private_writes(facts: Facts) -> Iterator[Finding]:
    """Pages of a file, mapped private and written to, become anon memory one by one."""
    at = next((frame for frame in facts.frames if PRIVATE.search(frame.source)), None)
    written = script_lines(facts, PRIVATE)
    ratio = read_while_growing(facts)
    writes_to_it = _writes_to_a_private_map(facts)
    swap = _pages_that_turned_anon(facts)
    grew = last_rise(facts.series("anon_bytes")) or rise(facts)
    if grew is None or not is_worth(facts, grew.bytes) or not (at or written or is_worth(facts, swap)):
        return
    told = (
        f"anon rose by {format_bytes(swap)} as mapped file pages fell by the like (memory.ring)"
        if swap
        else None
    )
    writes = any(_ASSIGNS.match(frame.source) for frame in facts.frames[:3])
    read_too = ratio is not None and ratio > 0.2
    signs = [at is not None, bool(written), bool(swap), read_too, writes or writes_to_it]
    yield Finding(
        rule="private_writes",
        says="Pages of a file that is mapped privately were written to: each becomes anon memory",
        confidence="likely" if sum(signs) >= 2 else "possible",
        cause="private_writes",
        evidence=all_of(
            told,
            stack_line(facts) if at or writes else None,
            *(f"{line} (the script)" for line in written[:2]),
            rise_line(facts),
        ),
        advice=(
            Advice("map it read-only, and write into a copy of one batch", 'np.load(path, mmap_mode="r")'),
            *more_memory(facts),
        ),
    )


def _writes_to_a_private_map(facts: Facts) -> bool:
    """Whether the script assigns to elements of what it maps so."""
    found = script_text(facts)
    names = {match[1] for match in _MAPS_PRIVATELY.finditer(found[1])} if found else set()
    return any(re.search(rf"\b{name}\[[^=\n]+\] *[-+*/|&^]?=[^=]", found[1]) for name in names if found)


def _pages_that_turned_anon(facts: Facts) -> int:
    """By how much anon rose while mapped file pages fell by the like, with room to spare; else 0."""
    known = [s for s in facts.samples if s.tree_anon_bytes is not None and s.tree_file_bytes is not None]
    if len(known) < 3:
        return 0
    top = max(range(len(known)), key=lambda at: known[at].tree_file_bytes or 0)
    anon = (known[-1].tree_anon_bytes or 0) - (known[top].tree_anon_bytes or 0)
    gone = (known[top].tree_file_bytes or 0) - (known[-1].tree_file_bytes or 0)
    roomy = all((s.usage_bytes or 0) < 0.85 * (facts.limit_bytes or math.inf) for s in known[top:-3])
    return anon if anon > 0 and roomy and 0.6 * anon < gone < 1.5 * anon else 0


def _file_like(facts: Facts, amount: int, *, cut_short: bool) -> tuple[str, int, int] | None:
    """(file, its bytes, factor) whose multiple the amount is; of a load cut short by a kill, may be on the
    way to.
    """
    best = None
    for name, size in _files(facts):
        for factor in _FACTORS:
            if math.isclose(amount, size * factor, rel_tol=0.08):
                return name, size, factor
            if (
                cut_short
                and best is None
                and amount < size * factor <= 4 * amount
                and size * factor > 0.5 * (facts.limit_bytes or 0)
            ):
                best = (name, size, factor)
    return best


def _told_by_stage(facts: Facts) -> set[str]:
    """Files that the open stages name, and a run's own data while it opens them."""
    found = {str(mapping(record.get("facts")).get("path")) for record in facts.open_stages}
    if facts.stage_name in ("open_dataset", "load_dataset", "load"):
        found |= {name for name, _ in _files(facts)[:1]}
    return found


def _files(facts: Facts) -> list[tuple[str, int]]:
    """Files that the run read, as far as is told: its data, facts of its stages, words of its command."""
    found: list[tuple[str, int]] = []
    data = mapping(facts.evidence.run.get("data"))
    size = unsigned(data.get("file_bytes"))
    if size:
        found.append((str(data.get("path") or "the token file"), size))
    for record in facts.open_stages:
        told = mapping(record.get("facts"))
        size = unsigned(told.get("file_bytes")) or unsigned(told.get("bytes"))
        if size:
            found.append((str(told.get("path") or told.get("file") or "the file"), size))
    found += _sized(facts.command[1:50])
    return [(name, size) for name, size in found if size > 16 << 20]


def _sized(words: Iterable[str]) -> list[tuple[str, int]]:
    """Those that are files, and their bytes."""
    found = []
    for word in words:
        try:
            if Path(word).is_file():
                found.append((word, Path(word).stat().st_size))
        except (OSError, ValueError):
            continue
    return found


def _windows(facts: Facts) -> int | None:
    """Of an epoch."""
    tokens = unsigned(mapping(facts.evidence.run.get("data")).get("train_tokens"))
    seq_len = unsigned(facts.setting("training.seq_len"))
    return tokens // seq_len if tokens and seq_len else None
