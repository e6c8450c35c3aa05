"""What waiting threads cost: runs of 32d that wait awake, asleep, and as a run chooses.

With a small vocabulary (bytes) and a large one; alone, beside one busy process, and two such runs on the same
cores, interleaved.

    python benchmarks/threads.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary
from benchmarks.training_parts.planned_run import planned_run, write_ids, write_tokenizer
from training import spinning
from training.attempt.run_files import read_run
from training.device import available_threads

VOCABULARIES = {257: 100, 50_257: 12}
"""And the steps of a run with each."""
BATCH, SEQ_LEN = 32, 128
ALONE, BESIDE, TWO = "alone", "beside a busy process", "two runs on the same cores"
CHOSEN = "as a run chooses"
SETTINGS: dict[str, dict[str, str]] = {
    "awake": {"GOMP_SPINCOUNT": "300000"},  # which is OpenMP's default
    "asleep": {"GOMP_SPINCOUNT": "1000"},
    CHOSEN: {},
}


def start(setting: str, threads: int, vocabulary: int, folder: Path) -> tuple[Path, subprocess.Popen[bytes]]:
    """A run, and its process."""
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
    unset = {key: value for key, value in os.environ.items() if key not in spinning.SETTINGS}
    command = [sys.executable, str(ROOT / "core.py"), str(run), "--quiet"]
    return run, subprocess.Popen(command, env=unset | SETTINGS[setting])


def step_seconds(place: str, setting: str, threads: int, vocabulary: int, folder: Path) -> float:
    """Of whole runs, their first steps left out."""
    busy = None
    if place == BESIDE:
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        runs = [start(setting, threads, vocabulary, folder) for _ in range(2 if place == TWO else 1)]
        for run, process in runs:
            if process.wait():
                raise SystemExit(f"error: {run} failed: see its log.txt")
    finally:
        if busy is not None:
            busy.kill()
            busy.wait()
    train_s = [read_run(run)["attempts"][0]["seconds"]["train"] for run, _ in runs]
    return statistics.mean(train_s) / (VOCABULARIES[vocabulary] - 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    threads = available_threads()
    found: dict[int, dict[str, dict[str, list[float]]]] = {
        vocabulary: {place: {setting: [] for setting in SETTINGS} for place in (ALONE, BESIDE, TWO)}
        for vocabulary in VOCABULARIES
    }
    with tempfile.TemporaryDirectory() as name:
        for round_ in range(options.rounds):
            for vocabulary, places in found.items():
                for place, of_settings in places.items():
                    for setting in random.Random(round_).sample(list(SETTINGS), len(SETTINGS)):
                        seconds = step_seconds(place, setting, threads, vocabulary, Path(name))
                        of_settings[setting].append(seconds)
                        print(f"{vocabulary}, {place}, {setting}: {seconds:.4f} s", flush=True)
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
