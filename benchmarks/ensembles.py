"""Runs as an ensemble against the same runs one after another: 32d, at several batches and vocabularies.

Processes take turns in every round, each with the runs of one case: one steps them all together
(`training.ensemble`), one one after another, with the ordinary step of `core.train`, and one as many at a
time as the probe has chosen for the case, where that is neither. A round is so many steps of every run; the
ratios are of the times of the same round. What `auto` does is `as chosen`.

    python benchmarks/ensembles.py [--members 8] [--steps 10] [--rounds 9] [--cases 4x128 8x128]
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary

CASES = {
    "bytes, 1 x 128": (1, 257),
    "bytes, 4 x 128": (4, 257),
    "bytes, 8 x 128": (8, 257),
    "bytes, 32 x 128": (32, 257),
    "GPT-2 vocabulary, 4 x 128": (4, 50_257),
}
GOALS = {"bytes, 4 x 128": 1.5, "bytes, 8 x 128": 1.25}
NEVER_SLOWER = 1.0
"""Of what the probe has chosen, in every case."""
TOGETHER, ONE_BY_ONE, CHOSEN = "together", "one after another", "as chosen"


def folders_of(place: Path, batch: int, vocab: int, members: int) -> list[Path]:
    """The folders of the runs: 32d, of seeds and learning rates of their own."""
    from conf.ensembles import members_of
    from conf.schema import Config, Dataset, Ensemble, Model, Tokenizer, Training
    from training.attempt.begin import create_run
    from training.plan import make_plan

    tokens = 8_000_000
    config = Config(
        model=Model(),
        dataset=Dataset(name="uniform", path=f"synthetic:uniform:{vocab}:{tokens}:0"),
        tokenizer=Tokenizer(name="ids"),
        training=Training(
            effective_batch=batch, max_steps=1500, eval_tokens=1, evals=1, checkpoint_every=10**9
        ),
        ensemble=Ensemble(seed=[str(seed) for seed in range(members)], together=members),
        runs_dir=str(place),
    )
    found = []
    for member in members_of(config):
        plan = make_plan(member, tokenize=True)
        assert plan.identity is not None
        found.append(create_run(plan.config, plan.identity))
    return found


def begun(folders: list[Path], together: int) -> list[Any]:
    import core
    from training.attempt.run_files import Status
    from training.ensemble.company import Company
    from training.interrupt import Interrupt

    company = Company(tuple(folder.name for folder in folders), together, 0)
    return [core.begin(folder, Status(folder, 1), Interrupt(), None, company) for folder in folders]


def steps_together(folders: list[Path], size: int) -> Callable[[int], None]:
    """So many at a time, one group after another."""
    from training.ensemble.allocator import keep_freed_memory
    from training.ensemble.together import EnsembleLoop

    keep_freed_memory()
    groups = [folders[at : at + size] for at in range(0, len(folders), size)]
    loops = [EnsembleLoop(begun(group, len(group)), lambda member, error: None) for group in groups]

    def take(count: int) -> None:
        for loop in loops:
            loop._start_clock()
            for _ in range(count):
                loop._step()

    return take


def steps_one_by_one(folders: list[Path]) -> Callable[[int], None]:
    from training.loop import train_until

    started = begun(folders, 1)

    def take(count: int) -> None:
        for one in started:
            until = one.run.step + count
            train_until(one, until)

    return take


def child(size: int, folders: list[Path], line: Connection) -> None:
    """A process that takes as many steps of each run as it is told, and answers with the seconds.

    size: runs at a time; 1: one after another.
    """
    logging.disable(logging.CRITICAL)
    take = steps_one_by_one(folders) if size == 1 else steps_together(folders, size)
    take(3)
    line.send(0.0)
    while count := line.recv():
        started = time.perf_counter()
        take(count)
        line.send(time.perf_counter() - started)


def measure(batch: int, vocab: int, members: int, steps: int, rounds: int) -> dict[str, Any]:
    """Seconds a step of all runs of each way, their ratios by round, and what the probe says."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        folders = folders_of(Path(place) / "probed", batch, vocab, members)
        ours, theirs = context.Pipe()
        chosen = context.Process(target=_probe, args=(folders[0], members, theirs))
        chosen.start()
        choice = ours.recv()
        chosen.join()
        sizes = {TOGETHER: members, ONE_BY_ONE: 1}
        same = next((how for how, size in sizes.items() if size == choice["together"]), None)
        if same is None:
            sizes[CHOSEN] = choice["together"]
        lines: dict[str, Connection] = {}
        processes = []
        for how, size in sizes.items():
            folders = folders_of(Path(place) / how.replace(" ", "_"), batch, vocab, members)
            lines[how], theirs = context.Pipe()
            processes.append(context.Process(target=child, args=(size, folders, theirs), daemon=True))
            processes[-1].start()
            lines[how].recv()
        found: dict[str, list[float]] = {how: [] for how in lines}
        for number in range(rounds):
            for how in list(lines)[:: 1 if number % 2 else -1]:
                lines[how].send(steps)
                found[how].append(lines[how].recv() / steps)
        for how, process in zip(lines, processes, strict=True):
            lines[how].send(0)
            process.join()
    found[CHOSEN] = found[same or CHOSEN]

    def over_one_by_one(how: str) -> dict[str, float]:
        return summary([alone / own for alone, own in zip(found[ONE_BY_ONE], found[how], strict=True)])

    return {
        "batch": batch,
        "vocab": vocab,
        "seconds_a_step": {how: summary(seconds) for how, seconds in found.items()},
        "speedup": over_one_by_one(TOGETHER),
        "speedup_as_chosen": over_one_by_one(CHOSEN),
        "probe": choice,
    }


def _probe(folder: Path, members: int, line: Connection) -> None:
    from conf.check import to_config
    from training.attempt.run_files import read_config
    from training.ensemble.probe import probe

    choice = probe(to_config(read_config(folder)), members)
    speedups = {str(size): round(ratio, 3) for size, ratio in choice.speedups.items()}
    line.send({"together": choice.together, "speedups": speedups, "words": choice.words(members)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cases", nargs="*", default=[], help="part of a case's name: 4x128")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    wanted = {
        name: case
        for name, case in CASES.items()
        if not options.cases or any(part in name.replace(" ", "") for part in options.cases)
    }
    cases = {}
    for name, (batch, vocab) in wanted.items():
        fewer = 1 if vocab > 1000 else 2 if batch > 8 else options.steps
        cases[name] = measure(batch, vocab, options.members, fewer, options.rounds)
        case = cases[name]
        print(name, case["speedup"], case["speedup_as_chosen"], case["probe"]["words"], flush=True)
    if not options.dry:
        goals = {**GOALS, "as chosen, every case": NEVER_SLOWER}
        save("ensembles", {"members": options.members, "goals": goals, "cases": cases})


if __name__ == "__main__":
    main()
