"""Checks of whole runs, started as a user starts them: what they report next to what is measured outside."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.machine import driver_mib
from benchmarks.gpu.measure import ON_GPU, Report, timed
from benchmarks.harness import ROOT

WORK = Path(os.environ.get("KIT_WORK", "/tmp")) / "runs"
TINY = ("model=32d", "training.seq_len=32", "training.effective_batch=4", "training.eval_tokens=1K")


class Run:
    """One run: its command, its folder, what it left there."""

    def __init__(self, name: str, *overrides: str, quick: bool, vocab: int = 50_257) -> None:
        self.name = name.replace(",", "").replace("=", "-").replace(" ", "-")
        self.driver_mib: dict[int, int] = {}  # at most, by process, as the driver counts
        words = dict(override.split("=", 1) for override in overrides)
        if quick:
            tiny = dict(word.split("=") for word in TINY)
            words = {"model": "32d", **tiny, **{key: value for key, value in words.items() if key != "model"}}
        data = f"dataset.path=synthetic:zipf:{500 if quick else vocab}:20M:0"
        self.command = [
            sys.executable, "experiments.py", "dataset=synthetic", data, "dataset.repeat=true",
            f"runs_dir={WORK / self.name}", *(f"{key}={value}" for key, value in words.items()),
        ]  # fmt: skip

    def start(self, **environ: str) -> subprocess.Popen[bytes]:
        WORK.mkdir(parents=True, exist_ok=True)
        with open(WORK / f"{self.name}.log", "ab") as log:
            how: dict[str, Any] = {"stdout": log, "stderr": log, "start_new_session": True}
            return subprocess.Popen(self.command, cwd=ROOT, env={**os.environ, **environ}, **how)

    def finish(self, timeout_s: float = 150, **environ: str) -> dict[str, Any]:
        """Run to the end; returns exit code, seconds, and the end of the output if it failed."""
        started, process = time.time(), self.start(**environ)
        code: int | str | None = None
        while code is None:
            code = process.poll()
            if time.time() - started > timeout_s * (1 if ON_GPU else 4):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = "timeout"
            for pid, mib in driver_mib().items() if ON_GPU else ():
                self.driver_mib[pid] = max(mib, self.driver_mib.get(pid, 0))
            time.sleep(0.1)
        found: dict[str, Any] = {"exit": code, "seconds": round(time.time() - started, 1)}
        if code != 0:
            found["output"] = (WORK / f"{self.name}.log").read_text(errors="replace")[-1500:]
        return found

    @property
    def folder(self) -> Path:
        configs = sorted((WORK / self.name).glob("*/*/config.yaml"))
        return configs[0].parent if configs else WORK / "?"

    def json(self, name: str) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            return json.loads((self.folder / name).read_text())
        return {}

    def rows(self) -> list[dict[str, str]]:
        with open(self.folder / "metrics.csv") as file:
            return list(csv.DictReader(file))

    def second_half(self) -> list[float]:
        """Tokens a second of the second half of the run."""
        tokens = [float(row["tokens_per_s"]) for row in self.rows()]
        return tokens[len(tokens) // 2 :]

    def weights(self) -> str:
        """SHA-256 of the newest checkpoint's weights."""
        newest = sorted((self.folder / "checkpoints").glob("step-*"))[-1]
        digest = hashlib.sha256((newest / "model.safetensors").read_bytes()).hexdigest()
        return f"{newest.name} {digest[:16]}"

    def driver_peak_mib(self) -> int | None:
        """MiB of the GPU that the driver counted at most for the run's process; None if it does not."""
        return self.driver_mib.get(int(self.json("status.json").get("pid") or 0))


def steps(quick: bool, count: int) -> str:
    return f"training.max_steps={20 if quick else count}"


def long(quick: bool) -> Sequence[str]:
    """A shape at which a GPU is busy."""
    return () if quick else ("training.seq_len=1024", "training.effective_batch=16")


def speed(report: Report, quick: bool) -> None:
    """Speed, MFU and memory as a run reports them, against the clock and the device."""
    cases: dict[str, tuple[str, ...]] = {
        "32d": ("model=32d", steps(quick, 600)),
        "32d, cuda_graph=false": ("model=32d", steps(quick, 600), "training.cuda_graph=false"),
        "32d, cuda_graph=true": ("model=32d", steps(quick, 600), "training.cuda_graph=true"),
        "32d, fp16": ("model=32d", steps(quick, 200), "training.precision=fp16"),
        "512d": ("model=512d", steps(quick, 60), *long(quick)),
        "64d, compiled": ("model=64d", steps(quick, 120), "training.compile=true"),
    }
    more = ("training.evals=2", "training.checkpoint_every=10000", "memory.every_steps=50")
    for name, overrides in cases.items() if not quick else [("32d", cases["32d"])]:
        with report.part(name) as found:
            run = Run(f"speed {name}", *overrides, *more, quick=quick)
            found |= run.finish()
            if found["exit"] != 0:
                continue
            facts = run.json("run.json")
            mfu = [float(row["mfu"]) for row in run.rows() if row.get("mfu")]
            sizes = {name: n for name, n in facts["memory"].items() if name.endswith("_bytes") and n}
            found |= {
                "auto": facts.get("auto"), "device": facts["attempts"][-1].get("device"),
                "train_seconds": facts["results"]["train_seconds"],
                "tokens_per_s": round(median(run.second_half())), "mfu": median(mfu) if mfu else None,
                "val_loss": facts["results"].get("val_loss"),
                "estimate_mib": {name: n >> 20 for name, n in sizes.items()},
                "driver_mib": run.driver_peak_mib(),
                "host_mib": (run.json("outcome.json").get("peak_own_bytes") or 0) >> 20,
            }  # fmt: skip


