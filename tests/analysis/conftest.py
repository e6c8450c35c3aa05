"""Run folders as runs leave them, made in no time: the real writers of rows, made-up numbers."""

from __future__ import annotations

import copy
import functools
import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conf import Config
from conf.composing.check import to_plain
from memory import Cgroup, Gpu, Host, Process, Snapshot
from training.report.metrics import MetricsFile, Row, append_records

MB = 1 << 20
BATCH_TOKENS = 4096
SETUP = {
    "start": (1.09, 82), "load_tokenizer": (0.01, 0), "open_dataset": (0.03, 0.125),
    "build_model": (0.02, 0.75), "build_optimizer": (0.96, 68), "restore": (0.02, 0.25),
    "first_batch": (0.15, 14), "first_step": (0.16, 38),
}  # fmt: skip
"""Seconds of each stage, and MB of anonymous memory that it takes."""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has no `runs`, also if commands were typed in the checkout."""
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))


class MadeRun:
    """A run folder that is filled file by file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self.path.mkdir(parents=True)
        self._records: list[dict[str, Any]] = []
        self._now_s = 0.0
        self._anon_mb = 66.0

    def write(self, name: str, value: Any) -> None:
        (self.path / name).write_text(json.dumps(value, indent=2))

    def config(self, lr: float = 0.003, **training: Any) -> None:
        import yaml

        plain = to_plain(Config())
        plain["dataset"]["source"] = "stdlib"
        plain["optimizer"]["lr"] = lr
        plain["training"] |= training
        (self.path / "config.yaml").write_text(yaml.safe_dump(plain))

    def status(self, state: str = "done", step: int | None = 500, **more: Any) -> None:
        self.write(
            "status.json",
            {
                "version": 1, "state": state, "stage": "finish", "step": step, "total_steps": 500,
                "attempt": 1, "heartbeat_s": 1795262150.248, "reason": None, "host": "vm", "pid": 8874,
            } | more,
        )  # fmt: skip

    def run(self, results: dict[str, Any] | None = None, **more: Any) -> None:
        self.write(
            "run.json",
            {
                "version": 1, "identity": "6ad2926b" * 8, "parameters": 41152, "non_embedding": 32768,
                "flops_per_token": 344256, "total_flops": 344256 * 500 * BATCH_TOKENS, "vocab_size": 257,
                "steps": 500, "tokens": 500 * BATCH_TOKENS, "effective_batch": 32,
                "batch_tokens": BATCH_TOKENS,
                "data": {
                    "path": "Datasets/stdlib-py3.11.7-bytes.npy", "val_path": None, "file_bytes": 24161058,
                    "dtype": "uint16", "tokens": 12080465, "documents": 729, "train_tokens": 10905020,
                    "val_tokens": 1175445, "train_windows": 85195, "val_windows": 9183,
                    "tokenizer": "bytes", "vocab_size": 257,
                    "fingerprint": "72544df8" * 8,
                },
                "auto": {"micro_batch": 32, "threads": 2, "device": "cpu", "precision": "fp32"},
                "results": results, "attempts": [{"attempt": 1}],
            } | more,
        )  # fmt: skip

    def losses(
        self,
        steps: int = 500,
        *,
        floor: float = 1.9,
        nan_at: int | None = None,
        evals: int = 10,
        seed: int = 0,
    ) -> float:
        """metrics.csv and evals.jsonl; returns the last validation loss."""
        noise = random.Random(seed)
        metrics = MetricsFile(self._empty("metrics.csv"), 0)
        evaluated = {round(steps * (i + 1) / evals) for i in range(evals)} if evals else set()
        val_loss = math.nan
        for step in range(1, steps + 1):
            curve = floor + (5.55 - floor) * math.exp(-step / 60)
            train_loss = math.nan if step == nan_at else curve + noise.gauss(0, 0.05)
            val_here = curve - 0.03 if step in evaluated and train_loss == train_loss else None
            tokens = step * BATCH_TOKENS
            clock = (0.125 * step, 32768.0, 0.21)
            metrics.append([Row(step, tokens, train_loss, val_here, 0.003, 1.2, 1e9 * step, *clock)])
            if step == nan_at:
                break
            if val_here is not None:
                val_loss = val_here
                record = {"version": 1, "step": step, "tokens": tokens, "source": "val", "loss": val_loss}
                more = {"perplexity": math.exp(val_loss), "eval_tokens": 100096, "seconds": 1.3}
                append_records(self.path / "evals.jsonl", record | more)
        metrics.close()
        return val_loss

    def memory(
        self,
        *,
        attempt: int = 1,
        cycles: int = 10,
        limit_mb: float | None = None,
        gpu: bool = False,
        growth_mb: float = 0.75,
        killed_in: str | None = None,
        error_in: str | None = None,
    ) -> None:
        """memory.jsonl of one attempt, with `cycles` of train, evaluate and checkpoint after the setup."""
        self._now_s, self._anon_mb = 0.0, 66.0
        stages = [(name, seconds, grown) for name, (seconds, grown) in SETUP.items()]
        for _ in range(cycles):
            stages += [("train", 6.25, growth_mb), ("evaluate", 1.3, 0.0), ("checkpoint", 0.05, 0.0)]
        for name, seconds, grown in [*stages, ("finish", 0.33, 0.0)]:
            common = {
                "version": 1,
                "stage": name,
                "attempt": attempt,
                "rank": 0,
                "facts": {"step": 0},
                "depth": 0,
            }
            self._record(common | {"event": "begin"}, limit_mb, gpu)
            if name == killed_in:
                break
            self._now_s += seconds
            self._anon_mb += grown
            ended = {"event": "end", "seconds": seconds, "change": {"anon_bytes": int(grown * MB)}}
            if name == error_in:
                ended["error"] = "NonFinite: step 40: loss nan"
            self._record(common | ended, limit_mb, gpu)
            if name == error_in:
                break
        with open(self.path / "memory.jsonl", "a") as file:
            file.writelines(json.dumps(record) + "\n" for record in self._records)
        self._records.clear()

    def _record(self, record: dict[str, Any], limit_mb: float | None, gpu: bool) -> None:
        anon, mapped = int(self._anon_mb * MB), int((20 + self._anon_mb / 2) * MB)
        limit = None if limit_mb is None else int(limit_mb * MB)
        snapshot = Snapshot(
            time_s=1795262034.6 + self._now_s,
            main=Process(
                8874,
                rss_bytes=anon + mapped,
                anon_bytes=anon,
                file_bytes=mapped,
                shmem_bytes=0,
                peak_rss_bytes=anon + mapped + 16 * MB,
            ),
            job=Cgroup(
                1,
                "/job_7",
                limit_bytes=limit,
                limit_at=None if limit is None else "/job_7",
                anon_bytes=anon,
                shmem_bytes=8 * MB if gpu else 0,
                kernel_bytes=3 * MB,
                file_bytes=700 * MB,
            ),
            host=Host(24105 * MB, 23000 * MB),
            gpu=Gpu(0, "GPU", 3 * anon, 4 * anon, 4 * anon, 2**36) if gpu else None,
        )
        self._records.append(
            record | {"time_s": snapshot.time_s, "elapsed_s": self._now_s, "snapshot": snapshot.to_json()}
        )

    def checkpoint(self, step: int) -> None:
        (self.path / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)

    def _empty(self, name: str) -> Path:
        (self.path / name).touch()
        return self.path / name


