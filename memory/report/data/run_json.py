"""The numbers of a report as plain values: the output of `report --json`."""

from __future__ import annotations

from typing import Any

from memory.report.data.ending import ending
from memory.report.data.history import Attempt, History, Track
from memory.report.data.processes import process_rows
from memory.report.data.stage_rows import StageRow

VERSION = 1


def run_json(history: History) -> dict[str, Any]:
    """Amounts in bytes, times in seconds since the attempt began; null is unknown."""
    return {
        "version": VERSION,
        "run": history.name,
        "folder": str(history.evidence.path),
        "attempts": [_attempt(history, attempt) for attempt in history.attempts],
        "notes": history.notes,
    }


def _attempt(history: History, attempt: Attempt) -> dict[str, Any]:
    end = ending(history, attempt)
    return {
        "attempt": attempt.number, "ended": end.words, "ended_badly": end.is_bad, "seconds": attempt.lasted_s,
        "tracks": [_track(track) for track in attempt.tracks],
    }  # fmt: skip


def _track(track: Track) -> dict[str, Any]:
    highest = track.highest
    peak = None if highest is None else {
        "unreclaimable_bytes": highest.u, "main_anon_bytes": highest.main,
        "workers_anon_bytes": highest.workers, "other_bytes": highest.other,
        "shmem_bytes": highest.shmem, "kernel_bytes": highest.kernel,
        "cache_bytes": highest.cache, "at_s": highest.at_s, "stage": track.stage_at(highest.at_s),
        "is_sampled": highest.is_sample,
    }  # fmt: skip
    return {
        "rank": track.rank, "scope": track.scope, "limit_bytes": track.limit_bytes,
        "limit_at": track.limit_at, "records": track.records, "samples": track.samples, "peak": peak,
        "stages": [_stage(row) for row in track.rows],
        "processes": [
            {
                "pid": row.pid, "name": row.name, "is_main": row.is_main, "first_anon_bytes": row.first_bytes,
                "last_anon_bytes": row.last_bytes, "highest_anon_bytes": row.highest_bytes,
                "first_s": row.first_s, "last_s": row.last_s,
            }
            for row in process_rows(track.moments)
        ],
    }  # fmt: skip


def _stage(row: StageRow) -> dict[str, Any]:
    return {
        "stage": row.name, "path": list(row.path), "depth": row.depth, "thread": row.thread,
        "times": row.times, "seconds": row.seconds, "before_bytes": row.before_bytes,
        "highest_bytes": row.highest_bytes, "after_bytes": row.unreclaimable_bytes,
        "change_bytes": row.change_bytes, "anon_change_bytes": row.anon_change_bytes,
        "peak_rss_bytes": row.peak_bytes, "rss_inside_bytes": row.rss_inside_bytes,
        "gpu_peak_bytes": row.gpu_peak_bytes, "ended": row.ended, "error": row.error,
    }  # fmt: skip
