"""Measure how long it takes to submit 1, 100 and 1000 runs to a real Slurm, and count the calls of sbatch.

Ours is timed as a whole command, and by phase: composing and checking the configurations, planning, and from
the checked plan on (limits of the cluster, copy of the code, run folders, records, sbatch, job ids on the
disk); and with 10,000 runs that four jobs share. Next to it a loop of the shell that calls sbatch once a run,
and, with --peer, Hydra's submitit launcher until its last sbatch has answered. Every job is held, so that the
cluster does nothing else, and is cancelled afterwards.

    eval "$(slurm/local_cluster.sh env)"
    python -m venv /tmp/peer && /tmp/peer/bin/pip install hydra-submitit-launcher==1.2.0
    python benchmarks/slurm_submit.py [--peer /tmp/peer/bin/python]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import ROOT, benchmark, in_turns, summary
from benchmarks.processes import run

GOAL_S = {"100 runs from the checked plan": 3.0, "1,000 runs, whole command": 12.0}
SHARED = (10_000, "slurm.workers=4")
ASKED = [
    "dataset=text", "dataset.path=text.txt", "tokenizer=bytes", "training.max_steps=2", "model.d_model=16",
    "slurm.mem=600MB", "slurm.time=5", "slurm.options=['--hold']", "hydra/launcher=slurm",
]  # fmt: skip
OURS = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import conf.command_line.request, slurm.submit.submit_runs as runs, experiments
seconds = {}
def timed(module, name, key):
    plain = getattr(module, name)
    def call(*given, **named):
        began = time.perf_counter()
        try:
            return plain(*given, **named)
        finally:
            seconds[key] = time.perf_counter() - began
            json.dump(seconds, open("seconds.json", "w"))
    setattr(module, name, call)
timed(conf.command_line.request, "read_request", "compose_s")
timed(runs, "plan_all", "plan_s")
timed(runs, "submit_plans", "from_plan_s")
sys.exit(experiments.main(sys.argv[2:]))
"""
PEER = """
import hydra
@hydra.main(version_base="1.3", config_path=None, config_name=None)
def main(config): pass
main()
"""
WRAPPER = """#!/bin/sh
{sbatch} "$@"; status=$?
echo "$(date +%s.%N) $*" >> {calls}
exit $status
"""


class Watched:
    """A folder with an sbatch for PATH that calls the real one and notes each call when it has answered."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._calls = folder, folder / "calls.txt"
        sbatch, path = shutil.which("sbatch"), folder / "bin" / "sbatch"
        if sbatch is None:
            raise SystemExit('no sbatch here; see slurm/local_cluster.sh start, and eval "$(... env)"')
        path.parent.mkdir()
        path.write_text(WRAPPER.format(sbatch=sbatch, calls=self._calls))
        path.chmod(0o755)
        self.environment = os.environ | {"PATH": f"{path.parent}{os.pathsep}{os.environ['PATH']}"}

    def home(self) -> Path:
        """A new folder to submit from; earlier calls and jobs are gone."""
        subprocess.run(["scancel", "--me"], check=True)
        while subprocess.run(["squeue", "-h", "--me"], capture_output=True).stdout.strip():
            time.sleep(0.2)
        self._calls.unlink(missing_ok=True)
        return Path(tempfile.mkdtemp(dir=self.folder))

    def calls(self) -> list[tuple[float, str]]:
        """(when it had answered, its arguments) of each call."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [(float(line.partition(" ")[0]), line.partition(" ")[2]) for line in lines]

    def ours(self, runs: int, *more: str) -> dict[str, float]:
        """The whole command and its phases."""
        home = self.home()
        (home / "text.txt").write_text("some words of a text\n" * 2000)
        words = ["-m", *ASKED, f"seed=range({runs})", f"slurm.confirm={runs}", *more, "--json"]
        command = [sys.executable, "-c", OURS, ROOT, *words]
        done = run(command, cwd=home, env=self.environment, errors=False)
        assert len(json.loads(done.output)[0]["submitted"]) == runs
        calls, tests = self.calls(), sum("--test-only" in what for _, what in self.calls())
        return {
            "command_s": done.wall_s, **json.loads((home / "seconds.json").read_text()),
            "sbatch_calls": len(calls), "test_only_calls": tests,
        }  # fmt: skip

    def loop(self, runs: int) -> dict[str, float]:
        """sbatch once a run, as a script of bash does it."""
        call = 'sbatch --hold --mem=600M --time=5 --output=/dev/null --wrap="true $n"'
        script, home = f"for n in $(seq {runs}); do {call}; done", self.home()
        done = run(["bash", "-ec", script], cwd=home, env=self.environment)
        return {"command_s": done.wall_s, "sbatch_calls": len(self.calls())}

    def peer(self, python: str, runs: int) -> dict[str, float]:
        """Hydra's submitit launcher, until its last sbatch has answered."""
        home = self.home()
        (home / "program.py").write_text(PEER)
        began = time.time()
        process = subprocess.Popen(
            [
                python, "program.py", "-m", "hydra/launcher=submitit_slurm", f"+seed=range({runs})",
                "hydra.launcher.timeout_min=5", "+hydra.launcher.additional_parameters={hold: true}",
                "hydra.launcher.mem_gb=1", "hydra.launcher.array_parallelism=2000",
            ],
            cwd=home, env=self.environment, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            while not self.calls():
                if process.poll() is not None or time.time() - began > 600:
                    raise RuntimeError(f"the launcher submitted nothing; exit {process.poll()}")
                time.sleep(0.02)
            calls = self.calls()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return {"command_s": calls[-1][0] - began, "sbatch_calls": len(calls)}


def _medians(taken: list[dict[str, float]]) -> dict[str, Any]:
    """Times of all rounds, and the counts of the last one."""
    return {
        key: summary([one[key] for one in taken]) if key.endswith("_s") else taken[-1][key]
        for key in (taken[0] if taken else ())
    }


@benchmark(rounds=(3, 1), runs=([1, 100, 1000], [1, 3]), peer=str)
def measured(chosen: Any) -> Any:
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        watched = Watched(Path(name))
        ways: dict[str, Any] = {"ours": watched.ours, "a loop of sbatch": watched.loop}
        if chosen.peer:
            ways["hydra-submitit-launcher"] = partial(watched.peer, chosen.peer)
        for runs in chosen.runs:
            found = in_turns({way: partial(measure, runs) for way, measure in ways.items()}, chosen.rounds)
            for way, taken in found.items():
                figures.setdefault(way, {})[str(runs)] = _medians(taken)
        shared = _medians([watched.ours(*SHARED) for _ in range(0 if chosen.quick else chosen.rounds)])
        watched.home()
    slurm = run(["sbatch", "--version"]).output.strip()
    return {"slurm": slurm, "runs": figures, "10,000 runs in 4 jobs": shared, "goal_s": GOAL_S}
