"""Sweeps as they are typed, on a real Slurm: once each, whoever dies, whoever else types the same."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm.launch.code_snapshot import PACKAGE
from slurm.records.start_records import read_starts
from slurm.records.submissions import submissions
from slurm.status import study_states
from tests.local_slurm import Cluster
from tests.slurm.submit.conftest import ROOT
from tests.tiny_run import assert_same_numbers, column, write_text
from training.attempt.code_version import code_version
from training.attempt.run_files import read_config, read_run

pytestmark = [
    pytest.mark.privileged,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("its_clients"),
]

ASKED = (
    "dataset=text", "dataset.path=my.txt", "tokenizer=bytes", "model.d_model=16", "training.seq_len=16",
    "training.effective_batch=4", "training.eval_tokens=256", "training.evals=1", "training.device=cpu",
    "training.threads=1", "training.max_steps=5", "slurm.mem=600MB", "slurm.time=10", "slurm.cpus_per_task=1",
    "hydra/launcher=slurm",
)  # fmt: skip
HELD = "slurm.options=['--hold']"
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import experiments
from experiment_utils import atomic_files
seen = 0
def on_point(name):
    global seen
    seen += name == sys.argv[2]
    if seen == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
atomic_files.on_point = on_point
sys.exit(experiments.main(sys.argv[4:]))
"""
Type = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def calm(slurm_cluster: Cluster) -> Cluster:
    """Without a job of the tests before."""
    slurm_cluster.say("scancel", "--me", check=False)
    until(lambda: not slurm_cluster.say("squeue", "-h"), "an empty queue")
    return slurm_cluster


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a text."""
    write_text(tmp_path / "my.txt")
    return tmp_path


@pytest.fixture
def type_(calm: Cluster, home: Path) -> Type:
    """`python experiments.py ...` where the text is."""

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command(*arguments), **around(calm, home), **options)

    return run


def command(*arguments: str, root: Path = ROOT) -> list[str]:
    return [sys.executable, str(root / "experiments.py"), "-m", *ASKED, *arguments]


def around(cluster: Cluster, home: Path) -> dict[str, Any]:
    environment = {**os.environ, **cluster.variables, "HF_HUB_OFFLINE": "1"}
    return {"cwd": home, "env": environment, "capture_output": True, "text": True, "timeout": 300}


def until(done: Callable[[], Any], what: str, patience_s: float = 240.0) -> None:
    deadline = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.3)


def queued(cluster: Cluster) -> list[tuple[str, str]]:
    """(name of the array, task) of everything in the queue."""
    rows = cluster.say("squeue", "-h", "-r", "-o", "%j %K").splitlines()
    return sorted((name, task) for name, task in (row.split() for row in rows))


def expected(home: Path) -> list[tuple[str, str]]:
    """The same by the records of the studies, of what was submitted."""
    found = []
    for study in home.glob("runs/*"):
        for submission in submissions(study):
            for array in submission.arrays:
                tasks = range(len(array.tasks)) if array.job_id is not None else ()
                found += [(array.name, str(task) if array.is_array else "N/A") for task in tasks]
    return sorted(found)


def runs_in(home: Path) -> list[str]:
    """Runs of the arrays that were submitted."""
    return sorted(
        run
        for study in home.glob("runs/*")
        for submission in submissions(study)
        for array in submission.arrays
        if array.job_id is not None
        for task in array.tasks
        for run in task
    )


def test_a_sweep_with_its_report(type_: Type, home: Path) -> None:
    done = type_("seed=0,1", "wait=true", "then=analysis", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one["state"] for one in json.loads(done.stdout)["outcomes"]] == ["done", "done"]
    report = home / "runs" / "default" / "report.txt"
    until(report.exists, "the report")
    assert "done" in report.read_text()
    again = type_("seed=0,1", "--json")
    assert json.loads(again.stdout)[0]["submitted"] == []


@pytest.mark.parametrize(
    ("shared", "tasks"), [(("slurm.pack=2", "slurm.mem=1300MB"), 3), (("slurm.workers=2",), 2)]
)
def test_a_sweep_in_slots_of_few_jobs(type_: Type, home: Path, shared: tuple[str, ...], tasks: int) -> None:
    done = type_("seed=range(5)", "wait=true", "--json", *shared)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one["state"] for one in json.loads(done.stdout)["outcomes"]] == ["done"] * 5
    (submission,) = submissions(home / "runs" / "default")
    assert [len(array.tasks) for array in submission.arrays] == [tasks]
    starts = [read_starts(submission.study / run) for run in runs_in(home)]
    assert [[start.end for start in of_run] for of_run in starts] == [["done"]] * 5


def test_a_search_in_rungs(type_: Type, home: Path) -> None:
    """The better of two goes on as another job, from the checkpoint of its first."""
    asked = ("hydra/sweeper=halving", "hydra.sweeper.eta=2", "optimizer.lr=1e-4,1e-2", "schedule=constant")
    done = type_(*asked, "training.max_steps=8", "wait=true", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert [len(one["submitted"]) for one in answer["submitted"]] == [2, 1]
    first, other, last = (home / one["folder"] for one in answer["outcomes"])
    assert [one["state"] for one in answer["outcomes"]] == ["done"] * 3
    better, _ = sorted((first, other), key=lambda run: read_run(run)["results"]["val_loss"])
    config = read_config(last)
    assert (home / config["restore"]["from"]).resolve() == better.resolve()
    assert config["training"]["max_steps"] == 8
    again = type_(*asked, "training.max_steps=8", "wait=true", "--json")
    assert [one["submitted"] for one in json.loads(again.stdout)["submitted"]] == [[], []]


def test_a_run_on_two_nodes(type_: Type, home: Path) -> None:
    """A rank on each, which meet by the nodes' names: DDP over gloo, with the losses of one rank."""
    done = type_("slurm.nodes=2", "slurm.tasks_per_node=1", "wait=true", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = home.glob("runs/default/*-seed0-*")
    assert read_run(folder)["attempts"][0]["how"]["ranks"] == 2
    hosts = [json.loads((one / "outcome.json").read_text())["host"] for one in (folder, folder / "rank1")]
    assert hosts == ["n1", "n2"]
    alone = type_("hydra/launcher=local", "runs_dir=alone")
    assert alone.returncode == 0, alone.stdout + alone.stderr
    assert_same_numbers(folder, home / "alone" / "default" / folder.name)


def told(home: Path, study: str = "default") -> list[tuple[str, str | None]]:
    """(state, reason) of each run, as `python -m slurm status` tells them."""
    return [(entry.state, entry.reason) for entry in study_states(home / "runs" / study)]


def release(cluster: Cluster, home: Path) -> None:
    """Let start what was submitted with HELD."""
    for name in {name for name, _ in expected(home)}:
        for job in cluster.say("squeue", "-h", f"--name={name}", "-o", "%A").split():
            cluster.say("scontrol", "release", job)


@pytest.fixture
def own_code(home: Path) -> Path:
    """A copy of the checkout, to be edited."""
    folder = home / "code"
    folder.mkdir()
    for name in PACKAGE:
        there = ROOT / name
        copy = shutil.copytree if there.is_dir() else shutil.copy
        copy(there, folder / name)
    return folder


def test_what_was_composed_is_what_runs(calm: Cluster, home: Path, own_code: Path) -> None:
    """Whatever is edited afterwards, in the configuration, in the code and where the user stands."""
    done = subprocess.run(command("seed=0", HELD, "--json", root=own_code), **around(calm, home))
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)
    assert [state for state, _ in told(home)] == ["queued"]
    (own_code / "conf" / "optimizer" / "adamw.yaml").write_text("lr: 12.5\n")
    for path in ("core.py", "training/run/loop.py", "slurm/in_job/__main__.py"):
        (own_code / path).write_text("raise SystemExit('the code of now')\n")
    (home / "slurm").mkdir()
    (home / "slurm" / "__init__.py").write_text("raise SystemExit('the code of where the user stands')\n")
    release(calm, home)
    until(lambda: told(home) == [("done", None)], "the run")
    folder = home / "runs" / "default" / answer["submitted"][0]
    assert read_config(folder)["optimizer"]["lr"] != 12.5
    assert max(column(folder, "lr")) < 1


