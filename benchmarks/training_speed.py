"""Training of ours against nanoGPT, Hugging Face's Trainer, litgpt, and the products no one can do without.

Models of GPT-2's shape (heads 16 wide, round(width / 16) layers), a vocabulary of 50,257, 32 x 128 tokens a
step, fp32, AdamW, random ids of one file. Each case is a process of its own in which a whole unchanged loop
trains, `core.py RUN` for ours; all are alive at once and take their steps in turn, so that a ratio is the
median over the rounds of two steps of the same round. Each is measured as it is installed and with the
allocator told to keep its memory (`tuned`), which saves those that hold all logits most of their page
faults. Memory is the peak above what a process holds that has loaded torch and no more.

nanoGPT is cloned into benchmarks/.training, at the commit named here, unless --nanogpt CHECKOUT names one;
the other peers are installed into benchmarks/.training-peers-venv. Those that cannot be had are left out, and
the result says why. It needs 20 GB of memory: some peers hold 4 GB each, and keep them where `tuned`.

    python benchmarks/training_speed.py --prepare     # what is installed and cloned, no more
    python benchmarks/training_speed.py               # 15 minutes, of a quiet machine
    python benchmarks/training_speed.py --only 32 --rounds 1 --provisional
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np

from benchmarks.environment import save
from benchmarks.pictures import draw
from benchmarks.tokenizing_parts import peers_venv
from benchmarks.training_parts import report
from benchmarks.training_parts.cases import CASES, Case, LeftOut, Running, start
from benchmarks.training_parts.planned_run import planned_run, write_ids, write_tokenizer
from benchmarks.training_peers.turns import Job

REQUIREMENTS = ROOT / "benchmarks" / "training_peers.txt"
VENV = ROOT / "benchmarks" / ".training-peers-venv"
NANOGPT = ROOT / "benchmarks" / ".training" / "nanoGPT"
NANOGPT_URL = "https://github.com/karpathy/nanoGPT"
NANOGPT_COMMIT = "3adf61e154c3fe3fca428ad6bc3818b27a3b8291"
BATCH, SEQ, VOCAB, THREADS = 32, 128, 50_257, 2
TOKENS = 1 << 23
WARM_UP = 1
WIDTHS = {32: 5, 64: 5, 256: 3}
"""Rounds by width."""


def main() -> None:
    options = parser().parse_args()
    bench = Bench(options.nanogpt, options.batch)
    if options.prepare:
        print(bench.left_out or "all peers are there")
        return
    widths = [int(width) for width in options.only.split(",")] if options.only else list(WIDTHS)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, tokenizer = (
            write_ids(folder / "random.npy", TOKENS, VOCAB),
            write_tokenizer(folder / "words", VOCAB),
        )
        raw = write_raw(path, folder / "random.bin")
        for width in widths:
            rounds = options.rounds or WIDTHS[width]
            rows += bench.measure(width, rounds, folder / f"{width}d", path, tokenizer, raw)
    save(
        "training_speed",
        report.result(options.provisional, options.batch, rows, bench.left_out, bench.versions()),
    )
    print(f"wrote {draw('training_speed.png')[0].relative_to(ROOT)}")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--nanogpt", type=Path, metavar="CHECKOUT", help="of github.com/karpathy/nanoGPT")
    made.add_argument("--rounds", type=int, help="steps of each case, after one that does not count")
    made.add_argument("--batch", type=int, default=BATCH, help="windows a step, for a trial (%(default)s)")
    made.add_argument("--only", metavar="WIDTHS", help="with commas: 32,64")
    made.add_argument("--prepare", action="store_true", help="install and clone what is missing, no more")
    made.add_argument("--provisional", action="store_true", help="say so in the result: the machine was busy")
    return made


class Bench:
    """left_out: why, by name of the case."""

    def __init__(self, nanogpt: Path | None, batch: int) -> None:
        self.batch = batch
        self.left_out: dict[str, str] = {}
        self.python: Path | None = None
        try:
            self.python = peers_venv.peers_python(VENV, REQUIREMENTS)
        except subprocess.CalledProcessError as error:
            self._leave_out("package", f"pip: {error}")
        self.nanogpt = nanogpt or NANOGPT
        if not (self.nanogpt / "train.py").is_file():
            try:
                _clone(self.nanogpt)
            except (subprocess.CalledProcessError, OSError) as error:
                self._leave_out("needs", f"git: {error}")

    def _leave_out(self, what: str, why: str) -> None:
        for case in CASES:
            if getattr(case, what):
                self.left_out[case.name] = why
                print(f"{case.name} is left out: {why}", file=sys.stderr)

    def measure(
        self, width: int, rounds: int, folder: Path, path: Path, tokenizer: Path, raw: Path
    ) -> list[dict[str, Any]]:
        """All cases of a width, a step of each in every round, in an order of its own."""
        running: list[Running] = []
        try:
            for number, case in enumerate(CASES):
                if case.name in self.left_out or (case.is_tuned and width > 64):
                    continue
                own = folder / f"case{number}"
                if case.arch:
                    own = _run_folder(case, width, self.batch, own, path, tokenizer)
                layers = max(1, round(width / 16))
                job = Job(
                    str(own), str(raw), layers, layers, width, VOCAB, SEQ, self.batch, THREADS,
                    checkout=str(self.nanogpt), compile=case.compile,
                )  # fmt: skip
                python = self.python if case.is_peer and case.package else None
                try:
                    running.append(start(case, job, python or sys.executable))
                except LeftOut as error:
                    self.left_out[f"{case.name}, {case.allocator}, {width}d"] = str(error)
                    continue
                print(f"{width}d: {case.name}, {case.allocator} is ready", file=sys.stderr)
            for number in range(WARM_UP + rounds):
                for one in random.Random(number).sample(running, len(running)):
                    try:
                        step = one.step()
                    except LeftOut as error:
                        self.left_out[f"{one.case.name}, {one.case.allocator}, {width}d"] = str(error)
                        running.remove(one)
                        continue
                    if number >= WARM_UP:
                        one.found.append(step)
                print(f"{width}d: round {number} of {rounds} done", file=sys.stderr)
            return report.rows_of(width, running)
        finally:
            for one in running:
                one.end()
            shutil.rmtree(folder, ignore_errors=True)

    def versions(self) -> dict[str, str]:
        """Of the peers."""
        found = {}
        if self.python is not None:
            packages = ["accelerate", "transformers", "litgpt", "lightning"]
            found = peers_venv.versions(self.python, packages)
        head = ["git", "-C", str(self.nanogpt), "rev-parse", "HEAD"]
        done = subprocess.run(head, capture_output=True, text=True, check=False)
        marked = self.nanogpt / "COMMIT"
        commit = marked.read_text().strip() if marked.exists() else done.stdout.strip()
        return found | {"nanoGPT": commit or "unknown"}


def write_raw(path: Path, raw: Path) -> Path:
    """The same ids with nothing before them."""
    np.load(path).tofile(raw)
    return raw


def _clone(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in (
        ["init", "--quiet"],
        ["fetch", "--quiet", "--depth=1", NANOGPT_URL, NANOGPT_COMMIT],
        ["checkout", "--quiet", "FETCH_HEAD"],
    ):
        subprocess.run(["git", "-C", str(folder), *command], check=True)


def _run_folder(case: Case, width: int, batch: int, folder: Path, path: Path, tokenizer: Path) -> Path:
    """A planned run that has not begun, with the settings that all have, else the defaults."""
    return planned_run(
        f"model={width}d", f"arch={case.arch}", "dataset=text", f"dataset.path={path}", "tokenizer=custom",
        f"tokenizer.path={tokenizer}", "training.max_steps=1000", f"training.seq_len={SEQ}",
        f"training.effective_batch={batch}", "training.evals=1", f"training.eval_tokens={SEQ}",
        "training.device=cpu", "training.precision=fp32", f"training.threads={THREADS}", f"runs_dir={folder}",
    )  # fmt: skip


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    main()
