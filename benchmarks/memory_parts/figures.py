"""What the memory room costs and how right it is, as sections of docs/figures.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from benchmarks.tokenizing_parts.page import Goal, goals, read, section, table


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
    text = "Microseconds a call, median. A stage is two snapshots and two records on disk."
    header = ("processes", "mapped", *(name.replace("_", " ") for name in names))
    of_9 = [case["microseconds"] for case in found["cases"] if case["processes"] == 9]
    worst = {name: max(of_one[name]["median"] for of_one in of_9) for name in names}
    wanted = goals(
        (f"{name} of 9 processes", f"{worst[name]:,.0f} us", f"at most {goal:,} us", worst[name] <= goal)
        for name, goal in found["goals_us_at_9_processes"].items()
    )
    both = f"{table(header, rows)}\n\n{wanted}"
    return section("What measuring memory costs", "memory_stage", found, text, both)


def sampler() -> str:
    found = read("memory_sampler")
    goal = found["goals_at_9_processes"]
    of_9 = [case for case in found["cases"] if case["processes"] == 9]
    share = max(case["share_of_a_core"]["median"] for case in of_9)
    rss = max(case["rss_mb"]["median"] for case in of_9)
    wanted = goals(
        [
            ("9 processes, of a core", f"{share:.2%}", f"at most {goal['share_of_a_core']:.1%}",
             share <= goal["share_of_a_core"]),
            ("9 processes, RSS", f"{rss:.1f} MB", f"at most {goal['rss_mb']:g} MB", rss <= goal["rss_mb"]),
        ]
    )  # fmt: skip
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
        "An interpreter that only wakes once a second: "
        f"{found['bare_share_of_a_core']['median']:.3%}."
    )
    header = ("processes", "of a core", "us a sample", "RSS, MB", "of which its own, MB")
    return section(
        "What the sampler costs", "memory_sampler", found, text, f"{table(header, rows)}\n\n{wanted}"
    )


def estimate() -> str:
    found = read("memory_estimate")
    goal = found["goals"]
    eager, compiled = ([run["error"] for run in found["runs"] if bool(run.get("compile")) == is_compiled]
                       for is_compiled in (False, True))  # fmt: skip
    wanted = goals(
        [
            ("eager, the largest above", f"{max(eager):+.1%}", f"at most {goal['eager']:+.0%}",
             max(eager) <= goal["eager"]),
            ("eager, the largest below", f"{min(eager):+.1%}", f"at least -{goal['below']:.0%}",
             min(eager) >= -goal["below"]),
            ("compiled, the largest", f"{max(compiled, key=abs):+.1%}", f"within {goal['compiled']:.0%}",
             abs(max(compiled, key=abs)) <= goal["compiled"]),
        ]
    )  # fmt: skip
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
        "configurations that the constants were not measured on. "
        f"A plan of 100 runs took {found['plan_of_100_runs_s']} s."
    )
    with suppress(FileNotFoundError):
        errors = [run["error"] for run in read("memory_estimate_cuda")["runs"]]
        text += (
            f" With the CUDA build of torch, without a GPU, {len(errors)} of these configurations are "
            f"estimated with errors from {min(errors):+.1%} to {max(errors):+.1%}."
        )
    header = ("model", "micro-batch", "how", "told, MB", "measured, MB", "error")
    return section(
        "What a run is told to need", "memory_estimate", found, text, f"{table(header, rows)}\n\n{wanted}"
    )


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


def _leak_goals(found: dict[str, Any]) -> Iterator[Goal]:
    """False alarms of ours in each kind of noise, then how many leaks are found in time."""
    most, within = found["goals"]["false_alarms"], found["goals"]["found_within_steps"]
    groups = {
        "by_kind": "kinds it was made for",
        "also_seen_by_kind": "kinds seen while it was made",
        "fresh_by_kind": "kinds written before its last changes",
    }
    for key, words in groups.items():
        shares = {kind: next(iter(of.values()))["false_alarms"] for kind, of in found.get(key, {}).items()}
        above = [kind.replace("_", " ") for kind, share in shares.items() if share > most]
        named = f" ({', '.join(above)})" if above else ""
        yield (f"false alarms, the most of {len(shares)} {words}", f"{max(shares.values()):.0%}{named}",
               f"at most {most:.0%}", not above)  # fmt: skip
    for key, words in (("simulated", "simulated"), ("real_anon", "real runs, anon")):
        if not found[key]:  # a short trial
            continue
        share = next(iter(found[key].values()))[f"leak_found_within_{within}"]
        yield (f"leaks found within {within} steps, {words}", f"{share:.1%}", "100%", share == 1)


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
        f"{found['what'][0].upper()}{found['what'][1:]}. "
        "Late: a leak that begins in the middle.\n\n"
        "![Share of clean runs called a leak, by kind of noise](images/memory-leaks.png)"
    )
    header = ("traces", "method", "n", "false alarms", "found in 200", "median steps", "90%", "late, median")
    return section(
        "Leaks", "memory_leaks", found, text, f"{table(header, rows)}\n\n{goals(_leak_goals(found))}"
    )