def test_resubmit_runs_the_frozen_copy_and_begins_again_with_the_code_of_now(
    calm: Cluster, home: Path, own_code: Path
) -> None:
    def resubmit(*words: str) -> Any:
        around_it = around(calm, home)
        around_it["env"] = around_it["env"] | {"PYTHONPATH": str(own_code)}
        typed = [sys.executable, "-P", "-m", "slurm", "resubmit", "default", *words, "--json"]
        done = subprocess.run(typed, **around_it)
        assert done.returncode == 0, done.stderr
        (answer,) = json.loads(done.stdout)
        return answer

    def attempts() -> list[dict[str, Any]]:
        return list(read_run(folder)["attempts"])

    first = subprocess.run(command("seed=0", HELD, "--json", root=own_code), **around(calm, home))
    assert first.returncode == 0, first.stderr
    (run,) = json.loads(first.stdout)[0]["submitted"]
    folder = home / "runs" / "default" / run
    calm.say("scancel", "--me")
    until(lambda: [state for state, _ in told(home)] == ["cancelled"], "the end of the job")
    before = (own_code / "core.py").read_text()
    (own_code / "core.py").write_text(f"{before}\nraise SystemExit('the code of now')\n")
    assert resubmit("slurm.options=[]")["code"]["changes"] == ["core.py (+2 -0)"]
    until(lambda: told(home) == [("done", None)], "the run with the copy of its submission")
    until(lambda: queued(calm) == [], "the job to leave")
    frozen = attempts()[0]["code"]["hash"]
    assert frozen == code_version(ROOT).hash
    (own_code / "core.py").write_text(f"{before}\nMOVED_ON = True\n")
    assert resubmit(run, "--again", "--code", "now")["code"] is None
    until(lambda: told(home) == [("done", None)] and len(attempts()) == 2, "the run with the code of now")
    assert attempts()[1]["code"]["hash"] != frozen
    assert attempts()[1]["again"] is True
    assert column(folder, "step") == column(folder / "attempts" / "1", "step") == [1, 2, 3, 4, 5]
    assert_same_numbers(folder, folder / "attempts" / "1")