def harness(report: Report, quick: bool) -> None:
    """Time that a run adds to its steps at 64d: a run and a bare loop of the product's step, in turns."""
    from benchmarks.gpu.product import Step

    run_ms, step_ms = [], []
    shape = (32, 500, 4, 32) if quick else (64, 50_257, 32, 128)
    more = ("training.evals=1", "training.checkpoint_every=100000")
    for turn in range(2):
        run = Run(f"harness-{turn}", "model=64d", steps(quick, 1000), *more, quick=quick)
        with report.part(f"run {turn}") as found:
            found |= run.finish()
            run_ms.append(1e3 * shape[2] * shape[3] / median(run.second_half()))
        step = Step(*shape, is_graphed=ON_GPU).step
        step_ms.append(timed({"step": step}, quick)["step"]["ms"])
    with report.part("share") as found:
        found |= {"run_ms": min(run_ms), "step_ms": min(step_ms)}
        found["overhead"] = round(min(run_ms) / min(step_ms) - 1, 4)


def resume(report: Report, quick: bool) -> None:
    """kill -9 in the middle and the same command again, next to an undisturbed run."""
    how = ["model=64d", "training.max_steps=60", "training.evals=2", "training.checkpoint_every=10"]
    for name, more in (("deterministic", ["training.deterministic=true"]), ("default", [])):
        with report.part(name) as found:
            plain = Run(f"{name}-undisturbed", *how, *more, quick=quick)
            killed = Run(f"{name}-killed", *how, *more, quick=quick)
            found["undisturbed"] = plain.finish()
            process, deadline = killed.start(), time.time() + (100 if ON_GPU else 400)
            while process.poll() is None and time.time() < deadline:
                if list(killed.folder.glob("checkpoints/step-*")):
                    break
                time.sleep(0.01)
            status = killed.json("status.json")
            os.killpg(process.pid, signal.SIGKILL)
            if status.get("state") == "running" and status.get("pid"):
                os.kill(int(status["pid"]), signal.SIGKILL)  # core.py has a session of its own
            process.wait()
            time.sleep(1.5)
            found["killed at step"] = status.get("step")
            found["second"] = killed.finish()
            found["resumed from"] = killed.json("run.json")["attempts"][-1].get("resumed_from_step")
            found["has_same_bits"] = plain.weights() == killed.weights()


def recovery(report: Report, quick: bool) -> None:
    """micro_batch=auto in a process to which torch gives 6 GiB: it runs out of memory and continues."""
    import torch

    share = 6 * 2**30 / torch.cuda.get_device_properties(0).total_memory
    limited = {"PYTORCH_CUDA_ALLOC_CONF": f"per_process_memory_fraction:{share:.3f}"}
    how = ("model=512d", steps(quick, 3), *long(quick), "training.evals=1", "training.eval_tokens=8K")
    with report.part("limited") as found:
        run = Run("auto-limited", *how, quick=quick)
        found |= run.finish(80, **limited)
        facts = run.json("run.json")
        attempts = facts.get("attempts") or []
        found |= {"auto": facts.get("auto"), "attempts": len(attempts)}
        found["smaller"] = attempts[-1].get("smaller_micro_batch") if attempts else None


def ensembles(report: Report, quick: bool) -> None:
    """32 runs as one program against one alone; and two with deterministic algorithms."""
    size = 2 if quick else 32
    how = ["model=32d", "training.evals=1", "training.eval_tokens=8K", steps(quick, 200)]
    seeds = f"ensemble.seed=[{','.join(map(str, range(size)))}]"
    together = Run("together", *how, seeds, f"ensemble.together={size}", quick=quick, vocab=257)
    alone = Run("alone", *how, "seed=0", quick=quick, vocab=257)
    for name, run in (("together", together), ("alone", alone)):
        with report.part(name) as found:
            found |= run.finish()
            found["train_seconds"] = run.json("run.json")["results"]["train_seconds"]
            if run is alone:
                found["speedup"] = round(
                    size * found["train_seconds"] / report["together"]["train_seconds"], 2
                )
                last = [float(one.rows()[-1]["train_loss"]) for one in (together, alone)]  # both of seed 0
                found["loss_error"] = abs(last[0] - last[1])
                found["is_right"] = found["loss_error"] <= 0.05
    with report.part("deterministic") as found:
        how += ["ensemble.seed=[0,1]", "training.deterministic=true"]
        found |= Run("deterministic-together", *how, quick=quick, vocab=257).finish(120)
