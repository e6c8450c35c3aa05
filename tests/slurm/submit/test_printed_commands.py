"""Every command that is printed can be typed as it is, and is about the same study."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest
from composed_once import compose_once
from fake_slurm import FakeSlurm
from tiny_run import write_text

import experiments
import pretokenize_dataset
from experiment_utils import atomic_files
from training.attempt.run_files import read_config

pytestmark = pytest.mark.usefixtures("quick_start")

_PROGRAM = (
    r"python (?:experiments\.py|pretokenize_dataset\.py|-m (?:memory|slurm|analysis|training|data_loading))"
)
_COMMAND = re.compile(
    rf"(?:^|(?<=[\s`(]))({_PROGRAM}\b.*?)(?=\)?[.;]?$|`|   |[;.] | -> |, with)", re.MULTILINE
)
_PLACEHOLDER = re.compile(r"\b(RUN|STUDY|DIR|COMMAND|NAME|KEY|SET)\b|\.\.\.")
ASKED = (
    "dataset=text", "tokenizer=bytes", "model.d_model=16", "training.max_steps=4", "training.seq_len=16",
    "training.effective_batch=4", "training.eval_tokens=256", "training.threads=1", "training.device=cpu",
    "memory.margin=0.11",
)  # fmt: skip


def typed(command: str) -> tuple[int, str]:
    """Exit status of a command in this process, and all that it prints."""
    words = shlex.split(command)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            if words[1] == "experiments.py":
                status = experiments.main(words[2:])
            elif words[1] == "pretokenize_dataset.py":
                status = pretokenize_dataset.main(words[2:])
            else:
                status = importlib.import_module(f"{words[2]}.__main__").main(words[3:])
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, out.getvalue()


def commands_in(text: str) -> list[str]:
    """Each once; without options that would wait for a run."""
    found = [re.sub(r" (-f|--watch)\b", "", match[1].strip()) for match in _COMMAND.finditer(text)]
    return list(dict.fromkeys(command for command in found if not _PLACEHOLDER.search(command)))


def planned(command: str) -> set[Path]:
    """Studies of the runs that a command starts."""
    status, out = typed(f"{command} plan=true --json")
    assert status == 0, f"{command}\n{out}"
    plans = json.loads(out[out.index("[") :]) if out.lstrip().startswith("[") else json.loads(out)["runs"]
    return {Path(plan["folder"]).parent for plan in plans if plan["folder"]}


class Tour:
    """Types commands and, once, each that they print. studies: where runs that they start belong."""

    def __init__(self, *studies: str) -> None:
        self.studies = {Path(study) for study in studies}
        self.seen: set[str] = set()

    def follow(self, command: str, statuses: tuple[int, ...] = (0,), depth: int = 2) -> str:
        """statuses: of which the exit status of this command is one; what it prints is no user's mistake."""
        self.seen.add(command)
        status, out = typed(command)
        assert status in statuses, f"{command}\n{out}"
        for found in commands_in(out):
            if found in self.seen or depth == 0:
                continue
            self.seen.add(found)
            if found.endswith("--help"):
                continue  # its examples are of other studies
            if found.startswith("python experiments.py") and "plan=true" not in found:
                assert planned(found) <= self.studies, f"{command}\nprints\n{found}"
            else:
                self.follow(found, (0, 1), depth - 1)
        return out


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a text whose name Hydra's grammar would read as two."""
    folder = tmp_path / "my home"
    folder.mkdir()
    write_text(folder / "x,y.txt")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    compose_once(monkeypatch)
    return folder


@pytest.mark.parametrize("name", ["x,y", "a=b", "my $HOME", "it's {a: b}", "${seed}", "[a, b]", "glob(*)"])
def test_commands_after_tokenizing_name_the_set(home: Path, name: str) -> None:
    """Whatever the shell and Hydra's grammar make of the name of a text."""
    (home / "x,y.txt").rename(home / f"{name}.txt")
    tokenize = shlex.join(["python", "pretokenize_dataset.py", f"./{name}.txt", "--tokenizer", "bytes"])
    out = Tour("runs/default").follow(tokenize)
    (command,) = [one for one in commands_in(out) if one.startswith("python experiments.py")]
    status, plan = typed(f"{command} plan=true --json training.effective_batch=4 training.max_steps=1")
    assert status == 0, plan
    assert json.loads(plan)[0]["data"]["path"].endswith(f"{name}.npy")


@pytest.mark.slow
def test_commands_after_runs_in_front_stay_in_their_study(home: Path) -> None:
    """Done, diverged and refused; the study is one of conf/study, in a folder with a space in its name."""
    asked = shlex.join([*ASKED, "dataset.path='x,y.txt'", "runs_dir=my runs"])
    study = "my runs/seeds"
    tour = Tour(study, "my runs/lr_sweep")
    out = tour.follow(f"python experiments.py -m study=seeds {asked} training.max_tokens=null seed=0,1")
    assert any("seed=2,3" in command for command in commands_in(out))
    tour.follow(f"python experiments.py {asked} study.name=seeds seed=0 optimizer.lr=1e9", (0, 1))
    for command in ("table", "report", "curves", "memory", "best-lr", "fit --x flops", "compare --by seed"):
        name, _, more = command.partition(" ")
        tour.follow(f"python -m analysis {name} {shlex.quote(study)} {more}", (0, 2))
    tour.follow(f"python -m slurm status {shlex.quote(study)}")
    run = min(Path(study).glob("*/config.yaml")).parent
    for command in ("memory explain", "memory report", "slurm why", "slurm logs", "training eval"):
        tour.follow(f"python -m {command} {shlex.quote(str(run))}")


@pytest.mark.slow
def test_commands_about_jobs_can_be_typed(
    home: Path, cluster: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queued, ended in each way, refused, with another place for runs than usual."""
    asked = shlex.join(
        [*ASKED, "dataset.path='x,y.txt'", "runs_dir=my runs", "slurm.mem=1GB", "slurm.time=5"]
    )
    tour = Tour("my runs/s")
    tour.follow(f"python experiments.py -m {asked} study.name=s seed=0,1,2,3,4 hydra/launcher=slurm")
    tour.follow("python -m slurm status 'my runs/s'")
    cluster.set_state(cluster.jobs[0]["id"], "FAILED")
    states = ("done", "failed", "oom", "timeout")
    for config in Path("my runs/s").glob("*/config.yaml"):
        seed = int(read_config(config.parent)["seed"])
        if seed < len(states):
            state = {"state": states[seed], "reason": "why", "attempt": 1, "heartbeat_s": 0.0}
            atomic_files.write_json(config.parent / "status.json", state)
    tour.seen.clear()
    tour.follow("python -m slurm status 'my runs/s'")
    for config in sorted(Path("my runs/s").glob("*/config.yaml")):
        tour.follow(f"python -m slurm why {shlex.quote(str(config.parent))}", depth=0)
    tour.follow("python -m slurm resubmit 'my runs/s' --dry-run")
    tour.follow("python -m slurm cancel 'my runs/s' --yes")
    tour.follow("python -m slurm clean 'my runs/s'")
    assert len(tour.seen) > 8
