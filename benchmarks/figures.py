"""Write docs/figures.md from the saved results, so that no figure there was copied by hand.

python benchmarks/figures.py
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import analysis_figures, loggers, lr_transfer, slurm_figures
from benchmarks.gpu import summary as gpu
from benchmarks.loading_parts import figures as loading
from benchmarks.memory_parts import explained
from benchmarks.memory_parts import figures as memory_room
from benchmarks.tokenizing_parts.figures import memory, models, restart, speed
from benchmarks.tokenizing_parts.page import goals, read, section, table
from benchmarks.training_parts import report as training_speed

PAGE = ROOT / "docs" / "figures.md"

HEAD = """# Measured figures

Written by `python benchmarks/figures.py` from the results in `benchmarks/results/`, each of which has
its script in `benchmarks/` and names its machine and versions. Peers ran in the same run as ours,
interleaved. The machine was shared and noisy: trust ratios, not absolutes. `make benchmarks`
measures everything again.
"""


def page() -> str:
    """The whole page; a script whose result is not saved has no section."""
    sections = (
        startup, training_speed.page, gpu.page, overhead, loggers.page, loss, checkpoints, ensembles,
        mup_coordinates, lr_transfer.page,
        memory_room.stages, memory_room.sampler,
        memory_room.estimate, memory_room.leaks, explained.explain, threads, kills, slurm_figures.soak,
        slurm_figures.submit, slurm_figures.status, analysis_figures.table_, analysis_figures.report,
        analysis_figures.fit, analysis_figures.coverage,
        loading.speed, loading.memory, loading.order, loading.resume, loading.limits,
        speed, memory, models, restart, tokenizing_kills,
    )  # fmt: skip
    written = []
    for write in sections:
        with suppress(FileNotFoundError):
            written.append(write())
    return "\n".join([HEAD, *written])


def startup() -> str:
    found = read("startup")
    commands = found["commands"]
    hydra, torch = commands["import hydra"]["median"], commands["import torch"]["median"]
    rows = [
        (name, f"{value['median']:.3f}", f"{value['median'] / hydra:.2f}", f"{value['median'] / torch:.2f}")
        for name, value in commands.items()
    ]  # fmt: skip
    wanted = goals(
        (name, f"{commands[name]['median']:.3f} s", f"under {goal:g} s", commands[name]["median"] < goal)
        for name, goal in found["goals_s"].items()
    )
    times = table(("whole process", "s, median", "/ import hydra", "/ import torch"), rows)
    return section("How soon a command answers", "startup", found, times, wanted)


def overhead() -> str:
    found = read("overhead")
    rows, wanted = [], []
    # Saved before there was a second case: one, of which it is not known how long it waited.
    cases = found.get("cases") or [{"case": "64d, GPT-2 vocabulary", **found, "goal": 0.005}]
    for case in cases:
        share, waiting = case["outside_the_step_share"], case.get("waiting_for_batches_share")
        ratio = case["harness_over_bare_loop"]
        low, high = ratio["interval_95"]
        waited = f"{waiting['median']:.2%} (at most {waiting['max']:.2%})" if waiting else ""
        rows.append(
            (case["case"], f"{share['median']:.2%} ({share['min']:.2%} to {share['max']:.2%})",
             waited, f"{ratio['mean']:.3f} (95%: {low:.3f} to {high:.3f})")
        )  # fmt: skip
        median, goal = share["median"], case["goal"]
        wanted.append((f"{case['case']}, outside", f"{median:.2%}", f"at most {goal:.1%}", median <= goal))
    text = (
        f"{found['what'][0].upper()}{found['what'][1:]}. By timers inside the loop: the time outside the "
        "step, and what a step waits until the loader has given it its batch; and a run over a bare loop of "
        "the same model, whose difference is within the noise of the machine."
    )
    header = ("", "outside the step / step", "waiting for the batch / step", "a run / a bare loop")
    both = f"{table(header, rows)}\n\n{goals(wanted)}"
    return section("What the harness costs", "overhead", found, text, both)


def loss() -> str:
    found = read("loss")
    setting = found["setting"]
    rows = [
        (row["model"], setting["kinds"][row["kind"]], row["allocator"], f"{row['loss_ratio']:.2f}",
         f"{row['step_ratio']:.2f}", f"{row['above_start_mb']:,}", f"{row['above_start_ratio']:.3f}")
        for row in found["rows"]
    ]  # fmt: skip
    text = (
        f"Batch {setting['batch']} x {setting['seq_len']}, {setting['vocab_size']:,} ids, "
        f"{setting['dtype']}, {setting['threads']} threads. Ratios are to ordinary "
        "cross-entropy with the allocator as it is; memory is the peak above "
        "what the process had before. `tuned` sets "
        + " ".join(f"`{name}={value}`" for name, value in setting["tuned"].items())
        + "."
    )
    header = ("model", "loss", "allocator", "time of the loss", "time of the step", "memory, MB", "memory")
    return section("The loss", "loss", found, text, table(header, rows))


def mup_coordinates() -> str:
    found = read("mup_coordinates")
    last = max(row["step"] for row in found["rows"])
    slopes = {(row["init"], row["place"]): row["slope"] for row in found["rows"] if row["step"] == last}
    places = list(dict.fromkeys(place for _, place in slopes))
    rows = [
        (place.replace("_", "-"), f"{slopes['default', place]:.2f}", f"{slopes['mup', place]:.2f}")
        for place in places
    ]
    widths = list(found["rows"][0]["change"])
    intro = (
        f"How much activations changed in {last} steps with one learning rate ({found['lr']:g}), by width "
        f"from {widths[0]} to {widths[-1]}, {found['layers']} blocks, bytes, medians of {found['seeds']} "
        "seeds: the slope of log size over log width; 0 is flat.\n\n"
        "![Changes by width](images/mup_coordinates.png)"
    )
    return section(
        "Does a learning rate do the same at every width", "mup_coordinates", found, intro,
        table(("place", "standard", "`arch.init=mup`"), rows),
    )  # fmt: skip


def checkpoints() -> str:
    found = read("checkpoints")
    rows = [(name, f"{value['median'] * 1000:.0f}") for name, value in found["seconds"].items()]
    ratios = found["ratios"]
    text = (
        f"A state of {found['bytes'] / 1e6:,.0f} MB: {found['what']}. The stall is "
        f"{ratios['stall_over_torch_save']['median']:.2f} of torch.save. Ratios by round, their medians; the "
        "foreground includes checksums, safetensors an fsync."
    )
    wanted = goals(
        (name.replace("_", " "), f"{ratios[name]['median']:.2f}", f"at most {goal:g}",
         ratios[name]["median"] <= goal)
        for name, goal in found["goals"].items()
    )  # fmt: skip
    both = f"{table(('', 'ms, median'), rows)}\n\n{wanted}"
    return section("Checkpoints", "checkpoints", found, text, both)


def ensembles() -> str:
    found = read("ensembles")
    rows, wanted = [], []
    for name, case in found["cases"].items():
        seconds, probe = case["seconds_a_step"], case["probe"]
        goal, reached = found["goals"].get(name), case["speedup"]["median"]
        if goal is not None:
            wanted.append((name, f"{reached:.2f}", f"at least {goal:g}", reached >= goal))
        together, ratio, chosen = probe["together"], case["speedup"], case["speedup_as_chosen"]["median"]
        rows.append(
            (
                name,
                f"{seconds['one after another']['median'] * 1000:,.0f}",
                f"{seconds['together']['median'] * 1000:,.0f}",
                f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})",
                "one after another" if together == 1 else f"{together} at a time",
                f"{chosen:.2f}",
            )
        )
    text = (
        f"{found['members']} runs of 32d, a step of all, one after another and all as one program "
        "([ensembles.md](ensembles.md)); ratios are medians over rounds. The probe chooses at the start "
        "of an ensemble how many go at a time, so that it is not slower than one after another."
    )
    header = ("step of each", "one by one, ms", "together, ms", "times as fast", "the probe", "as it chose")
    least = min(case["speedup_as_chosen"]["median"] for case in found["cases"].values())
    goal = found["goals"]["as chosen, every case"]
    wanted.append(("as chosen, every case", f"{least:.2f}", f"at least {goal:g}", least >= goal))
    return section("Ensembles", "ensembles", found, text, f"{table(header, rows)}\n\n{goals(wanted)}")


def threads() -> str:
    found = read("threads")
    settings = list(found["cases"][0]["step_s"])
    rows = [
        (
            f"{case['vocabulary']:,} ids, {case['place']}",
            *(
                f"{case['step_s'][setting]['median'] * 1000:.0f} ms ({case['over_chosen'][setting]:.2f})"
                for setting in settings
            ),
        )
        for case in found["cases"]
    ]
    text = (
        f"{found['what'][0].upper()}{found['what'][1:]}: medians, and in brackets the median ratio to what a "
        "run chooses in the same round ([training.md](training.md)). Numbers are the same either way."
    )
    return section(
        "How threads wait", "threads", found, text, table(("vocabulary, machine", *settings), rows)
    )


def kills() -> str:
    found = read("soak_kills")
    at_point, at_random = found["kills"]["at a point"], found["kills"]["at a random moment"]
    text = (
        f"{at_point + at_random} SIGKILLs ({at_point} at named points such as before a rename, {at_random} "
        f"at random moments) over {found['runs']} runs: {found['differences']} differences. {found['what']}."
    )
    return section("Kills", "soak_kills", found, text, "", script="tests/test_kills.py")


def tokenizing_kills() -> str:
    found = read("soak_tokenizing")
    text = (
        f"{found['kills']} SIGKILLs at random moments of {found['what']}: {found['sets']} sets, "
        f"{found['differences']} differences in their bytes."
    )
    script = "tests/data_loading/pretokenizer/test_resume.py"
    return section("Kills of the pretokenizer", "soak_tokenizing", found, text, "", script=script)


if __name__ == "__main__":
    from benchmarks.pictures import draw

    PAGE.write_text(page(), encoding="utf-8")
    draw()
    print(f"wrote {PAGE.relative_to(ROOT)} and its pictures")
