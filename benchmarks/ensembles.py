"""Compare runs as an ensemble with the same runs one after another: 32d, several batches and vocabularies.

Processes take turns, each with the runs of one case: one steps them all together (`training.ensemble`), one
steps one after another, and one as many at a time as the probe has chosen for the case. A turn is some
steps of every run; the ratios are of the times of the same round. What `auto` does is `as chosen`.

    python benchmarks/ensembles.py
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import benchmark, in_turns, ratios, summaries
from benchmarks.processes import Turn, Turns, run

CASES = {
    "bytes, 1 x 128": (1, 257, 10), "bytes, 4 x 128": (4, 257, 10), "bytes, 8 x 128": (8, 257, 10),
    "bytes, 32 x 128": (32, 257, 2), "GPT-2 vocabulary, 4 x 128": (4, 50_257, 1),
}  # fmt: skip
"""Batch, vocabulary, steps a turn."""
GOALS = {"bytes, 4 x 128": 1.5, "bytes, 8 x 128": 1.25, "as chosen, every case": 1.0}
TOGETHER, ONE_BY_ONE, CHOSEN = "together", "one after another", "as chosen"


def config_of(place: Path, batch: int, vocab: int, members: int) -> Any:
    """An ensemble of 32d, with seeds of their own."""
    from conf.schema import Config, Dataset, Ensemble, Model, Tokenizer, Training

    return Config(
        model=Model(),
        dataset=Dataset(name="uniform", path=f"synthetic:uniform:{vocab}:8000000:0"),
        tokenizer=Tokenizer(name="ids"),
        training=Training(
            effective_batch=batch, max_steps=1500, eval_tokens=1, evals=1, checkpoint_every=10**9
        ),
        ensemble=Ensemble(seed=[str(seed) for seed in range(members)], together=members),
        runs_dir=str(place),
    )


def stepper(config: Any, size: int) -> Callable[[int], None]:
    """A function that takes steps of all runs, `size` at a time; 1: one after another."""
    import core
    from conf.between_keys.ensembles import members_of
    from training.attempt.begin import create_run
    from training.attempt.run_files import Status
    from training.ensemble.allocator import keep_freed_memory
    from training.ensemble.ensemble_loop import EnsembleLoop
    from training.interrupt import Interrupt
    from training.plan.run_plan import make_plan
    from training.run.company import Company
    from training.run.loop import train_until

    plans = [make_plan(member, tokenize=True) for member in members_of(config)]
    folders = [create_run(plan.config, str(plan.identity)) for plan in plans]

    def begun(group: list[Path]) -> list[Any]:
        company = Company(tuple(folder.name for folder in group), len(group), 0)
        return [core.begin(folder, Status(folder, 1), Interrupt(), None, company) for folder in group]

    if size == 1:
        started = [one for folder in folders for one in begun([folder])]

        def one_by_one(count: int) -> None:
            for one in started:
                train_until(one, one.run.step + count)

        return one_by_one
    keep_freed_memory()
    groups = [folders[at : at + size] for at in range(0, len(folders), size)]
    loops = [EnsembleLoop(begun(group), lambda member, error: None) for group in groups]

    def together(count: int) -> None:
        for loop in loops:
            loop._start_clock()
            for _ in range(count):
                loop._step()

    return together


def child(place: str, batch: str, vocab: str, members: str, steps: str, size: str) -> None:
    """A process that takes `steps` steps of each run in its turn."""
    logging.disable(logging.CRITICAL)
    turn = Turn()
    take = stepper(config_of(Path(place), int(batch), int(vocab), int(members)), int(size))
    take(3)
    while True:
        turn.end_step()
        take(int(steps))


def probed(place: str, batch: str, vocab: str, members: str) -> None:
    """Print what the probe chooses for a case."""
    from conf.between_keys.ensembles import members_of
    from training.ensemble.size_probe import probe

    config = config_of(Path(place), int(batch), int(vocab), int(members))
    choice = probe(next(iter(members_of(config))), int(members))
    speedups = {str(size): round(ratio, 3) for size, ratio in choice.speedups.items()}
    print(json.dumps({"together": choice.together, "speedups": speedups}))


def measure(batch: int, vocab: int, steps: int, members: int, rounds: int) -> dict[str, Any]:
    """Seconds a step of all runs of each way, their ratios by round, and what the probe says."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        base = [sys.executable, __file__]
        choice = run([*base, "--child", "probe", f"{name}/probed", batch, vocab, members]).json
        sizes = {TOGETHER: members, ONE_BY_ONE: 1, CHOSEN: choice["together"]}
        same = next((how for how in (TOGETHER, ONE_BY_ONE) if sizes[how] == sizes[CHOSEN]), None)
        if same:
            del sizes[CHOSEN]
        cases = {}
        for how, size in sizes.items():
            place = f"{name}/{how.replace(' ', '_')}"
            turns = Turns([*base, "--child", "step", place, batch, vocab, members, steps, size])
            stack.callback(turns.end)
            cases[how] = lambda turns=turns: turns.step()["step_s"] / steps
        found = in_turns(cases, rounds)
    found[CHOSEN] = found[same or CHOSEN]
    return {
        "batch": batch, "vocab": vocab, "seconds_a_step": summaries(found), "probe": choice,
        "speedup": ratios(found[ONE_BY_ONE], found[TOGETHER]),
        "speedup_as_chosen": ratios(found[ONE_BY_ONE], found[CHOSEN]),
    }  # fmt: skip


if __name__ == "__main__" and sys.argv[1:2] == ["--child"]:
    {"probe": probed, "step": child}[sys.argv[2]](*sys.argv[3:])
    sys.exit()


@benchmark(rounds=(9, 1), members=(8, 2), cases=(list(CASES), list(CASES)[:1]))
def measured(chosen: Any) -> Any:
    cases = {name: measure(*CASES[name], chosen.members, chosen.rounds) for name in chosen.cases}
    return {"members": chosen.members, "goals": GOALS, "cases": cases}
