"""Measure how soon `python -m slurm status` reports 10,000 runs, and how soon it reports an OOM kill as such.

Runs: folders as a submitter, runs and supervisors leave them: 60% done, 15% queued, 10% running with a full
memory.ring each, 10% failed, 5% killed for memory. Each round measures twice: without the index of runs that
are done (.submissions/done.json), and with the one that the first command wrote. squeue and sacct are
programs on PATH that note each call and print what a cluster would, with three rows a task; so the time is
that of `status`, not of a slurmctld.

With --kills N, which needs root and a local cluster (`slurm/local_cluster.sh start`, SLURM_CONF set): N jobs
that the kernel kills for memory, one after the other. Counted from the last sign of life of the victim until
`study_states` says `oom`; and until submitit's `results()` raises for the same program, started by submitit.

    python benchmarks/slurm_status.py [--runs 10000] [--kills 3]
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tests")]

from made_studies import FakeSlurm, MadeStudy

from benchmarks.harness import ROOT, benchmark, summary
from benchmarks.processes import run
from memory.record.ring import HISTORY, RingWriter
from memory.record.samples import ProcessSample, Sample
from slurm.records.submissions import SLURM, Array, Place, Submission, add_place
from slurm.states import ENDED
from slurm.status import study_states
from slurm.status.done_runs import INDEX

GOAL_S, INDEXED_GOAL_S = 6.0, 3.0
"""Of 10,000 runs."""
SHARES = {"done": 600, "queued": 150, "running": 100, "failed": 100, "oom": 50}
HEADER = "step,tokens,train_loss,val_loss,lr,grad_norm,flops,seconds,tokens_per_s,mfu\n"
CLIENT = """#!/bin/sh
echo {name} >>{folder}/calls.txt
cat {folder}/{name}.txt
"""
GROW = """
import time
time.sleep({age_s})
held = []
while True:
    held.append(bytearray(8 << 20))
    open({sign!r}, "w").write(repr(time.time()))
    time.sleep(0.05)
"""
KILL_MB, AGE_S = 120, 30
"""A victim lives for AGE_S before it grows: submitit asks less and less often as a job gets older."""


def make_study(folder: Path, runs: int) -> tuple[FakeSlurm, dict[str, int]]:
    """The study, and what the cluster says of it."""
    states = [state for state, share in SHARES.items() for _ in range(share * runs // 1000)]
    states += ["done"] * (runs - len(states))
    names = [f"32d-lr0.003-seed{n}-{n:08x}" for n in range(runs)]
    study, said, now_s = MadeStudy(folder, names), FakeSlurm(), time.time()
    for number, (name, state) in enumerate(zip(names, states, strict=True)):
        job = f"4242_{number}"
        if state == "queued":
            said.wait(job)
            continue
        one_run(study, name, state, now_s)
        if state == "running":
            said.wait(job, "RUNNING", "None", start=str(int(now_s - 900)), nodes="n1")
            said.row(job, "RUNNING")
            continue
        word = {"done": "COMPLETED", "failed": "FAILED", "oom": "FAILED"}[state]
        said.row(job, word, "0:0" if state == "done" else "1:0")
        said.row(f"{job}.batch", word)
        of_step = ("OUT_OF_MEMORY", "0:125") if state == "oom" else (word, "0:0")
        said.row(f"{job}.0", *of_step)
    return said, {state: states.count(state) for state in SHARES}


def one_run(study: MadeStudy, name: str, state: str, now_s: float) -> None:
    """Files of a run that has begun."""
    folder, own = study.folder / name, {"oom": "running"}.get(state, state)
    reason = "ValueError: no" if state == "failed" else None
    study.status(name, own, reason=reason, heartbeat_s=now_s - 2)
    os.utime(folder / "status.json", (now_s - 2, now_s - 2))
    rows = [f"{n},{n * 4096},3.1,,0.001,1.0,1e12,{n * 0.4},10240,\n" for n in range(1, 401)]
    (folder / "metrics.csv").write_text(HEADER + "".join(rows))
    if state == "running":
        study.lock(name)
    else:
        study.outcome(name, exit_code=0 if state == "done" else 1)
    if state == "oom":
        study.killed_for_memory(name)
    if state in ("running", "oom"):
        tree = tuple(ProcessSample(100 + n, "python", 200 << 20, 50 << 20, 0, 250 << 20) for n in range(5))
        with RingWriter(folder / "memory.ring", {"pid": 100, "attempt": 1, "host": "n1"}) as ring:
            for at in range(HISTORY):
                ring.add(Sample(now_s - HISTORY + at, (300 + at % 500) << 20, 1 << 30, tree=tree))


def clients(folder: Path, said: FakeSlurm) -> dict[str, str]:
    """squeue and sacct on PATH; the variables for it."""
    folder.mkdir()
    (folder / "squeue.txt").write_text("".join(f"{line}\n" for line in said.queue or []))
    (folder / "sacct.txt").write_text(f"{said.accounting}\n")
    for name in ("squeue", "sacct"):
        (folder / name).write_text(CLIENT.format(name=name, folder=folder))
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def status_of_many(runs: int, rounds: int) -> dict[str, Any]:
    """Seconds a round without and with the index, and calls of Slurm's clients in one command."""
    with tempfile.TemporaryDirectory() as place:
        said, states = make_study(Path(place) / "runs" / "sweep", runs)
        environment = clients(Path(place) / "bin", said)
        calls, index = Path(place) / "bin" / "calls.txt", Path(place) / "runs/sweep/.submissions" / INDEX
        expected = {state: count for state, count in states.items() if count}

        def seconds() -> float:
            calls.unlink(missing_ok=True)
            command = [sys.executable, "-m", "slurm", "status", "sweep"]
            done = run(command, cwd=Path(place), env=environment, code=None, errors=False)
            found = {state: int(count) for count, state in re.findall(r"(\d+) (\w+)[,;\n]", done.output)}
            if {state: found.get(state) for state in expected} != expected:
                raise AssertionError(f"{done.output[:200]} where {states} are")
            return done.wall_s

        cold_s, indexed_s = [], []
        for _ in range(rounds):
            index.unlink(missing_ok=True)
            cold_s.append(seconds())
            indexed_s.append(seconds())
        asked = calls.read_text().split()
        return {
            "runs": runs, "states": states, "seconds": summary(cold_s), "goal_s": GOAL_S,
            "indexed_s": summary(indexed_s), "indexed_goal_s": INDEXED_GOAL_S,
            "calls": {name: asked.count(name) for name in ("squeue", "sacct")},
        }  # fmt: skip


