"""The report as lines of a terminal."""

from __future__ import annotations

from experiment_utils.quantities import format_bytes
from memory.record.stage_line import duration
from memory.report.ending import ending
from memory.report.history import Attempt, History, Track
from memory.report.html import how_it_ended, peak_rss, title_of
from memory.report.processes import process_rows
from memory.report.text import amount, change, sparkline, table

PROCESSES = 10


def lines_of(history: History, *, attempt: Attempt | None = None) -> list[str]:
    """attempt: the last one by default."""
    attempt = history.last if attempt is None else attempt
    end = ending(history.evidence, attempt, is_last=attempt is history.last)
    number = f", attempt {attempt.number}" if len(history.attempts) > 1 or attempt.number > 1 else ""
    lines = [f"{history.name}{number}: {end.words}, {duration(attempt.lasted_s)}"]
    several = len(attempt.tracks) > 1
    lines += _highest(attempt.fullest, title_of(attempt.fullest) if several else "")
    for track in attempt.tracks:
        if track.rows:
            lines += ["", f"By stage{f', {title_of(track)}' if several else ''}", *_stages(track)]
    drawn = {id(track): track for track in (attempt.main, attempt.fullest)}.values()
    for track in drawn:
        lines += ["", f"Over time{f', {title_of(track)}' if several else ''}", *_over_time(track)]
    processes = process_rows(attempt.main.moments)
    if processes:
        told = table(
            ("process", "pid", "at first", "highest", "at last", "change"),
            [
                (
                    row.name + (" (main)" if row.is_main else ""),
                    str(row.pid),
                    amount(row.first_bytes),
                    amount(row.highest_bytes),
                    amount(row.last_bytes),
                    change(row.grown_bytes),
                )
                for row in processes[:PROCESSES]
            ],
        )
        more = len(processes) - PROCESSES
        of_rank = f", {title_of(attempt.main)}" if several else ""
        lines += ["", f"By process, anon{of_rank}", *told, *([f"  and {more} more"] if more > 0 else [])]
    if attempt is history.last and len(history.attempts) > 1:
        lines += ["", "Earlier attempts", *_earlier(history)]
    if history.notes:
        lines += ["", "Notes", *(f"  {note}" for note in history.notes)]
    return lines


def _highest(track: Track, of_rank: str) -> list[str]:
    highest, limit = track.highest, track.limit_bytes
    if highest is None or highest.u is None:
        return ["  unreclaimable memory is not known on this system; resident memory is told"]
    of = ""
    if limit:
        whose = "of the host's " if track.limit_at == "host" else "of "
        of = f" {whose}{format_bytes(limit)} ({100 * highest.u / limit:.0f}%)"
    parts = {
        "main": highest.main,
        "workers": highest.workers,
        "other": highest.other,
        "shared": highest.shmem,
        "kernel": highest.kernel,
    }
    told = ", ".join(f"{name} {format_bytes(n)}" for name, n in parts.items() if n)
    stage = track.stage_at(highest.at_s)
    when = ", ".join(
        filter(None, [f"after {duration(highest.at_s)}", f"in {stage}" if stage else "", of_rank])
    )
    return [f"  highest U {format_bytes(highest.u)}{of} {when}", f"  of it {told}"]


def _stages(track: Track) -> list[str]:
    has_gpu = any(row.gpu_peak_bytes is not None for row in track.rows)
    titles = ["stage", "times", "seconds", "before", "highest", "after", "change", "peak rss"]
    return table(
        (*titles, *(["GPU peak"] if has_gpu else []), ""),
        [
            (
                "  " * row.depth + row.name + (f" ({row.thread})" if row.thread else ""),
                f"{row.times:,}",
                f"{row.seconds:.2f}" if row.seconds or row.ended else "-",
                amount(row.before_bytes),
                amount(row.highest_bytes),
                amount(row.unreclaimable_bytes),
                change(row.change_bytes),
                amount(peak_rss(row)),
                *([amount(row.gpu_peak_bytes)] if has_gpu else []),
                how_it_ended(row),
            )
            for row in track.rows
        ],
    )


def _over_time(track: Track) -> list[str]:
    highest = track.highest
    name, values = "U", [(moment.at_s, moment.u) for moment in track.moments]
    if highest is None:
        name, values = "rss", [(moment.at_s, moment.rss) for moment in track.moments]
    top = max((value for _, value in values if value is not None), default=0)
    limit = track.limit_bytes
    scale = limit if limit and limit <= 2 * top else top
    of = "the limit" if limit and scale == limit else "the highest"
    line = sparkline(values, scale)
    lasted = duration(track.lasted_s)
    return [f"  {name} {line} {lasted}", f"  a full block is {of}, {format_bytes(scale)}"]


def _earlier(history: History) -> list[str]:
    rows = []
    for attempt in history.attempts[:-1]:
        highest = attempt.main.highest
        end = ending(history.evidence, attempt, is_last=False)
        rows.append(
            (
                str(attempt.number),
                duration(attempt.lasted_s),
                amount(None if highest is None else highest.u),
                end.words,
            )
        )
    return table(("attempt", "time", "highest U", "ended"), rows)
