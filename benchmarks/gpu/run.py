"""Runs the GPU's checks, each in its own process and time, and writes the report after each of them.

`bash benchmarks/gpu/run.sh` calls this. As `run.py CHECK FILE` it is one check, which writes FILE.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.processes import commit_of

TESTS = [
    "training/test_step.py",
    "memory/measure/test_peaks.py",
    "models/test_loss.py",
    "training/test_optimizers.py",
]
NO_TIME = "no time left"
PYTEST = ["-m", "pytest", "-q", "--maxfail=20", "-p", "no:cacheprovider", "-rs"]


@dataclass(frozen=True)
class Check:
    """One check. A check that is not timed can run in parallel with others."""

    name: str
    function: str  # module.function of this folder, or pytest
    timeout_s: float  # on a GPU
    args: tuple[Any, ...] = ()  # those that follow the report and `quick`
    least_s: float = 20  # not started with less time left
    is_timed: bool = True
    gpu_only: bool = False


def _steps(function: str, name: str, width: int, timeout_s: float, least_s: float = 20, **more: Any) -> Check:
    args = (width, 50_257, 32, 128)
    return Check(name, f"steps.{function}", timeout_s, args, least_s, **more)


CHECKS = (
    Check("machine", "machine.machine", 110, least_s=30),
    _steps("speed", "speed_32d", 32, 80),
    *(_steps("speed", f"speed_{width}d", width, 90, gpu_only=True) for width in (64, 256, 512)),
    Check("run_speed", "runs.speed", 180, least_s=45),
    Check("run_resume", "runs.resume", 130, least_s=50, is_timed=False),
    Check("architectures", "steps.architectures", 150, (False,), is_timed=False),
    Check("deterministic", "steps.architectures", 150, (True,), is_timed=False, gpu_only=True),
    Check("tests", "pytest", 110, least_s=30, is_timed=False),
    Check("run_harness", "runs.harness", 90, least_s=45),
    *(_steps("compiled", f"compiled_{w}d", w, 120, 45, gpu_only=True) for w in (32, 64)),
    Check("run_recovery", "runs.recovery", 130, least_s=45, gpu_only=True),
    Check("run_ensembles", "runs.ensembles", 120, least_s=45),
    *(_steps("compiled", f"compiled_{w}d", w, 300, 100, gpu_only=True) for w in (256, 512)),
    Check("memory_constants", "machine.constants", 100, least_s=60, gpu_only=True),
)
"""In the order of what they are worth."""


def perform(name: str, file: str) -> None:
    """One check, in this process."""
    check = next(check for check in CHECKS if check.name == name)
    from benchmarks.gpu.measure import ON_GPU, Report

    args = check.args if ON_GPU else {"steps.speed": (32, 500, 4, 32)}.get(check.function, check.args)
    module, _, function = check.function.partition(".")
    report = Report(file)
    report.save()
    getattr(importlib.import_module(f"benchmarks.gpu.{module}"), function)(report, not ON_GPU, *args)
    report.save()


class Session:
    """All checks that are left, within a budget of time."""

    def __init__(self) -> None:
        environ = os.environ
        self.is_on_gpu = environ["KIT_DEVICE"] == "cuda"
        self.started = float(environ.get("KIT_STARTED", time.time()))
        self.budget_s = float(environ.get("KIT_BUDGET_S", 530 if self.is_on_gpu else 3600))
        self.out, self.work = Path(environ["OUT"]), Path(environ["KIT_WORK"])
        self.only = tuple(name for name in environ.get("KIT_ONLY", "").split(",") if name)
        self.report: dict[str, Any] = {"device": environ["KIT_DEVICE"], "commit": commit_of(ROOT)}
        self.report["date"] = time.strftime("%Y-%m-%d")
        self.checks: dict[str, Any] = {}
        for path in (self.out, self.work):
            path.mkdir(parents=True, exist_ok=True)
        # What an earlier call of this commit has found is kept.
        with contextlib.suppress(OSError, ValueError, KeyError):
            before = json.loads((self.out / "report.json").read_text())
            if all(before[key] == self.report[key] for key in ("device", "commit")):
                self.checks = before["checks"]

    def left_s(self) -> float:
        return self.budget_s - (time.time() - self.started)

    def run(self) -> None:
        wanted = [
            check
            for check in CHECKS
            if (self.is_on_gpu or not check.gpu_only) and (not self.only or check.name.startswith(self.only))
        ]
        while wanted:
            group = [wanted.pop(0)]
            while wanted and self.is_on_gpu and not group[0].is_timed and not wanted[0].is_timed:
                group.append(wanted.pop(0))
            started = {}
            for check in group:
                if self.left_s() < check.least_s:
                    self.checks.setdefault(check.name, {"exit": NO_TIME, "found": None})
                else:
                    started[check] = (self.start(check), time.time())
            while started:
                for check, (process, at) in list(started.items()):
                    most_s = check.timeout_s * (1 if self.is_on_gpu else 6)
                    code: int | str | None = process.poll()
                    if code is None and time.time() - at > min(most_s, self.left_s() + time.time() - at - 8):
                        code = "timeout"
                        with contextlib.suppress(OSError):
                            os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                    if code is not None:
                        del started[check]
                        self.end(check, code, time.time() - at)
                time.sleep(0.05)
        self.save()

    def start(self, check: Check) -> subprocess.Popen[bytes]:
        words = [__file__, check.name, str(self.work / f"{check.name}.json")]
        if check.function == "pytest":
            words = [*PYTEST, *(f"tests/{test}" for test in (TESTS if self.is_on_gpu else TESTS[1:2]))]
        with open(self.work / f"{check.name}.log", "wb") as log:
            how: dict[str, Any] = {"stdout": log, "stderr": log, "start_new_session": True}
            return subprocess.Popen([sys.executable, "-u", *words], cwd=ROOT, **how)

    def end(self, check: Check, code: int | str, seconds: float) -> None:
        found: dict[str, Any] = {"exit": code, "seconds": round(seconds, 1), "found": None}
        with contextlib.suppress(OSError, ValueError):
            found["found"] = json.loads((self.work / f"{check.name}.json").read_text())
        if code != 0 or found["found"] is None:
            found["log"] = (self.work / f"{check.name}.log").read_text(errors="replace")[-1500:]
        self.checks[check.name] = found
        print(f"[{time.time() - self.started:5.0f} s] {check.name}: exit {code}, {seconds:.0f} s", flush=True)
        self.save()

    def save(self) -> None:
        from benchmarks.gpu.summary import at, summary

        self.report |= {"seconds": round(time.time() - self.started), "checks": self.checks}
        facts = at(self.report, "machine", "facts") or {}
        self.report["versions"] = {name: facts.get(name) for name in ("gpu", "torch", "cuda", "python")}
        text = json.dumps(self.report, indent=1)
        (self.out / "report.json.part").write_text(text)
        (self.out / "report.json.part").rename(self.out / "report.json")
        if self.is_on_gpu:
            name = re.sub(r"[^a-z0-9]+", "_", str(facts.get("name") or "gpu").lower()).strip("_")
            (self.out / f"gpu_{name}.json").write_text(text + "\n")
        (self.out / "summary.txt").write_text(summary(self.report) + "\n")

    def pack(self) -> None:
        """Logs of all checks and runs in one file."""
        with tarfile.open(self.out / "logs.tar.gz", "w:gz") as archive:
            for pattern in ("*.log", "runs/*.log", "runs/*/*/*/log.txt", "runs/*/*/*/metrics.csv"):
                for path in sorted(self.work.glob(pattern)):
                    archive.add(path, "_".join(path.relative_to(self.work).parts))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        perform(*sys.argv[1:])
    else:
        session = Session()
        session.run()
        session.pack()
        print((session.out / "summary.txt").read_text())