def word_for_a_kill(kills: int) -> dict[str, Any]:
    """Seconds from the victim's last sign of life to the word `oom`, ours and submitit's."""
    with tempfile.TemporaryDirectory(prefix="hw-kill-") as place:
        ours = [_ours(Path(place) / f"ours{number}") for number in range(kills)]
        theirs = [_submitit(Path(place) / f"submitit{number}") for number in range(kills)]
    right = sum(bool(re.search("out.of.memory|oom", said, re.IGNORECASE)) for _, said in theirs)
    return {
        "kills": kills, "age_s": AGE_S, "status_s": summary(ours), "submitit_says_oom": right,
        "submitit_results_s": summary([seconds for seconds, _ in theirs]),
        "submitit_says": theirs[0][1][:400],
    }  # fmt: skip


def _ours(place: Path) -> float:
    """A supervised program as the run of a job, as `slurm.in_job` starts one."""
    from memory.supervision.options import command_line

    study, folder, sign = place / "sweep", place / "sweep" / "a", place / "sign"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 0\n")
    array = Array(0, f"kill-{os.getpid()}-{place.name}", [["a"]])
    facts = ("1", study, SLURM, time.time(), "root", os.uname().nodename, str(place), "-", [array])
    command = command_line([sys.executable, "-c", GROW.format(sign=str(sign), age_s=AGE_S)], folder)
    (place / "job.sh").write_text(f"#!/bin/sh\nsrun {shlex.join(command)}\n")
    how = [f"--mem={KILL_MB}", f"--job-name={array.name}", "--time=5", "--output=/dev/null"]
    sent = run(["sbatch", "--parsable", *how, place / "job.sh"], cwd=place, errors=False).output
    array = replace(array, job_id=sent.split(";")[0].strip())
    replace(Submission(*facts), arrays=[array]).write()
    add_place(folder, Place("1", 0, 0))
    while (entry := study_states(study)[0]).state != "oom":
        if entry.state in ENDED:
            raise AssertionError(f"{entry.state}: {entry.reason}")
        time.sleep(0.2)
    return time.time() - float(sign.read_text())


def _submitit(place: Path) -> tuple[float, str]:
    """(seconds, what it says) for a function that grows in submitit's own process, as its users' do."""
    import submitit

    place.mkdir()
    sign = place / "sign"
    executor = submitit.SlurmExecutor(folder=place / "log", max_num_timeout=0)
    executor.update_parameters(mem=f"{KILL_MB}M", time=5, job_name="kill")
    job = executor.submit(exec, GROW.format(sign=str(sign), age_s=AGE_S))
    try:
        job.results()
    except Exception as error:
        return time.time() - float(sign.read_text()), str(error)
    raise AssertionError("submitit reports success")


@benchmark(rounds=(7, 1), runs=(10_000, 40), kills=(0, 0))
def measured(chosen: Any) -> Any:
    result: dict[str, Any] = {"status": status_of_many(chosen.runs, chosen.rounds)}
    if chosen.kills:
        result["kill"] = word_for_a_kill(chosen.kills)
    return result
