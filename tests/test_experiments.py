"""The entry through the real command line: what it prints, how it exits, what it leaves."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from as_written import as_written
from composed_once import compose_once
from tiny_run import write_text

from conf.composing.check import to_config
from experiments import main
from memory.measure.gpus import GpuDevice
from tests.golden_text import Golden
from training.attempt.run_files import read_run, read_status

pytestmark = pytest.mark.usefixtures("quick_start")

ROOT = Path(__file__).resolve().parent.parent
TINY = (
    "dataset=text",
    "dataset.path=my.txt",
    "tokenizer=bytes",
    "model.d_model=16",
    "training.seq_len=16",
    "training.effective_batch=4",
    "training.eval_tokens=256",
    "training.evals=2",
    "training.device=cpu",
)


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder to stand in, with a text."""
    write_text(tmp_path / "my.txt")
    return tmp_path


def experiments(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "experiments.py"), *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    return as_written(done)


def here(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has all of it loaded and the files of conf/ read."""
    out, err, before = io.StringIO(), io.StringIO(), signal.getsignal(signal.SIGTERM)
    with (
        pytest.MonkeyPatch.context() as patch, contextlib.chdir(place),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
    ):  # fmt: skip
        compose_once(patch)
        status = main(list(arguments))
    signal.signal(signal.SIGTERM, before)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def mistakes(place: Path, *arguments: str, command: Command = here) -> list[str]:
    """What is told of a command that cannot be used, which leaves nothing behind."""
    before = sorted(place.rglob("*"))
    done = command(place, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert sorted(place.rglob("*")) == before
    lines = done.stderr.splitlines()
    assert all(line.startswith("error: ") for line in lines)
    return [line.removeprefix("error: ") for line in lines]


def test_each_mistake_is_one_line(place: Path, golden: Golden) -> None:
    lines = []
    for typed in (
        "model=257d",
        "training.lr=1e-3",
        "optimizer.lr=0",
        "training.seq_len=256 arch.max_positions=128",
        "training.effective_batch=30 training.micro_batch=8",
        "training.batch_tokens=1000",
        "model.d_model=100",
        "model.d_model=30 model.n_heads=2",
        "training.max_tokens=1M training.max_steps=3",
        "tokenizer=custom",
        "study=seeds",
        "--hlp",
        "-m model=32d optimizer.lr=1e-3,fast",
    ):
        (line,) = mistakes(place, *typed.split())
        lines.append(line)
    golden.text("\n".join(lines))


def test_several_mistakes_are_all_told(place: Path) -> None:
    told = mistakes(
        place,
        "model=257d",
        "training.lrr=1",
        "optimizer.lr=-1",
        "arch.norm=foo",
        "training.micro_batch=7",
        "dataset.path=~/(a).txt",
        "hydra/launcher=lcal",
        "plan",
        command=experiments,
    )
    assert [line.partition(":")[0] for line in told] == [
        "model",
        "training.lrr",
        "hydra/launcher",
        "plan",
        "arch.norm",
        "optimizer.lr",
        "training.micro_batch",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["dataset=text", "dataset.path=no.txt", "tokenizer=bytes"], "no.txt"),
        (["dataset=c4", "tokenizer=bytes"], "Datasets/c4*.txt"),
        ([*TINY, "training.seq_len=100000"], "training.seq_len: "),
        ([*TINY, "training.max_tokens=1B"], "dataset.repeat=true"),
    ],
)
def test_bad_input_that_shows_in_the_data(place: Path, arguments: list[str], expected: str) -> None:
    done = here(place, *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "runs").exists()


def test_help_is_a_page_with_examples(place: Path) -> None:
    for command, flag in ((experiments, "--help"), (here, "-h")):
        done = command(place, flag)
        assert (done.returncode, done.stderr) == (0, "")
        assert "experiments.py -m study=lr_sweep" in done.stdout
    about_model = here(place, "model=?").stdout
    assert about_model == here(place, "--help", "model").stdout
    assert "512d" in about_model


def test_version(place: Path) -> None:
    assert experiments(place, "--version").stdout == "highwater 0.1.0\n"
    assert json.loads(here(place, "--version", "--json").stdout) == {"version": "0.1.0"}


def loaded_by(place: Path, *arguments: str) -> set[str]:
    """Top-level modules that a command imports."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import experiments\n"
        f"experiments.main({list(arguments)!r})\n"
        "print(' '.join(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.__stdout__)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, env=environment, capture_output=True, text=True, check=True,
        timeout=240,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


def test_help_needs_neither_hydra_nor_yaml(place: Path) -> None:
    heavy = {"hydra", "omegaconf", "antlr4", "yaml", "numpy", "torch", "transformers"}
    assert not loaded_by(place, "--help") & heavy
    assert not loaded_by(place, "--help", "dataset") & heavy
    assert not loaded_by(place, "--version") & heavy


def test_an_error_in_an_override_needs_no_torch(place: Path) -> None:
    loaded = loaded_by(place, "model=257d", "training.lrr=1")
    assert "hydra" in loaded
    assert not loaded & {"torch", "numpy", "transformers", "tokenizers", "matplotlib", "huggingface_hub"}


def test_a_sweep_is_checked_without_torch(place: Path) -> None:
    assert not loaded_by(place, "-m", "model=32d,64d", "optimizer.lr=1,fast") & {
        "torch",
        "numpy",
        "transformers",
    }


def test_the_configuration_is_shown(place: Path) -> None:
    done = experiments(place, "--cfg", "job", "model=64d", "optimizer.lr=1e-3")
    assert done.returncode == 0
    config = to_config(yaml.safe_load(done.stdout))
    assert (config.model.d_model, config.optimizer.lr) == (64, 1e-3)
    shown = here(place, "--cfg", "job", "-p", "model", "-m", "model=64d,32d", "--json").stdout
    assert [section["d_model"] for section in json.loads(shown)] == [64, 32]
    assert here(place, "--cfg", "job", "-p", "modell").returncode == 2


@pytest.mark.slow
def test_hydras_own_flags_keep_working(place: Path) -> None:
    done = experiments(place, "--info", "config", "model=64d")
    assert done.returncode == 0
    assert "d_model: 64" in done.stdout
    assert "LocalLauncher" in experiments(place, "--info", "plugins").stdout
    assert "hydra_plugins.highwater.LocalLauncher" in experiments(place, "--cfg", "hydra").stdout


def test_a_plan_runs_nothing(place: Path) -> None:
    done = experiments(place, *TINY, "model=64d", "plan=true")
    assert done.returncode == 0, done.stderr
    assert "parameters" in done.stdout
    assert done.stdout.rstrip().endswith(f"experiments.py {' '.join(TINY)} model=64d")
    (plan,) = json.loads(here(place, *TINY, "plan=true", "--json").stdout)
    assert plan["config"]["model"]["d_model"] == 16
    assert sorted(path.name for path in place.iterdir()) == ["my.txt"]


def test_a_plan_says_what_must_be_done_before(place: Path, golden: Golden) -> None:
    arguments = [*TINY, "dataset.auto_tokenize=false"]
    planned = here(place, *arguments, "plan=true")
    assert planned.returncode == 0, planned.stderr
    first, start = planned.stdout.splitlines()[-2:]
    golden.text("\n".join([first, start]))
    assert here(place, *arguments).returncode == 2
    command = first.partition("pretokenize_dataset.py ")[2]
    script = [sys.executable, str(ROOT / "pretokenize_dataset.py"), *shlex.split(command)]
    subprocess.run(script, cwd=place, check=True, capture_output=True)
    assert "pretokenize_dataset.py" not in here(place, *arguments, "plan=true").stdout


def test_the_plan_of_a_run_that_would_be_refused_does_not_say_to_start_it(
    place: Path, golden: Golden
) -> None:
    """Of more memory than any machine has."""
    huge = ("training.effective_batch=1048576", "training.micro_batch=1048576")
    done = here(place, *TINY, *huge, "model=512d", "plan=true")
    assert done.returncode == 0, done.stderr
    assert "memory.refuse=false" in done.stdout
    golden.text(done.stdout.rstrip().splitlines()[-1])


def test_the_plan_of_runs_that_do_not_fit_side_by_side_says_how_many_do(place: Path, golden: Golden) -> None:
    huge = ("training.effective_batch=1048576", "training.micro_batch=1048576", "model=512d", "seed=0,1")
    side_by_side = ("hydra/launcher=local", "hydra.launcher.jobs=2")
    done = here(place, "-m", *TINY, *huge, *side_by_side, "plan=true")
    assert "hydra.launcher.jobs=1." in done.stdout, done.stderr
    assert "memory.refuse=false" in done.stdout
    golden.text(done.stdout.rstrip().splitlines()[-1])


def test_the_plan_of_runs_that_do_not_fit_a_gpu_together_says_how_many_do(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = GpuDevice(0, "GPU-0", "A", 1 << 31, 1 << 30)
    monkeypatch.setattr("slurm.plans.gpu_slots.read_gpus", lambda: ((gpu,), None))
    monkeypatch.setattr("training.plan.run_plan.may_have_gpu", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    asked = ("seed=0,1,2", "training.device=cuda", "hydra.launcher.jobs=3", "plan=true")
    assert " hydra.launcher.jobs=1." in here(place, "-m", *TINY, *asked).stdout


def test_the_plan_of_a_run_that_this_cpu_refuses_does_not_say_to_start_it(
    place: Path, golden: Golden
) -> None:
    asked = (*TINY, "training.deterministic=true", "training.compile=true", "training.device=cpu")
    done = here(place, *asked, "training.threads=2", "plan=true")
    golden.text("\n".join(done.stdout.rstrip().splitlines()[-2:]))


def test_a_place_for_runs_that_is_a_file_is_refused(place: Path) -> None:
    for more in ([], ["plan=true"], ["-m", "seed=0,1", "plan=true"]):
        told = mistakes(place, *TINY, "runs_dir=my.txt", *more)
        assert len(told) == 1
        assert told[0].startswith("runs_dir: ")


def test_a_plan_of_a_sweep_is_a_table(place: Path) -> None:
    done = here(place, "-m", *TINY, "seed=0,1", "optimizer.lr=1e-3,3e-3", "plan=true")
    assert done.returncode == 0, done.stderr
    assert "4 runs" in done.stdout
    assert sum(line.startswith("16d-lr0.00") for line in done.stdout.splitlines()) == 4
    assert "experiments.py -m " in done.stdout


def test_a_reader_that_has_seen_enough(place: Path) -> None:
    piped = subprocess.run(
        f"{sys.executable} {ROOT / 'experiments.py'} --help | true",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert piped.stderr == ""


@pytest.mark.slow
def test_a_run_and_the_same_command_again(place: Path) -> None:
    command = [*TINY, "training.max_steps=6", "seed=3"]
    done = experiments(place, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (place / "runs" / "default").iterdir()
    assert folder.name.startswith("16d-lr0.003-seed3-")
    assert read_status(folder)["state"] == "done"
    assert str(folder.relative_to(place)) in done.stdout
    assert sorted(path.name for path in place.iterdir() if "my" not in path.name) == ["runs"]
    again = experiments(place, *command, "--json")
    assert again.returncode == 0
    outcome = json.loads(again.stdout)
    assert (outcome["state"], outcome["folder"]) == ("done", str(folder.relative_to(place)))
    assert outcome["val_loss"] == read_run(folder)["results"]["val_loss"]
    assert "finished" in experiments(place, *command).stdout


@pytest.mark.slow
def test_a_sweep_with_a_failing_run(place: Path) -> None:
    done = experiments(
        place,
        "-m",
        *TINY,
        "training.max_steps=6",
        "optimizer.lr=1e-3,1e30",
        "hydra.launcher.jobs=2",
        "optimizer.grad_clip=null",
        "study.name=mine",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    folders = sorted(path.parent for path in (place / "runs" / "mine").glob("*/config.yaml"))
    assert [read_status(folder)["state"] for folder in folders] == ["done", "failed"]
    assert "[2/2]" in done.stdout
    assert not list(place.rglob("multirun.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("to_group", [True, False], ids=["Ctrl-C", "kill -INT"])
def test_ctrl_c_checkpoints_and_the_same_command_goes_on(place: Path, to_group: bool) -> None:
    command = [*TINY, "training.max_steps=100000", "training.max_tokens=null", "dataset.repeat=true"]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "experiments.py"), *command],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list(place.glob("runs/*/*/metrics.csv")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    if to_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    (folder,) = place.glob("runs/*/*")
    status = read_status(folder)
    assert status["state"] == "cancelled"
    assert (folder / "checkpoints" / f"step-{status['step']:08d}").is_dir()
    assert not list(folder.glob("run.lock"))


@pytest.mark.slow
def test_each_ready_study_can_be_planned(place: Path) -> None:
    for study in ("lr_sweep", "scaling", "seeds"):
        done = experiments(place, "-m", f"study={study}", "plan=true", "--json")
        assert done.returncode == 0, done.stderr
        plans = json.loads(done.stdout)
        assert len(plans) >= 3
        assert {plan["config"]["study"]["name"] for plan in plans} == {study}
