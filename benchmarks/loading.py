"""The loader against its peers and the floor: speed, memory, and what a cold disk is made to read.

2^29 random ids, uint16, 1 GB: each loader in its own format. All are measured in fresh processes on one
core's thread, in each round once, in an order of its own; a ratio is of two processes of one round. Batches
are int64 tensors of torch, inputs and labels. Ours is also held against the floor inside one process.

The peers are installed into benchmarks/.loading-peers-venv (0.2 GB) and the files kept in
benchmarks/.loading (8 GB), both made once: --prepare does no more than that.

    python benchmarks/loading.py --prepare --templar CHECKOUT      # 5 minutes
    python benchmarks/loading.py --templar CHECKOUT                # 9 minutes, of a quiet machine
    python benchmarks/loading.py --provisional --tokens 26 --rounds 1 --seconds 0.3 --folder FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save
from benchmarks.loading_parts import files, report
from benchmarks.loading_parts.loaders import BOUNDED, LOADERS, SHAPES, Loader
from benchmarks.loading_peers.peer import Job
from benchmarks.tokenizing_parts import peers_venv

REQUIREMENTS = ROOT / "benchmarks" / "loading_peers.txt"
VENV = ROOT / "benchmarks" / ".loading-peers-venv"
_LIMIT_S = 600


def main() -> None:
    options = parser().parse_args()
    bench = Bench(options)
    bench.prepare()
    if options.prepare:
        print(json.dumps({"left_out": bench.left_out}, indent=2))
        return
    rounds = []
    for number in range(options.rounds):
        rounds.append({shape: bench.speed(shape, number, workers=0) for shape in SHAPES})
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
    with_workers = {shape: bench.speed(shape, 0, workers=2) for shape in SHAPES}
    memory = bench.memory(SHAPES[0])
    for shape in SHAPES[1:]:
        for name, found in bench.memory(shape, only=BOUNDED).items():
            memory[f"{name}, {shape[0]} x {shape[1]}"] = found
    cold = {shape: bench.cold(shape) for shape in SHAPES[: None if options.cold_all else 1]}
    pairs = [row for shape in SHAPES for row in bench.pairs(shape)]
    save("loading", report.result(options, bench, rounds, with_workers, memory, cold, pairs))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--folder", type=Path, default=ROOT / "benchmarks" / ".loading", metavar="FOLDER")
    made.add_argument("--tokens", type=int, default=29, metavar="N", help="2**N tokens (29)")
    made.add_argument("--templar", type=Path, metavar="CHECKOUT", help="of github.com/tplr-ai/templar")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--seconds", type=float, default=0.6, help="of each measurement of speed")
    made.add_argument("--memory-batches", type=int, default=2000)
    made.add_argument("--cold-all", action="store_true", help="cold for both shapes, not the first alone")
    made.add_argument("--only", metavar="NAMES", help="loaders, with commas; ours and the floor always")
    made.add_argument("--prepare", action="store_true", help="install and write what is missing, no more")
    made.add_argument("--provisional", action="store_true", help="say so in the result: the machine was busy")
    return made


class Bench:
    """Runs one loader at a time. left_out: why, by name."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._folder = options.folder.resolve() / f"2-{options.tokens}"
        self._tokens = self._folder / "tokens.npy"
        self.left_out: dict[str, str] = {}
        self.peers: Path | None = None
        names = options.only.split(",") if options.only else None
        self.loaders = [one for one in LOADERS if names is None or not one.is_peer or one.name in names]

    def prepare(self) -> None:
        """Packages and files."""
        try:
            self.peers = peers_venv.peers_python(VENV, REQUIREMENTS)
        except subprocess.CalledProcessError as error:
            self._leave_out((one for one in self.loaders if one.package), f"pip: {error}")
        if self._options.templar is None:
            self._leave_out((one for one in self.loaders if one.needs == "templar"), "no --templar CHECKOUT")
        files.write_tokens(self._tokens, 1 << self._options.tokens)
        for seq_len, _ in SHAPES:
            for loader in self._there():
                self._prepare(loader, seq_len)

    def _prepare(self, loader: Loader, seq_len: int) -> None:
        folder = loader.folder(self._folder, seq_len)
        if folder.exists():
            return
        print(f"{loader.name}: writing {folder}", file=sys.stderr)
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        command = loader.prepare_command(self.peers, self._tokens, partial, seq_len)
        if self._run(loader, command) is not None:
            partial.rename(folder)

    def speed(self, shape: tuple[int, int], number: int, workers: int) -> dict[str, Any]:
        """Measured by name, page cache warm."""
        chosen = [one for one in self._there() if one.workers or not workers]
        random.Random(number).shuffle(chosen)
        found = {}
        for loader in chosen:
            folder = loader.folder(self._folder, shape[0])
            files.warm(folder)
            job = Job(*shape, workers, seconds=self._options.seconds, options=loader.options)
            found[loader.name] = self._measure(loader, folder, job)
        return {name: one for name, one in found.items() if one is not None}

    def memory(self, shape: tuple[int, int], only: str | None = None) -> dict[str, Any]:
        """Growth over many batches, page cache warm."""
        count = self._options.memory_batches
        found = {}
        for loader in self._there():
            if only is not None and loader.name != only:
                continue
            folder = loader.folder(self._folder, shape[0])
            files.warm(folder)
            job = Job(*shape, warm_up=100, batches=count, batches_at_least=count, options=loader.options)
            found[loader.name] = self._measure(loader, folder, job)
        return {name: one for name, one in found.items() if one is not None}

    def cold(self, shape: tuple[int, int]) -> dict[str, Any]:
        """From the disk alone."""
        found = {}
        for loader in self._there():
            folder = loader.folder(self._folder, shape[0])
            files.drop(folder)
            job = Job(*shape, warm_up=1, batches=400, seconds=4.0, options=loader.options)
            found[loader.name] = self._measure(loader, folder, job)
            files.warm(folder)
        return {name: one for name, one in found.items() if one is not None}

    def pairs(self, shape: tuple[int, int]) -> list[dict[str, Any]]:
        """Ours against the floor in one process."""
        script = ROOT / "benchmarks" / "loading_parts" / "pairs.py"
        ours = next(one for one in self.loaders if one.is_ours)
        folder = ours.folder(self._folder, shape[0])
        files.warm(folder)
        rest = (*shape, max(self._options.rounds, 5), self._options.seconds / 2)
        command = [sys.executable, script, folder / "tokens.npy", *map(str, rest)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return found

    def _measure(self, loader: Loader, folder: Path, job: Job) -> dict[str, Any] | None:
        done = self._run(loader, loader.measure_command(self.peers, folder, json.dumps(asdict(job))))
        if done is None:
            return None
        found: dict[str, Any] = json.loads(done.splitlines()[-1])
        print(
            f"{loader.name}, {job.seq_len} x {job.batch_size}, {job.workers} workers: "
            f"{found['tokens_s'] / 1e6:.1f} Mtok/s",
            file=sys.stderr,
        )
        return found

    def _run(self, loader: Loader, command: list[str]) -> str | None:
        """What it printed; None, and the loader is left out from here on, where it failed."""
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        if self._options.templar is not None:
            environment["TEMPLAR"] = str(self._options.templar.resolve())
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._leave_out([loader], f"took more than {_LIMIT_S} s")
            return None
        if done.returncode:
            self._leave_out([loader], (done.stderr.strip().splitlines() or ["no message"])[-1])
            return None
        return done.stdout

    def _leave_out(self, which: Iterable[Loader], why: str) -> None:
        for loader in which:
            if not loader.is_peer:
                sys.exit(f"error: {loader.name} failed: {why}")
            self.left_out[loader.name] = why
            print(f"{loader.name} is left out: {why}", file=sys.stderr)

    def _there(self) -> list[Loader]:
        return [one for one in self.loaders if one.name not in self.left_out]

    def versions(self) -> dict[str, str]:
        """Of the peers that were measured."""
        found: dict[str, str] = defaultdict(str)
        if self.peers is not None:
            names = [one.package for one in self._there() if one.package]
            found |= peers_venv.versions(self.peers, names)
        if self._options.templar is not None:
            head = ["git", "-C", str(self._options.templar), "rev-parse", "HEAD"]
            commit = subprocess.run(head, capture_output=True, text=True).stdout.strip()
            marked = self._options.templar / "COMMIT"
            found["templar"] = marked.read_text().strip() if marked.exists() else commit or "unknown"
        return dict(found)


if __name__ == "__main__":
    main()
