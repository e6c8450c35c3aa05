"""Compare training with nanoGPT, Hugging Face's Trainer, litgpt, and a floor of matrix products.

Models of GPT-2's shape (heads 16 wide, round(width / 16) layers), a vocabulary of 50,257, 32 x 128 tokens a
step, fp32, AdamW, random ids of one file. Each case is a process in which a whole unchanged loop trains
(training_peers.py); all take their steps in turns. Each is measured as it is installed and with the
allocator set to keep its memory (`tuned`), which saves loops that hold all logits most of their page
faults. Memory is the peak above what a process holds that has loaded torch only. Peers that cannot be had
are left out, with the reason.

    python benchmarks/training_speed.py               # 15 minutes and 20 GB, on a quiet machine
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.harness import BENCHMARKS, MB, benchmark, goal, in_turns, ratios, summary
from benchmarks.planned_run import on_cpu, planned_run
from benchmarks.processes import (
    TUNED,
    LeftOut,
    Turns,
    allocator_environment,
    commit_of,
    peers_python,
    versions_of,
)  # fmt: skip
from benchmarks.training_peers import Job

NANOGPT = BENCHMARKS / ".training" / "nanoGPT"
NANOGPT_URL, NANOGPT_COMMIT = (
    "https://github.com/karpathy/nanoGPT",
    "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
)
SEQ, VOCAB, THREADS, TOKENS = 128, 50_257, 2, 1 << 23
GOALS = {32: (2.0, 1.35, 1 / 8), 64: (2.0, 1.2, 1 / 8), 256: (1.2, None, 2 / 3)}
"""By width: ratio to the peers as installed, ratio to the floor, share of the peers' memory."""
FROM_LN_V = 0.5
"""Nats: first losses differ by at most this from ln V, the loss of a model that has learned nothing."""


@dataclass(frozen=True)
class Case:
    """One way to train. loop: in training_peers.py. loss: pattern of the first one in what it prints."""

    name: str
    loop: str
    loss: str = ""
    arch: str = ""
    needs: str = ""
    is_tuned: bool = False
    compile: bool = False


OURS, NANO, TRAINER, FLOOR = "ours", "nanoGPT", "Hugging Face Trainer", "the floor"
_NANO_LOSS, _TRAINER_LOSS = r"iter 0: loss ([\d.]+)", r"'loss': '?([\d.]+)"
CASES = [
    *(Case(OURS, "ours", arch="gpt2", is_tuned=tuned) for tuned in (False, True)),
    *(Case(NANO, "nanogpt", _NANO_LOSS, needs="nanogpt", is_tuned=tuned) for tuned in (False, True)),
    *(Case(TRAINER, "hf_trainer", _TRAINER_LOSS, needs="package", is_tuned=tuned) for tuned in (False, True)),
    # litgpt once only: tuned processes keep 4 GB each, and all are alive at the same time.
    Case("litgpt pretrain", "litgpt_pretrain", r"step 1 \| loss train: ([\d.]+)", needs="package"),
    Case("nanoGPT, compiled", "nanogpt", _NANO_LOSS, needs="nanogpt", compile=True),
    Case("ours, arch=modern", "ours", arch="modern"),
    Case(FLOOR, "floor"),
]  # fmt: skip


class Bench:
    """Measures the cases. left_out: reason by name."""

    def __init__(self, chosen: Any, folder: Path) -> None:
        self.chosen, self.folder = chosen, folder
        self.left_out: dict[str, str] = {}
        self.python: Path | None = None
        self.nanogpt = chosen.nanogpt or NANOGPT
        if chosen.quick and chosen.nanogpt is None:
            self._leave_out(("package", "nanogpt"), "--quick")
            return
        try:
            self.python = peers_python("training_peers.txt")
        except LeftOut as error:
            self._leave_out(("package",), str(error))
        try:
            clone(self.nanogpt)
        except (subprocess.CalledProcessError, OSError) as error:
            self._leave_out(("nanogpt",), f"git: {error}")

    def _leave_out(self, needs: tuple[str, ...], why: str) -> None:
        self.left_out |= {case.name: why for case in CASES if case.needs in needs}

    def measure(self, width: int, rounds: int, raw: Path) -> list[dict[str, Any]]:
        """A row for each case of a width."""
        running: dict[str, tuple[Case, Turns, Path]] = {}
        with ExitStack() as stack:
            for case in CASES:
                name = f"{case.name}, {_allocator(case)}"
                if case.name in self.left_out or (case.is_tuned and width > 64):
                    continue
                try:
                    running[name] = (case, *self._start(case, width, raw))
                except LeftOut as error:
                    self.left_out[f"{name}, {width}d"] = str(error)
                    continue
                stack.callback(running[name][1].end)
                print(f"{width}d: {name} is ready", file=sys.stderr, flush=True)
            found = in_turns({name: turns.step for name, (_, turns, _) in running.items()}, rounds, warm_up=1)
            losses = {name: first_loss(*one) for name, one in running.items()}
        reference = {name: found.get(f"{name}, as installed") for name in (OURS, FLOOR)}
        return [row(width, running[name][0], found[name], reference, losses[name]) for name in found]

    def _start(self, case: Case, width: int, raw: Path) -> tuple[Turns, Path]:
        """The process of a case, when its first step is done."""
        batch, layers = self.chosen.batch, max(1, round(width / 16))
        own = Path(tempfile.mkdtemp(dir=self.folder))
        if case.arch:
            how = on_cpu(self.folder, VOCAB, 1000, batch, SEQ)
            shape = {"model": f"{width}d", "arch": case.arch, "training__threads": THREADS}
            own = planned_run(self.folder, **how, **shape)
        sizes = (layers, width, VOCAB, SEQ, batch, THREADS)
        job = Job(str(own), str(raw), *sizes, checkout=str(self.nanogpt), compile=case.compile)
        python = self.python if case.needs == "package" else sys.executable
        environment = allocator_environment(case.is_tuned) | {
            "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore",
            "PYTHONUNBUFFERED": "1",  # output is read while the process lives
            "GOMP_SPINCOUNT": "300000",  # OpenMP's own, for all; ours would react to the others' threads
        }  # fmt: skip
        command = [python, BENCHMARKS / "training_peers.py", case.loop, job.text()]
        return Turns(command, environment, own / "log.of.benchmark"), own

    def versions(self) -> dict[str, str]:
        """Versions of the peers."""
        packages = ["accelerate", "transformers", "litgpt", "lightning"]
        found = versions_of(self.python, packages) if self.python else {}
        return found | {"nanoGPT": commit_of(self.nanogpt)}


