"""What the memory room costs and how right it is, as sections of docs/figures.md."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from benchmarks.tokenizing_parts.page import read, section, table


def stages() -> str:
    found = read("memory_stage")
    names = list(found["cases"][0]["microseconds"])
    rows = [
        (
            str(case["processes"]),
            f"{case['mapped_mb']} MB",
            *(f"{case['microseconds'][name]['median']:,.0f}" for name in names),
        )
        for case in found["cases"]
    ]
    goals = found["goals_us_at_9_processes"]
    text = (
        f"Microseconds a call, median. Goals at 9 processes: snapshot {goals['snapshot']}, stage "
        f"{goals['stage']}. A stage is two snapshots and two records on disk."
    )
    header = ("processes", "mapped", *(name.replace("_", " ") for name in names))
    return section("What measuring memory costs", "memory_stage", found, text, table(header, rows))


def sampler() -> str:
    found = read("memory_sampler")
    goals = found["goals_at_9_processes"]
    rows = [
        (
            str(case["processes"]),
            f"{case['share_of_a_core']['median']:.2%}",
            f"{case['microseconds_a_sample']['median']:,.0f}",
            f"{case['rss_mb']['median']:.1f}",
            f"{case['own_anon_mb']['median']:.1f}",
        )
        for case in found["cases"]
    ]
    text = (
        f"{found['what'][0].upper()}{found['what'][1:]}, beside a job with {found['mapped_gb']:g} GB mapped. "
        f"Goals at 9 processes: {goals['share_of_a_core']:.1%} of a core, {goals['rss_mb']:g} MB. An "
        f"interpreter that only wakes once a second: {found['bare_share_of_a_core']['median']:.3%}."
    )
    header = ("processes", "of a core", "us a sample", "RSS, MB", "of which its own, MB")
    return section("What the sampler costs", "memory_sampler", found, text, table(header, rows))


def estimate() -> str:
    found = read("memory_estimate")
    goals = found["goals"]
    rows = [
        (
            run["model"],
            str(run["micro_batch"]),
            _kind(run),
            f"{run['told_mb']:,}",
            f"{run['measured_mb']:,}",
            f"{run['error']:+.1%}",
        )
        for run in found["runs"]
    ]
    text = (
        "The estimate of a run's own memory by `plan=true`, and the peak that it then held. "
        "Vocabulary of 50,257; "
        "configurations that the constants were not measured on. Goals: eager within "
        f"{goals['eager']:.0%} and never more than {goals['below']:.0%} below, compiled within "
        f"{goals['compiled']:.0%}. A plan of 100 runs took {found['plan_of_100_runs_s']} s."
    )
    with suppress(FileNotFoundError):
        errors = [run["error"] for run in read("memory_estimate_cuda")["runs"]]
        text += (
            f" With the CUDA build of torch, without a GPU, {len(errors)} of these configurations are "
            f"estimated with errors from {min(errors):+.1%} to {max(errors):+.1%}."
        )
    header = ("model", "micro-batch", "how", "told, MB", "measured, MB", "error")
    return section("What a run is told to need", "memory_estimate", found, text, table(header, rows))


def _kind(run: dict[str, object]) -> str:
    more = {
        "compile": "compiled",
        "activation_checkpointing": "checkpointed",
        "effective_batch": "accumulated",
    }
    if run.get("compiler_cache"):
        more["compile"] = f"compiled, cache {run['compiler_cache']}"
    if run.get("least_measured_mb"):
        more["least_measured_mb"] = f"least of several {run['least_measured_mb']:,} MB"
    small = [f"vocabulary of {run['vocabulary']}"] if run.get("vocabulary") else []
    first = [str(run["arch"])] if run.get("arch") else []
    if run.get("members"):
        first.append(f"ensemble of {run['members']}")
    first.append(f"{run['loss']} loss")
    return ", ".join([*first, *small, *(words for key, words in more.items() if run.get(key))])


def _fresh_kinds(found: dict[str, Any]) -> str:
    """False alarms of ours in kinds of noise that were written after the detector; "" in a result without."""
    alarms = [
        f"{kind.replace('_', ' ')} {next(iter(of_methods.values()))['false_alarms']:.0%}"
        for kind, of_methods in found.get("fresh_by_kind", {}).items()
    ]
    return f" Written before LeakWatch's last changes: {', '.join(alarms)}." if alarms else ""


def leaks() -> str:
    found = read("memory_leaks")
    rows = [
        (of, name, str(one["traces"]), f"{one['false_alarms']:.1%}", f"{one['leak_found_within_200']:.0%}",
         str(one["leak_median_steps"]), str(one["leak_p90_steps"]), str(one["late_leak_median_steps"]))
        for of, measured in (
            ("simulated", found["simulated"]), ("real runs, anon", found["real_anon"]),
            ("real runs, RSS", found["real_rss"]),
        )
        for name, one in measured.items()
    ]  # fmt: skip
    text = (
        f"{found['what'][0].upper()}{found['what'][1:]}. Goals: at most 5% of clean runs called leaks, 1 MB "
        f"a step found within 200 steps. Late: a leak that begins in the middle.{_fresh_kinds(found)}\n\n"
        "![Share of clean runs called a leak, by kind of noise](images/memory-leaks.png)"
    )
    header = ("traces", "method", "n", "false alarms", "found in 200", "median steps", "90%", "late, median")
    return section("Leaks", "memory_leaks", found, text, table(header, rows))
