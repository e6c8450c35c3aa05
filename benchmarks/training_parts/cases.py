"""What trains beside what, and a process that takes its steps when it is told to."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.training_peers.turns import Job

PEERS = Path(__file__).resolve().parent.parent / "training_peers"
OURS, MODERN, FLOOR = "ours", "ours, arch=modern", "the floor"
NANOGPT, TRAINER, LITGPT = "nanoGPT", "Hugging Face Trainer", "litgpt pretrain"
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "34359738368",
    "MALLOC_TOP_PAD_": "67108864",
}
AS_INSTALLED, TUNED_NAME = "as installed", "tuned"


@dataclass(frozen=True)
class Case:
    """One way to train, in a process of its own.

    script: in PEERS. is_tuned: with the allocator told to keep its memory. loss: of the first step, in what
    it printed. arch: of ours. package: a peer comes with it; needs: an option of the command. compile: where
    there is a choice.
    """

    name: str
    script: str
    is_tuned: bool = False
    loss: str = ""
    arch: str = ""
    package: str = ""
    needs: str = ""
    compile: bool = False

    @property
    def is_peer(self) -> bool:
        return not self.arch and self.name != FLOOR

    @property
    def allocator(self) -> str:
        return TUNED_NAME if self.is_tuned else AS_INSTALLED

    def environment(self) -> dict[str, str]:
        """What it is started with: the user's, without settings of the allocator but these."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
        kept |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
        kept["PYTHONUNBUFFERED"] = "1"  # what it prints is read while it lives
        # `core` looks at what others use meanwhile: here they wait while it takes its step.
        kept.setdefault("GOMP_SPINCOUNT", "300000")  # OpenMP's own, for all
        return kept | (TUNED if self.is_tuned else {})


def _case(name: str, script: str, **more: Any) -> list[Case]:
    return [Case(name, script, is_tuned, **more) for is_tuned in (False, True)]


CASES = [
    *_case(OURS, "ours.py", arch="gpt2"),
    *_case(NANOGPT, "nanogpt.py", loss=r"iter 0: loss ([\d.]+)", needs="nanogpt"),
    *_case(TRAINER, "hf_trainer.py", loss=r"'loss': '?([\d.]+)", package="accelerate"),
    # litgpt once alone: those that are tuned keep 4 GB each, and all are alive at once.
    Case(LITGPT, "litgpt_pretrain.py", loss=r"step 1 \| loss train: ([\d.]+)", package="litgpt"),
    Case(
        "nanoGPT, compiled", "nanogpt.py", loss=r"iter 0: loss ([\d.]+)", needs="nanogpt", compile=True
    ),
    Case(MODERN, "ours.py", arch="modern"),
    Case(FLOOR, "floor.py"),
]  # fmt: skip


class LeftOut(Exception):
    """A case cannot be measured here."""


@dataclass
class Running:
    """A process that has taken its first step, and waits."""

    case: Case
    process: subprocess.Popen[str]
    log: Path
    read_first_loss: Callable[[], float | None]
    found: list[dict[str, Any]] = field(default_factory=list)

    def step(self) -> dict[str, Any]:
        """Have it take a step, wait for what it measured.

        Raises:
            LeftOut: it ended.
        """
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        return self.next()

    def next(self) -> dict[str, Any]:
        """The line of a step that it takes already. Raises LeftOut: it ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            said = self.log.read_text(errors="replace").strip().splitlines() or ["no message"]
            raise LeftOut(f"exited with {self.process.returncode}: {said[-1]}")
        told: dict[str, Any] = json.loads(line)
        return told

    def first_loss(self) -> float | None:
        """Of the first step; None where it has none."""
        return self.read_first_loss()

    def end(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(case: Case, job: Job, python: Path | str) -> Running:
    """Start a case and wait until its first step is done, which for some takes minutes.

    Raises:
        LeftOut: it ended before.
    """
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.of.benchmark"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [str(python), str(PEERS / case.script), job.text()],
            env=case.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip

    def printed() -> float | None:
        found = re.search(case.loss, log.read_text(errors="replace")) if case.loss else None
        return float(found[1]) if found else None

    def of_run() -> float | None:
        rows = (folder / "metrics.csv").read_text().splitlines()
        return float(dict(zip(rows[0].split(","), rows[1].split(","), strict=True))["train_loss"])

    running = Running(case, process, log, of_run if case.arch else printed)
    try:
        running.next()
    except LeftOut:
        print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
        raise
    return running