def test_a_sweep_larger_than_the_queue(calm: Cluster, home: Path, type_: Type) -> None:
    """MaxSubmitJobs=3: an array of five tasks is refused, one of two takes all runs, and the end job fits."""
    calm.script("submit-limit", "3")
    try:
        with pytest.raises(RuntimeError, match="MaxSubmitJob"):
            calm.say("sbatch", "--hold", "--array=0-4", "--output=/dev/null", "--wrap=true")
        done = type_("seed=range(5)", "wait=true", "then=analysis", "--json")
    finally:
        calm.script("submit-limit", "off")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "queue" in done.stderr
    answer = json.loads(done.stdout)
    assert [one["state"] for one in answer["outcomes"]] == ["done"] * 5
    assert [len(job["tasks"]) for one in answer["submitted"] for job in one["jobs"]] == [2]
    until((home / "runs" / "default" / "report.txt").exists, "the report")
    runs = [home / "runs" / "default" / run for run in runs_in(home)]
    assert [len(read_run(run)["attempts"]) for run in runs] == [1] * 5


def test_two_shells_that_submit_the_same_at_once(calm: Cluster, home: Path) -> None:
    shells = [
        subprocess.Popen(
            command("seed=0,1,2", HELD),
            cwd=home,
            env={**os.environ, **calm.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for _ in range(2)
    ]
    said = [shell.communicate(timeout=300)[0].decode() for shell in shells]
    assert [shell.returncode for shell in shells] == [0, 0], said
    assert queued(calm) == expected(home)
    assert len(runs_in(home)) == 3
    assert sorted("submitted 3 runs" in words for words in said) == [False, True]
    assert [state for state, _ in told(home)] == ["queued"] * 3
    release(calm, home)
    until(lambda: told(home) == [("done", None)] * 3, "the runs")
    runs = [home / "runs" / "default" / run for run in runs_in(home)]
    assert [len(read_run(run)["attempts"]) for run in runs] == [1, 1, 1]


@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("submit:before_sbatch", 2),
        ("submit:after_sbatch", 2),
    ],
)
def test_a_submitter_that_was_killed(calm: Cluster, home: Path, type_: Type, point: str, count: int) -> None:
    given = [
        *ASKED,
        "seed=0,1,2,3",
        HELD,
        "slurm.by_model={32d: {mem: 500MB}}",
        "model=32d,48d",
        "then=analysis",
    ]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(ROOT), point, str(count), "-m", *given], **around(calm, home)
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = type_(*given[len(ASKED) :])
    assert again.returncode == 0, again.stdout + again.stderr
    known = expected(home)
    assert [row for row in queued(calm) if not row[0].endswith("-then")] == known
    assert len(set(runs_in(home))) == len(runs_in(home)) == 8
    follow_ups = sorted(name for name, _ in queued(calm) if name.endswith("-then"))
    sent = [
        one
        for one in submissions(home / "runs" / "default")
        if any(array.job_id is not None for array in one.arrays)
    ]
    assert len(follow_ups) == len(sent)
    assert all(one.follow_up is not None for one in sent)


