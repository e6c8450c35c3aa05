"""Checks of whole runs, started as a user starts them: what they report against what is measured outside."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu.machine import driver_mib
from benchmarks.gpu.measure import ON_GPU, Report, median, timed

ROOT = Path(__file__).resolve().parents[2]
WORK = Path(os.environ.get("KIT_WORK", "/tmp")) / "runs"
TINY = ("model=32d", "training.seq_len=32", "training.effective_batch=4", "training.eval_tokens=1K")


class Run:
    """One run: its command, its folder, what it left there."""

    def __init__(self, name: str, *overrides: str, quick: bool, vocab: int = 50_257) -> None:
        self.name = name
        self.driver_mib: dict[int, int] = {}  # at most, by process, as the driver counts
        data = f"dataset.path=synthetic:zipf:{500 if quick else vocab}:20M:0"
        self.command = [
            sys.executable, "experiments.py", "dataset=synthetic", data, "dataset.repeat=true",
            f"runs_dir={WORK / name}", *overrides,
        ]  # fmt: skip
        if quick:
            names = {override.split("=")[0] for override in overrides}
            self.command += [tiny for tiny in TINY if tiny.split("=")[0] not in names - {"model"}]
            self.command = [word for word in self.command if not word.startswith("model=") or word == TINY[0]]
            self.command = list(dict.fromkeys(self.command))

    def start(self, **environ: str) -> subprocess.Popen[bytes]:
        WORK.mkdir(parents=True, exist_ok=True)
        with open(WORK / f"{self.name}.log", "ab") as log:
            environ = {**os.environ, **environ}
            return subprocess.Popen(
                self.command, cwd=ROOT, stdout=log, stderr=log, env=environ, start_new_session=True
            )

    def finish(self, timeout_s: float = 150, **environ: str) -> dict[str, Any]:
        """Run to the end; returns exit code, seconds, and the end of the output if it failed."""
        started = time.time()
        process = self.start(**environ)
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
        return next(
            (config.parent for config in sorted((WORK / self.name).glob("*/*/config.yaml"))), WORK / "?"
        )

    def json(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self.folder / name).read_text())
        except (OSError, ValueError):
            return {}

    def rows(self) -> list[dict[str, str]]:
        with open(self.folder / "metrics.csv") as file:
            return list(csv.DictReader(file))

    def tokens_per_s(self) -> list[float]:
        return [float(row["tokens_per_s"]) for row in self.rows()]

    def lines(self, *words: str) -> list[str]:
        log = (self.folder / "log.txt").read_text(errors="replace").splitlines()
        return [line[-200:] for line in log if all(word in line for word in words)]

    def wall_s(self, *stages: str) -> float:
        """Seconds from the begin of each of these stages to that of the next: the wait for the device too."""
        records = [json.loads(line) for line in (self.folder / "memory.jsonl").read_text().splitlines()]
        begins = [
            (r.get("stage"), r.get("time_s") or r.get("time")) for r in records if r.get("event") == "begin"
        ]
        pairs = itertools.pairwise(begins)
        return round(
            sum(after - at for (stage, at), (_, after) in pairs if stage in stages and at and after), 3
        )

    def weights(self) -> str:
        """SHA-256 of the newest checkpoint's weights."""
        newest = sorted((self.folder / "checkpoints").glob("step-*"))[-1]
        return f"{newest.name} {hashlib.sha256((newest / 'model.safetensors').read_bytes()).hexdigest()[:16]}"

    def gpu_peaks(self) -> dict[str, Any]:
        """MiB by stage: tensors at most, and reserved by torch at most."""
        peaks: dict[str, Any] = {}
        for line in (self.folder / "memory.jsonl").read_text().splitlines():
            record = json.loads(line)
            gpu = (record.get("snapshot") or {}).get("gpu") or {}
            if record.get("event") == "end" and gpu:
                before = peaks.get(record["stage"], [0, 0])
                now = [(record.get("peak") or {}).get("gpu_bytes") or 0, gpu.get("peak_reserved_bytes") or 0]
                peaks[record["stage"]] = [max(a, b >> 20) for a, b in zip(before, now, strict=True)]
        return peaks

    def driver_peak_mib(self) -> int | None:
        """MiB of the GPU that the driver counted for the run's process at most; None where it does not."""
        return self.driver_mib.get(int(self.json("status.json").get("pid") or 0))

    def explain(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "memory", "explain", str(self.folder), "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            return {"output": (done.stdout + done.stderr)[-500:]}
        return {key: found[key] for key in ("verdict", "confidence", "cause", "advice") if key in found}


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
    }
    if quick:
        cases = {"32d": cases["32d"]}
    for name, overrides in cases.items():
        with report.part(name) as found:
            run = Run(
                f"speed {name}".replace(" ", "-").replace("=", "-").replace(",", ""), *overrides,
                "training.evals=2", "training.checkpoint_every=10000", "memory.every_steps=50", quick=quick,
            )  # fmt: skip
            found |= run.finish()
            if found["exit"] != 0:
                continue
            facts, wall_s = run.json("run.json"), run.wall_s("first_step", "train")
            device = facts["attempts"][-1].get("device")
            seconds, tokens = facts["results"]["train_seconds"], run.tokens_per_s()
            sizes = facts["memory"].items()
            mfu = [float(row["mfu"]) for row in run.rows() if row.get("mfu")]
            found |= {
                "auto": facts.get("auto"), "device": device, "train_seconds": seconds,
                "wall_s": wall_s, "train_seconds / wall": round(seconds / wall_s, 4) if wall_s else None,
                "tokens_per_s": round(median(tokens[len(tokens) // 2 :])),
                "tokens_per_s of rows": [round(min(tokens)), round(max(tokens))],
                "mfu": median(mfu) if mfu else None, "val_loss": facts["results"].get("val_loss"),
                "estimate_mib": {name: n >> 20 for name, n in sizes if name.endswith("_bytes") and n},
                "gpu_mib": run.gpu_peaks(), "driver_mib": run.driver_peak_mib(),
                "host_mib": (run.json("outcome.json").get("peak_own_bytes") or 0) >> 20,
            }  # fmt: skip


def harness(report: Report, quick: bool) -> None:
    """Time that a run adds to its steps at 64d: a run and a bare loop of the product's step, in turns.

    Of the run: the median of its second half, when what happens once (graphs, the measured peak) is over.
    """
    from benchmarks.gpu.product import Step

    run_ms, step_ms = [], []
    count = 20 if quick else 1000
    shape = (32, 500, 4, 32) if quick else (64, 50_257, 32, 128)
    for turn in range(2):
        run = Run(
            f"harness-{turn}", "model=64d", f"training.max_steps={count}", "training.evals=1",
            "training.checkpoint_every=100000", quick=quick,
        )  # fmt: skip
        with report.part(f"run {turn}") as found:
            found |= run.finish()
            speeds = run.tokens_per_s()
            run_ms.append(1e3 * shape[2] * shape[3] / median(speeds[len(speeds) // 2 :]))
        step = Step(*shape, is_graphed=ON_GPU).step
        step_ms.append(timed({"step": step}, quick)["step"]["ms"])
    with report.part("share") as found:
        found |= {"run_ms": min(run_ms), "step_ms": min(step_ms)}
        found["overhead"] = round(min(run_ms) / min(step_ms) - 1, 4)


def resume(report: Report, quick: bool) -> None:
    """kill -9 in the middle and the same command again, next to a run that nothing disturbed."""
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
            rows = [
                [(r["train_loss"], r["grad_norm"], r["val_loss"]) for r in run.rows()]
                for run in (plain, killed)
            ]
            found["has_same_rows"] = rows[0] == rows[1]
            found["has_same_bits"] = plain.weights() == killed.weights()


OCCUPY = """
import sys, time, torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(max(1, free - int(float(sys.argv[1]) * 2**30)), dtype=torch.uint8, device="cuda")
print("ready", flush=True)
time.sleep(300)
"""
NO_NVML = "raise ImportError('hidden by this check')\n"


def out_of_memory(report: Report, quick: bool) -> None:
    """A step that cannot fit: refused before it starts; forced, its verdict and its advice after."""
    big = [
        "model=256d",
        "training.seq_len=1024",
        "training.effective_batch=8192",
        "training.micro_batch=8192",
    ]
    how = [*big, steps(quick, 2), "training.evals=1", "training.eval_tokens=2K"]
    with report.part("refused") as found:
        found |= Run("refused", *how, quick=quick).finish(90)
    with report.part("forced") as found:
        run = Run("forced", *how, "memory.refuse=false", quick=quick)
        found |= run.finish(100)
        found["explain"] = run.explain() if found["exit"] != 0 else None


def recovery(report: Report, quick: bool) -> None:
    """micro_batch=auto next to a process that holds all but 6 GiB, with NVML and without; and in a process
    that torch gives no more than that, though the GPU is free: it runs out of memory and continues.
    """
    import torch

    hidden = WORK / "no_nvml"
    hidden.mkdir(parents=True, exist_ok=True)
    (hidden / "pynvml.py").write_text(NO_NVML)
    without_nvml = {"PYTHONPATH": f"{hidden}:{os.environ.get('PYTHONPATH', '')}"}
    share = 6 * 2**30 / torch.cuda.get_device_properties(0).total_memory
    limited = {"PYTORCH_CUDA_ALLOC_CONF": f"per_process_memory_fraction:{share:.3f}"}
    cases = {"neighbour": {}, "neighbour, without NVML": without_nvml, "limited": limited}
    for name, environ in cases.items():
        with report.part(name) as found, neighbour(report, is_on=name != "limited"):
            how = ("model=512d", steps(quick, 3), *long(quick), "training.evals=1", "training.eval_tokens=8K")
            run = Run(f"auto-{name.replace(', ', '-').replace(' ', '-')}", *how, quick=quick)
            found |= run.finish(80, **environ)
            attempts = run.json("run.json").get("attempts") or []
            found |= {"auto": run.json("run.json").get("auto"), "attempts": len(attempts)}
            found["smaller"] = attempts[-1].get("smaller_micro_batch") if attempts else None
            found["gpu_mib"], found["driver_mib"] = run.gpu_peaks(), run.driver_peak_mib()
            found["explain"] = run.explain() if found["exit"] != 0 else None


@contextmanager
def neighbour(report: Report, is_on: bool) -> Iterator[None]:
    """Within the block another process holds all but 6 GiB of the GPU."""
    if not is_on:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", OCCUPY, "6"], stdout=subprocess.PIPE, text=True)
    try:
        report["neighbour"] = process.stdout.readline().strip() if process.stdout else None
        yield
    finally:
        process.kill()
        process.wait()


def ensembles(report: Report, quick: bool) -> None:
    """32 runs as one program against one alone; and two with deterministic algorithms."""
    size = 2 if quick else 32
    how = ["model=32d", "training.evals=1", "training.eval_tokens=8K", steps(quick, 200)]
    seeds = f"ensemble.seed=[{','.join(map(str, range(size)))}]"
    together = Run("together", *how, seeds, f"ensemble.together={size}", quick=quick, vocab=257)
    alone = Run("alone", *how, "seed=0", quick=quick, vocab=257)
    with report.part("together") as found:
        found |= together.finish()
        found["train_seconds"] = together.json("run.json")["results"]["train_seconds"]
    with report.part("alone") as found:
        found |= alone.finish(80)
        found["train_seconds"] = alone.json("run.json")["results"]["train_seconds"]
        found["speedup"] = round(size * found["train_seconds"] / report["together"]["train_seconds"], 2)
        last = [float(run.rows()[-1]["train_loss"]) for run in (together, alone)]  # both of seed 0
        found["loss_error"] = abs(last[0] - last[1])
        found["is_right"] = found["loss_error"] <= 0.05
    with report.part("deterministic") as found:
        how += ["ensemble.seed=[0,1]", "training.deterministic=true"]
        found |= Run("deterministic-together", *how, quick=quick, vocab=257).finish(120)


def compiled(report: Report, quick: bool) -> None:
    how = ["model=64d", steps(quick, 120), "training.evals=2"]
    for name, more in (("eager", []), ("compiled", ["training.compile=true"])):
        with report.part(name) as found:
            run = Run(name, *how, *more, quick=quick)
            found |= run.finish()
            facts, tokens = run.json("run.json"), run.tokens_per_s()
            found["tokens_per_s"] = round(median(tokens[len(tokens) // 2 :]))
            found["stages_s"] = facts["attempts"][-1].get("seconds")
            found["host_mib"] = {
                "estimate": facts["memory"]["own_bytes"] >> 20,
                "peak": (run.json("outcome.json").get("peak_own_bytes") or 0) >> 20,
            }


def profiled(report: Report, quick: bool) -> None:
    """Whether a profile is written, and whether the steps after its window are as fast as those before."""
    count = 20 if quick else 200
    window = f"training.profile={count // 2}:{count // 2 + 2}"
    with report.part("run") as found:
        how = (
            "model=64d",
            f"training.max_steps={count}",
            "training.evals=1",
            window,
            "memory.every_steps=10",
        )
        run = Run("profiled", *how, quick=quick)
        found |= run.finish(100)
        tokens = run.tokens_per_s()
        found["tokens_per_s before"] = round(median(tokens[count // 4 : count // 2 - 1]))
        found["tokens_per_s after"] = round(median(tokens[count // 2 + 5 :]))
        found["files"] = sorted(path.name for path in run.folder.glob("profile*"))


def first_run(report: Report, quick: bool) -> None:
    """The README's first command: what a newcomer with a GPU sees."""
    with report.part("run") as found:
        run = Run("first", quick=quick)
        run.command = [sys.executable, "experiments.py", "model=32d", f"runs_dir={WORK / 'first'}"]
        run.command += ["training.max_steps=10", "training.evals=1"] if quick else []
        found |= run.finish()
        output = (WORK / "first.log").read_text(errors="replace")
        found["summary"] = output[output.find("── ") :][:2500]
        found["lines"] = [line for line in output.splitlines() if "[mem]" in line or "tok/s" in line][:6]
