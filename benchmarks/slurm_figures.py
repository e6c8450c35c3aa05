"""The Slurm room's part of docs/figures.md."""

from __future__ import annotations

from benchmarks.tokenizing_parts.page import goals, read, section, table


def submit() -> str:
    """How long it takes to submit runs."""
    found = read("slurm_submit")
    numbers = list(found["runs"]["ours"])
    rows = []
    for who, cases in found["runs"].items():
        for timed, words in (
            ("from_plan_s", f"{who}, from the checked plan"),
            ("command_s", f"{who}, whole command"),
        ):
            if timed in cases[numbers[0]]:
                rows.append((words, *(f"{cases[n][timed]['median']:.2f}" for n in numbers)))
        calls = [cases[n]["sbatch_calls"] for n in numbers]
        rows.append((f"{who}, calls of sbatch", *map(str, calls)))
    text = (
        f"Seconds to submit so many runs to a real {found['slurm']}, whose jobs are held. Ours checks every "
        "run, copies the code, makes a folder for each run and asks sbatch once whether it would take the "
        "array; hydra-submitit-launcher is timed until its last sbatch has answered."
    )
    taken, (what, goal) = (
        found["runs"]["ours"]["100"]["from_plan_s"]["median"],
        next(iter(found["goal_s"].items())),
    )
    wanted = goals([(what, f"{taken:.2f} s", f"at most {goal:g} s", taken <= goal)])
    return section(
        "Submitting",
        "slurm_submit",
        found,
        text,
        "\n\n".join([table(("", *(f"{n} run{'s' * (n != '1')}" for n in numbers)), rows), wanted]),
    )


def status() -> str:
    """How soon it is known what became of runs."""
    found = read("slurm_status")
    whole, kill = found["status"], found.get("kill")
    calls = f"{whole['calls']['sacct']} call of sacct, {whole['calls']['squeue']} of squeue"
    rows = [
        (
            f"`python -m slurm status` of {whole['runs']:,} runs, whole process",
            f"{whole['seconds']['median']:.2f}",
            calls,
        )
    ]
    if kill is not None:
        old = f"the job is {kill['age_s']} s old: submitit asks the less often the older it is"
        rows += [
            (
                "an OOM kill until `status` says `oom`",
                f"{kill['status_s']['median']:.2f}",
                f"{kill['kills']} kills",
            ),
            ("until submitit's `results()` raises", f"{kill['submitit_results_s']['median']:.1f}", old),
        ]
    text = (
        "Runs as they lie on the disk, a tenth of them running with a full ring; sacct and squeue answer at "
        "once."
    )
    taken, goal = whole["seconds"]["median"], whole["goal_s"]
    wanted = goals(
        [(f"status of {whole['runs']:,} runs", f"{taken:.2f} s", f"at most {goal:g} s", taken <= goal)]
    )
    both = f"{table(('', 's, median', ''), rows)}\n\n{wanted}"
    return section("What became of them", "slurm_status", found, text, both)


def soak() -> str:
    """The cases of tests/slurm, again and again."""
    found = read("soak_slurm")
    text = (
        f"{found['what'][0].upper()}{found['what'][1:]}. {found['rounds']} rounds on {found['clusters']} "
        f"clusters side by side, {found['minutes']:.0f} minutes in {len(found['sittings'])} sitting(s)."
    )
    rows = [(case, f"{counts['right']} of {found['rounds']}") for case, counts in found["cases"].items()]
    wrong = [f"- Wrong: {one['case']}: {one.get('why') or one['told'][:200]}." for one in found["wrong"]]
    body = "\n".join([table(("case", "right"), rows), *(["", *wrong] if wrong else [])])
    script = "tests/slurm/test_real_soak.py"
    return section("What a cluster does to jobs", "soak_slurm", found, text, body, script=script)