def test_refused_before_the_first_sbatch(type_: Type, calm: Cluster, home: Path) -> None:
    done = type_("seed=0", "slurm.partition=main,nope")
    assert done.returncode == 2
    assert "slurm.partition" in done.stderr
    assert "main" in done.stderr
    assert "Traceback" not in done.stderr
    assert queued(calm) == []
    assert told(home) == [], "no run of it is there"


@pytest.fixture
def small_arrays(calm: Cluster) -> Iterator[int]:
    """Most tasks of an array, as the cluster tells it for the length of a test.

    What slurmctld itself holds to is the size at the first array of its life: one is made before.
    """
    calm.say("scancel", calm.say("sbatch", "--parsable", "--hold", "--array=0-1", "--wrap=true"))
    conf = calm.folder / "etc" / "slurm.conf"
    before = conf.read_text()
    conf.write_text(f"{before}\nMaxArraySize=3\n")
    calm.say("scontrol", "reconfigure")
    until(lambda: "MaxArraySize            = 3" in calm.say("scontrol", "show", "config"), "the setting")
    yield 3
    conf.write_text(before)
    calm.say("scontrol", "reconfigure")


def test_more_runs_than_an_array_may_have(type_: Type, calm: Cluster, home: Path, small_arrays: int) -> None:
    done = type_("seed=range(7)", HELD, "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)
    assert [len(job["tasks"]) for job in answer["jobs"]] == [small_arrays]
    assert queued(calm) == expected(home)
    assert [state for state, _ in told(home)] == ["queued"] * 7
    calm.say("scancel", *(job["job"] for job in answer["jobs"]))
    until(lambda: {state for state, _ in told(home)} <= {"cancelled", "never_started"}, "their end")


def test_from_inside_a_job(calm: Cluster, home: Path) -> None:
    script = home / "inside.sh"
    typed = shlex.join(command("seed=0,1", HELD, "study.name=inside"))
    script.write_text(f"#!/bin/bash\nexport HF_HUB_OFFLINE=1\n{typed}\n")
    out = home / "inside.txt"
    calm.say("sbatch", "--wait", "--mem=700", "--ntasks=2", f"--chdir={home}", f"--output={out}", str(script))
    assert "submitted 2 runs" in out.read_text()
    until(lambda: queued(calm) == expected(home), "the job itself to leave")
    asked = calm.say("squeue", "-h", "-r", "-o", "%C %m")
    assert set(asked.splitlines()) == {"1 600M"}
    assert [state for state, _ in told(home, "inside")] == ["queued"] * 2
