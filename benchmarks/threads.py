"""What waiting threads cost: runs of 32d as GNU OpenMP comes, asleep after 1000 spins, and as a run chooses.

With a small vocabulary (bytes) and a large one, on the machine as it is and beside one busy process,
interleaved.

    python benchmarks/threads.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import experiment_utils
from benchmarks.environment import save, summary
from benchmarks.training_parts.planned_run import planned_run, write_ids, write_tokenizer
from training.device import available_threads
from training.spinning import OF_THE_USER

VOCABULARIES = {257: 100, 50_257: 8}
"""And the steps of a run with each."""
BATCH, SEQ_LEN = 32, 128
PLACES = ("as it is", "beside a busy process")
CHOSEN = "as a run chooses"
SETTINGS: dict[str, dict[str, str]] = {
    "OpenMP's default": {},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    CHOSEN: {},
}


def step_seconds(setting: str, threads: int, vocabulary: int, folder: Path) -> float:
    """Of a whole run, its first step left out."""
    steps, ids = VOCABULARIES[vocabulary], folder / f"random-{vocabulary}.npy"
    tokenizer = ["tokenizer=bytes"]
    if vocabulary != 257:
        tokenizer = ["tokenizer=custom", f"tokenizer.path={folder / 'words'}"]
    if not ids.exists():
        write_ids(ids, 4 * steps * BATCH * SEQ_LEN, vocabulary)
        if vocabulary != 257:
            write_tokenizer(folder / "words", vocabulary)
    run = planned_run(
        "model=32d", "dataset=text", f"dataset.path={ids}", *tokenizer, f"training.max_steps={steps}",
        f"training.seq_len={SEQ_LEN}", f"training.effective_batch={BATCH}", f"training.micro_batch={BATCH}",
        "training.evals=1", f"training.eval_tokens={SEQ_LEN}", "training.checkpoint_every=1000000",
        "training.device=cpu", "training.precision=fp32", f"training.threads={threads}",
        f"runs_dir={tempfile.mkdtemp(dir=folder)}",
    )  # fmt: skip
    unset = {key: value for key, value in os.environ.items() if key not in OF_THE_USER}
    command = [sys.executable, str(ROOT / "core.py"), str(run), "--quiet"]
    subprocess.run(command, env=unset | SETTINGS[setting], check=True)
    seconds = experiment_utils.read_run(run)["attempts"][0]["seconds"]
    return float(seconds["train"]) / (steps - 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    threads = available_threads()
    found: dict[int, dict[str, dict[str, list[float]]]] = {
        vocabulary: {place: {setting: [] for setting in SETTINGS} for place in PLACES}
        for vocabulary in VOCABULARIES
    }
    with tempfile.TemporaryDirectory() as name:
        for round_ in range(options.rounds):
            for vocabulary, place in itertools.product(VOCABULARIES, PLACES):
                busy = None
                if place != PLACES[0]:
                    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                try:
                    for setting in random.Random(round_).sample(list(SETTINGS), len(SETTINGS)):
                        seconds = step_seconds(setting, threads, vocabulary, Path(name))
                        found[vocabulary][place][setting].append(seconds)
                        print(vocabulary, place, setting, f"{seconds:.4f}", flush=True)
                finally:
                    if busy is not None:
                        busy.kill()
                        busy.wait()
    save(
        "threads",
        {
            "what": f"a step of whole runs, 32d, batch {BATCH} x {SEQ_LEN}, {threads} threads",
            "cases": [
                {
                    "vocabulary": vocabulary,
                    "place": place,
                    "step_s": {setting: summary(seconds) for setting, seconds in of_settings.items()},
                    "over_chosen": {
                        setting: statistics.median(
                            a / b for a, b in zip(seconds, of_settings[CHOSEN], strict=True)
                        )
                        for setting, seconds in of_settings.items()
                    },
                }
                for vocabulary, places in found.items()
                for place, of_settings in places.items()
            ],
        },
    )


if __name__ == "__main__":
    main()