def make_done(
    folder: Path,
    name: str = "32d-lr0.003-seed0-6ad2926b",
    *,
    lr: float = 0.003,
    floor: float = 1.9,
    steps: int = 500,
    cycles: int = 10,
) -> MadeRun:
    """A run that went well and ended below the bigram count model."""
    made = MadeRun(folder, name)
    made.config(lr=lr)
    made.status()
    val_loss = made.losses(steps, floor=floor)
    made.run(
        results={
            "val_loss": val_loss, "best": {"step": 500, "val_loss": val_loss}, "bigram_val_loss": 2.4384,
            "train_seconds": 62.5,
        }
    )  # fmt: skip
    made.memory(cycles=cycles)
    made.checkpoint(500)
    return made


def make_diverged(folder: Path, name: str = "32d-lr1-seed0-0badf00d") -> MadeRun:
    """A run whose loss became nan at step 40."""
    made = MadeRun(folder, name)
    made.config(lr=1.0)
    reason = "the loss is no longer finite: step 40: loss nan. The checkpoint of step 30 is kept"
    made.status("failed", step=39, reason=reason, stage="train")
    made.run(identity="0badf00d" * 8)
    made.losses(nan_at=40, evals=50)
    made.memory(cycles=1, error_in="train")
    made.checkpoint(30)
    return made


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., MadeRun]:
    """An empty run folder of a name."""
    return lambda name="32d-lr0.003-seed0-6ad2926b": MadeRun(tmp_path / "runs" / "default", name)


@pytest.fixture(scope="session")
def copied_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., MadeRun]:
    """A copy in a folder of a run that is made once, by such a function."""
    known: dict[str, MadeRun] = {}

    def copied(name: str, make: Callable[[Path], MadeRun], folder: Path) -> MadeRun:
        if name not in known:
            known[name] = make(tmp_path_factory.mktemp(name))
        made = copy.copy(known[name])
        made.path = Path(shutil.copytree(made.path, folder / made.path.name))
        return made

    return copied


@pytest.fixture
def done_run(copied_run: Callable[..., MadeRun], tmp_path: Path) -> MadeRun:
    return copied_run("done", make_done, tmp_path / "runs" / "default")


@pytest.fixture
def small_run(copied_run: Callable[..., MadeRun], tmp_path: Path) -> MadeRun:
    """The same with few records."""
    small = functools.partial(make_done, steps=20, cycles=1)
    return copied_run("small", small, tmp_path / "runs" / "default")


@pytest.fixture
def diverged_run(copied_run: Callable[..., MadeRun], tmp_path: Path) -> MadeRun:
    return copied_run("diverged", make_diverged, tmp_path / "runs" / "default")
