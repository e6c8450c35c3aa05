"""How long it takes to submit 1, 100 and 1000 runs to a real Slurm, and how often sbatch is called.

Ours is timed twice: the whole command, and from the checked plan on (reading the limits of the cluster, the
copy of the code, run folders, records, sbatch, job ids on the disk). Beside it a loop of the shell that calls
sbatch once a run, and, with --peer, Hydra's submitit launcher, up to the moment in which its last sbatch has
answered (it goes on to wait for all jobs). Every job is held, so that the cluster does nothing else, and is
cancelled afterwards. All in turn in every round.

    eval "$(slurm/local_cluster.sh env)"
    python -m venv /tmp/peer && /tmp/peer/bin/pip install hydra-submitit-launcher==1.2.0
    python benchmarks/slurm_submit.py [--rounds 3] [--runs 1 100 1000] [--peer /tmp/peer/bin/python]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary

GOAL_S = 3.0
"""100 runs, from the checked plan."""
PEER_TIMEOUT_S = 600.0
ASKED = [
    "dataset=text", "dataset.path=text.txt", "tokenizer=bytes", "training.max_steps=2", "model.d_model=16",
    "slurm.mem=600MB", "slurm.time=5", "slurm.options=['--hold']", "hydra/launcher=slurm",
]  # fmt: skip
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
    """A folder whose bin/sbatch is the real one, and notes each call when it has answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls_path = folder / "calls.txt"
        (folder / "bin").mkdir()
        sbatch = shutil.which("sbatch")
        if sbatch is None:
            raise SystemExit('no sbatch here; see slurm/local_cluster.sh start, and eval "$(... env)"')
        path = folder / "bin" / "sbatch"
        path.write_text(WRAPPER.format(sbatch=sbatch, calls=self.calls_path))
        path.chmod(0o755)
        self.environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def calls(self) -> list[tuple[float, str]]:
        """(when it had answered, its arguments) of each call."""
        if not self.calls_path.exists():
            return []
        lines = [line.partition(" ") for line in self.calls_path.read_text().splitlines()]
        return [(float(when), what) for when, _, what in lines]

    def forget(self) -> None:
        self.calls_path.unlink(missing_ok=True)


def ours(watched: Watched, runs: int) -> dict[str, float]:
    """Seconds of the command, and from the checked plan; calls of sbatch, and of those the questions."""
    home = Path(tempfile.mkdtemp(dir=watched.folder))
    (home / "text.txt").write_text("some words of a text\n" * 2000)
    words = ["-m", *ASKED, f"seed=range({runs})", f"slurm.confirm={runs}", "--json"]
    code = (
        "import sys, time, json; sys.path.insert(0, sys.argv[1])\n"
        "import slurm.submit.runs as runs, experiments\n"
        "plain = runs.submit_plans\n"
        "def timed(*given):\n"
        "    began = time.perf_counter()\n"
        "    try:\n"
        "        return plain(*given)\n"
        "    finally:\n"
        "        open('seconds', 'w').write(str(time.perf_counter() - began))\n"
        "runs.submit_plans = timed\n"
        "sys.exit(experiments.main(sys.argv[2:]))\n"
    )
    watched.forget()
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), *words],
        cwd=home,
        env=watched.environment,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    assert len(json.loads(done.stdout)[0]["submitted"]) == runs
    calls = watched.calls()
    return {
        "command_s": seconds,
        "from_plan_s": float((home / "seconds").read_text()),
        "sbatch_calls": len(calls),
        "test_only_calls": sum("--test-only" in what for _, what in calls),
    }


def loop(watched: Watched, runs: int) -> dict[str, float]:
    """sbatch once a run, as a script of bash does it."""
    watched.forget()
    call = 'sbatch --hold --mem=600M --time=5 --output=/dev/null --wrap="true $n"'
    script = f"for n in $(seq {runs}); do {call}; done"
    began = time.perf_counter()
    done = subprocess.run(["bash", "-ec", script], env=watched.environment, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return {"command_s": seconds, "sbatch_calls": len(watched.calls())}


def peer(watched: Watched, runs: int, python: str) -> dict[str, float]:
    """Hydra's submitit launcher, an array of its own making, until its last sbatch has answered."""
    home = Path(tempfile.mkdtemp(dir=watched.folder))
    (home / "program.py").write_text(PEER)
    watched.forget()
    began, clock = time.perf_counter(), time.time()
    process = subprocess.Popen(
        [
            python, "program.py", "-m", "hydra/launcher=submitit_slurm", f"+seed=range({runs})",
            "hydra.launcher.timeout_min=5", "+hydra.launcher.additional_parameters={hold: true}",
            "hydra.launcher.mem_gb=1", "hydra.launcher.array_parallelism=2000",
        ],
        cwd=home,
        env=watched.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        while not watched.calls():
            if process.poll() is not None or time.perf_counter() - began > PEER_TIMEOUT_S:
                raise RuntimeError((process.stderr.read() if process.stderr else b"").decode())
            time.sleep(0.02)
        calls = watched.calls()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return {"command_s": calls[-1][0] - clock, "sbatch_calls": len(calls)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--peer", metavar="PYTHON", help="of an environment with hydra-submitit-launcher")
    options = parser.parse_args()
    found: dict[str, dict[int, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as name:
        watched = Watched(Path(name))
        for _ in range(options.rounds):
            for runs in options.runs:
                ways: dict[str, Any] = {"ours": ours, "a loop of sbatch": loop}
                if options.peer:
                    ways["hydra-submitit-launcher"] = lambda w, n: peer(w, n, options.peer)
                for way, measure in ways.items():
                    found.setdefault(way, {}).setdefault(runs, []).append(measure(watched, runs))
                    subprocess.run(["scancel", "--me"], check=True)
                    while subprocess.run(["squeue", "-h", "--me"], capture_output=True).stdout.strip():
                        time.sleep(0.2)
    figures = {
        way: {
            str(runs): {
                key: summary([one[key] for one in taken]) if key.endswith("_s") else taken[-1][key]
                for key in taken[0]
            }
            for runs, taken in by_runs.items()
        }
        for way, by_runs in found.items()
    }
    hundred = figures["ours"].get("100")
    save(
        "slurm_submit",
        {
            "unit": "seconds of wall time",
            "slurm": subprocess.run(["sbatch", "--version"], capture_output=True, text=True).stdout.strip(),
            "runs": figures,
            "goal_s": {"100 runs from the checked plan": GOAL_S},
            "goal_met": None if hundred is None else hundred["from_plan_s"]["median"] < GOAL_S,
        },
    )


if __name__ == "__main__":
    main()