def _allocator(case: Case) -> str:
    return "tuned" if case.is_tuned else "as installed"


def clone(folder: Path) -> None:
    """nanoGPT at the commit named here, if the folder has none."""
    if (folder / "train.py").is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    fetch = ["fetch", "--quiet", "--depth=1", NANOGPT_URL, NANOGPT_COMMIT]
    for command in (["init", "--quiet"], fetch, ["checkout", "--quiet", "FETCH_HEAD"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)


def first_loss(case: Case, turns: Turns, folder: Path) -> float | None:
    """The loss of the first step; None for a case that has none."""
    if case.arch:
        rows = (folder / "metrics.csv").read_text().splitlines()
        return float(dict(zip(rows[0].split(","), rows[1].split(","), strict=True))["train_loss"])
    found = re.search(case.loss, turns.log()) if case.loss else None
    return float(found[1]) if found else None


def row(
    width: int, case: Case, steps: list[dict[str, Any]], reference: dict[str, Any], loss: float | None
) -> dict[str, Any]:
    """What is saved of a case. reference: the steps of ours and of the floor, in the same rounds."""
    ours, floor, last = reference[OURS], reference[FLOOR], steps[-1]

    def above(step: dict[str, Any]) -> int:
        return int(step["peak_bytes"] - step["torch_bytes"])

    def over(others: list[dict[str, Any]]) -> float:
        times = ([one["step_s"] for one in taken] for taken in (steps, others))
        return round(ratios(*times)["median"], 3)

    return {
        "model": f"{width}d", "case": case.name, "allocator": _allocator(case),
        "step_s": summary([step["step_s"] for step in steps]),
        "cpu_s": summary([step["cpu_s"] for step in steps]),
        "over_ours": over(ours), "over_floor": over(floor) if floor else None,
        "torch_mb": round(last["torch_bytes"] / MB), "peak_mb": round(last["peak_bytes"] / MB),
        "above_torch_mb": round(above(last) / MB),
        "above_torch_over_ours": round(above(last) / max(1, above(ours[-1])), 3), "first_loss": loss,
        **({"chunk": last["chunk"]} if "chunk" in last else {}),
    }  # fmt: skip


def goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Goals by width, and that all begin at the same loss."""
    found: list[dict[str, Any]] = []
    by_case = {(row["model"], row["case"], row["allocator"]): row for row in rows}
    for width, (faster, over_floor, share) in GOALS.items():
        model = f"{width}d"
        for name in (NANO, TRAINER):
            peer, tuned = (by_case.get((model, name, how)) for how in ("as installed", "tuned"))
            if peer:
                what = f"{model}: {name} / ours, as installed"
                found.append(goal(what, peer["over_ours"], at_least=faster, digits=3))
            if tuned:
                found.append(goal(f"{model}: {name}, tuned / ours", tuned["over_ours"], at_least=1, digits=3))
            if peer:
                memory = 1 / peer["above_torch_over_ours"]
                found.append(goal(f"{model}: memory of ours / {name}", memory, at_most=share, digits=3))
        ours = by_case.get((model, OURS, "as installed"))
        if ours and over_floor:
            found.append(goal(f"{model}: ours / the floor", ours["over_floor"], at_most=over_floor, digits=3))
    far = [abs(row["first_loss"] - math.log(VOCAB)) for row in rows if row["first_loss"] is not None]
    found.append(goal("first losses, farthest from ln V", max(far), at_most=FROM_LN_V, digits=3))
    return found


@benchmark(rounds=([5, 5, 3], [1]), widths=([32, 64, 256], [32]), batch=(32, 2), nanogpt=Path)
def measured(chosen: Any) -> Any:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(chosen, Path(name))
        raw = Path(name) / "random.bin"
        np.random.default_rng(0).integers(0, VOCAB, TOKENS, dtype=np.uint16).tofile(raw)
        for width, rounds in zip(chosen.widths, chosen.rounds, strict=False):
            rows += bench.measure(width, rounds, raw)
        setting = {
            "batch": chosen.batch, "seq_len": SEQ, "vocab_size": VOCAB, "threads": THREADS, "dtype": "fp32",
            "tuned": TUNED, "ln_vocab_size": round(math.log(VOCAB), 4),
        }  # fmt: skip
        facts = {"setting": setting, "peers": bench.versions(), "left_out": bench.left_out}
        return facts | {"rows": rows, "goals": goals(rows)}
