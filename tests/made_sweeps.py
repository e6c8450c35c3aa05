"""Sweeps for tests of pages: run folders of several sizes, learning rates and seeds, some of which died.

The loss has its lowest point at a known rate of each size (`best_rate`), and falls with size by a power law.
"""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from conf import Config
from conf.composing.check import to_plain
from training.report.metrics import COLUMNS

BATCH_TOKENS = 4096
LIMIT_BYTES = 1 << 30
RATES = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)


def best_rate(width: int) -> float:
    """Where the lowest loss lies."""
    return 0.02 * (32 / width) ** 0.9


def make_sweep(
    study: Path, widths: Sequence[int] = (32, 64), rates: Sequence[float] = RATES, seeds: int = 1,
    *, steps: int = 40, noise: float = 0.0,
) -> list[Path]:  # fmt: skip
    """A run for each, all of them done; returns their folders."""
    luck = random.Random(0)
    return [
        make_one(study, width, lr, seed, steps=steps, off=luck.gauss(0, noise))
        for width in widths
        for lr in rates
        for seed in range(seeds)
    ]


def make_one(study: Path, width: int, lr: float, seed: int, *, steps: int = 40, off: float = 0.0) -> Path:
    """One run that is done. off: added to its loss."""
    luck = random.Random(f"{width} {lr} {seed}")
    identity = f"{luck.getrandbits(256):064x}"
    folder = study / f"{width}d-lr{lr:g}-seed{seed}-{identity[:8]}"
    folder.mkdir(parents=True)
    size = 12 * width**3 // 16
    lowest = 1.9 + 8 * size**-0.14 + 0.35 * math.log10(lr / best_rate(width)) ** 2 + off
    config = config_of(width, lr, seed, study.name)
    (folder / "config.yaml").write_text("seed: 0\n")  # run.json has it whole
    rows, evals = [",".join(COLUMNS)], []
    for step in range(1, steps + 1):
        loss = lowest + (5.55 - lowest) * math.exp(-12 * step / steps)
        evaluated = step % max(1, steps // 4) == 0
        rows.append(
            f"{step},{step * BATCH_TOKENS},{loss:.6f},{loss if evaluated else ''},{lr:g},1.2,"
            f"{6.0 * size * BATCH_TOKENS * step:g},{0.01 * step:.4f},33000.0,"
        )
        if evaluated:
            told = {"version": 1, "step": step, "tokens": step * BATCH_TOKENS, "source": "val", "loss": loss}
            evals.append(json.dumps(told | {"eval_tokens": 99968}))
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    (folder / "evals.jsonl").write_text("\n".join(evals) + "\n")
    write(folder, "status.json", {"version": 1, "state": "done", "step": steps, "total_steps": steps})
    attempt = {
        "attempt": 1, "started_s": 1.8e9, "ended_s": 1.8e9 + steps, "host": "n1",
        "code": {"commit": "c0ffee" * 6 + "abcd", "dirty": seed == 1}, "versions": {"python": "3.11.7"},
    }  # fmt: skip
    write(
        folder, "run.json",
        {
            "version": 1, "identity": identity, "parameters": size + 257 * width, "non_embedding": size,
            "flops_per_token": 6.0 * size, "steps": steps, "tokens": steps * BATCH_TOKENS, "config": config,
            "memory": {"host_bytes": 300 << 20, "recommended_mem_bytes": 512 << 20}, "attempts": [attempt],
            "data": {"fingerprint": "72" * 32, "tokenizer": "bytes", "path": "Datasets/stdlib.npy"},
        },
    )  # fmt: skip
    outcome(folder)
    return folder


@functools.cache
def _plain() -> str:
    return json.dumps(to_plain(Config()))


def config_of(width: int, lr: float, seed: int, study: str) -> dict[str, Any]:
    """As it is resolved."""
    config: dict[str, Any] = json.loads(_plain())
    config["model"] |= {
        "name": f"{width}d",
        "d_model": width,
        "n_layers": width // 16,
        "n_heads": width // 16,
    }
    config["optimizer"]["lr"] = lr
    return config | {"seed": seed, "seed_init": seed, "seed_data": seed, "study": {"name": study}}


def outcome(folder: Path, **more: Any) -> None:
    """outcome.json of a run that its supervisor saw end by itself."""
    told = {
        "version": 1, "command": ["python"], "pid": 1, "host": "n1", "attempt": 1, "started_s": 1.8e9,
        "ended_s": 1.8e9 + 40, "exit_code": 0, "signal": None, "by": "exit",
        "counters_before": {"oom_kill": 0}, "counters_after": {"oom_kill": 0}, "victim": None,
        "peak_unreclaimable_bytes": 290 << 20, "limit_bytes": LIMIT_BYTES, "peak_limit_bytes": LIMIT_BYTES,
        "environment": {},
    }  # fmt: skip
    write(folder, "outcome.json", told | more)


def killed_for_memory(folder: Path) -> None:
    """As the kernel leaves it."""
    write(
        folder, "status.json", {"version": 1, "state": "running", "stage": "train", "step": 20, "host": "n1"}
    )
    outcome(
        folder, exit_code=None, signal="SIGKILL", by="signal", counters_after={"oom_kill": 1},
        victim={"pid": 1, "name": "python", "is_main": True}, limit_at="/slurm/job_1",
        peak_unreclaimable_bytes=LIMIT_BYTES - (1 << 20),
    )  # fmt: skip


def diverged(folder: Path) -> None:
    """As the guard of the loss leaves it."""
    with open(folder / "metrics.csv", "a") as file:
        file.write(f"41,{41 * BATCH_TOKENS},nan,,0.1,nan,1e12,0.5,33000.0,\n")
    reason = "the loss is no longer finite: step 41: loss nan"
    write(folder, "status.json", {"version": 1, "state": "failed", "step": 41, "reason": reason})


def say(folder: Path, **keys: Any) -> None:
    """Keys of its configuration, such as tags and notes."""
    told = json.loads((folder / "run.json").read_text())
    told["config"] |= keys
    write(folder, "run.json", told)
    (folder / "config.yaml").write_text(yaml.safe_dump(keys))


def made_by(folder: Path, *codes: dict[str, Any] | None) -> None:
    """Give the run one attempt for each of these, which the code is recorded of; None: not recorded."""
    told = json.loads((folder / "run.json").read_text())
    attempt = told["attempts"][0]
    told["attempts"] = [
        attempt | {"attempt": number, "started_s": 1.8e9 + number, "code": code or {}}
        for number, code in enumerate(codes, start=1)
    ]
    write(folder, "run.json", told)


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value))


def command_in(text: str) -> str:
    """The command at the end of a message."""
    return text[text.rindex("python experiments.py") :]
