"""A run from end to end: it learns, it keeps its folder's contract, it ends in the right state."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny_run import (
    ROOT,
    copy_of,
    make_run,
    metrics_without_clock,
    outcome,
    run_core,
    run_here,
    tiny_config,
    write_text,
)

import core
from conf.schema import Dataset, Optimizer
from tests.golden_text import Golden
from training.attempt.run_files import read_run, read_status, state_of
from training.interrupt import Interrupted
from training.report.progress import NonFinite
from training.run.exit_reason import ending_of

pytestmark = pytest.mark.usefixtures("quick_start")

STAGES = [
    "start", "load_tokenizer", "open_dataset", "build_model", "build_optimizer", "restore", "first_batch",
    "first_step", "train", "evaluate", "checkpoint", "finish",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    folder = make_run(tiny_config(tmp_path_factory.mktemp("finished")))
    done = run_core(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_run_folder_keeps_its_contract(finished: Path) -> None:
    assert sorted(path.name for path in finished.iterdir()) == [
        "checkpoints", "code", "config.yaml", "evals.jsonl", "log.txt", "memory.jsonl", "metrics.csv",
        "run.json", "status.json",
    ]  # fmt: skip
    status = read_status(finished)
    assert (status["state"], status["step"], status["total_steps"], status["attempt"]) == ("done", 40, 40, 1)
    run = read_run(finished)
    assert finished.name.endswith(run["identity"][:8])
    assert run["auto"].keys() == {
        "micro_batch", "loss_chunk", "threads", "device", "precision", "matmul_precision",
        "checkpoint_writing",
    }  # fmt: skip
    assert run["attempts"][0]["resumed_from_step"] == 0
    seconds = run["attempts"][0]["seconds"]
    assert 0 < seconds["batch"] < seconds["step"] < seconds["first_step"] + seconds["train"]
    assert run["attempts"][0]["code"].keys() == {"commit", "dirty", "hash"}
    device = run["attempts"][0]["device"]
    assert (device["kind"], device["torch"], device["cuda"]) == ("cpu", torch.__version__, torch.version.cuda)
    assert device["name"]
    assert run["data"]["train_tokens"] + run["data"]["val_tokens"] == run["data"]["tokens"]
    assert sorted(path.name for path in (finished / "checkpoints").iterdir())[0] == "best"


def test_every_stage_is_told_with_its_memory(finished: Path) -> None:
    records = [json.loads(line) for line in (finished / "memory.jsonl").read_text().splitlines()]
    begun = list(dict.fromkeys(record["stage"] for record in records if record["event"] == "begin"))
    assert sorted(begun) == sorted(STAGES)
    assert begun[:8] == STAGES[:8]
    assert begun[-1] == "finish"
    log = (finished / "log.txt").read_text()
    for stage in STAGES:
        assert f"[mem] {stage}" in log


def test_metrics_have_each_step_once_and_the_loss_falls(finished: Path) -> None:
    rows = metrics_without_clock(finished)
    assert [int(row["step"]) for row in rows] == list(range(1, 41))
    assert [row["step"] for row in rows if row["val_loss"]] == ["10", "20", "30", "40"]
    assert [int(row["tokens"]) for row in rows] == [64 * step for step in range(1, 41)]
    losses = [float(row["train_loss"]) for row in rows]
    assert sum(losses[-5:]) / 5 < sum(losses[:5]) / 5 - 0.5


def test_the_same_command_again_says_finished_and_changes_nothing(finished: Path, golden: Golden) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    done = run_core(finished)
    assert done.returncode == 0
    golden.text(done.stdout)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_the_same_config_gives_the_same_numbers_whatever_the_micro_batch_bookkeeping(
    finished: Path, tmp_path: Path
) -> None:
    config = tiny_config(finished.parents[2])
    again = copy_of(config, tmp_path / "runs")
    assert run_here(again).returncode == 0
    assert outcome(again) == outcome(finished)


@pytest.mark.slow
def test_activation_checkpointing_changes_no_number(finished: Path, tmp_path: Path) -> None:
    config = tiny_config(finished.parents[2], activation_checkpointing=True)
    again = copy_of(config, tmp_path / "runs")
    assert again.name == finished.name
    assert run_here(again).returncode == 0
    assert outcome(again) == outcome(finished)


@pytest.mark.slow
def test_seeds_change_the_run(finished: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(tiny_config(finished.parents[2]), seed_data=5)
    other = copy_of(config, tmp_path / "runs")
    assert run_here(other).returncode == 0
    first, second = metrics_without_clock(finished)[0], metrics_without_clock(other)[0]
    assert first["train_loss"] != second["train_loss"]


def wait_for_step(folder: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        metrics = folder / "metrics.csv"
        if metrics.exists() and metrics.read_text().count("\n") > step:
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} was never reached")


@pytest.fixture
def long_run(tmp_path: Path) -> Path:
    """A run that lasts until it is stopped."""
    config = tiny_config(tmp_path, max_steps=200_000, evals=1, checkpoint_every=50)
    config = dataclasses.replace(
        config,
        dataset=dataclasses.replace(config.dataset, repeat=True),
        logging=dataclasses.replace(config.logging, every_s=0.1),
    )
    return make_run(config)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 1, marks=pytest.mark.slow)]
)
def test_a_signal_checkpoints_and_says_how_to_go_on(
    long_run: Path, number: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "core.py"), str(long_run)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    wait_for_step(long_run, 20)
    process.send_signal(number)
    process.send_signal(number)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == code, output
    assert "Traceback" not in output
    status = read_status(long_run)
    assert status["state"] == "cancelled"
    newest = max((long_run / "checkpoints").glob("step-*"))
    rows = metrics_without_clock(long_run)
    assert int(newest.name[5:]) == int(rows[-1]["step"])


@pytest.mark.slow
def test_an_attempt_that_ended_without_a_word_is_told_by_the_next(long_run: Path, golden: Golden) -> None:
    command = [sys.executable, str(ROOT / "core.py"), str(long_run)]
    first = subprocess.Popen([*command, "--quiet"])
    wait_for_step(long_run, 20)
    first.kill()
    first.wait()
    assert state_of(long_run) == "failed"
    second = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert second.stdout is not None
    told = second.stdout.readline()
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=240)
    golden.text(told)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl(2) is Linux's")
@pytest.mark.parametrize("command", [[], pytest.param(["nohup"], marks=pytest.mark.slow)])
def test_a_run_whose_parent_is_killed_checkpoints_and_stops(long_run: Path, command: list[str]) -> None:
    entry = (
        "import sys\nfrom pathlib import Path\nfrom slurm.launch.processes import Children, run_command\n"
        "with Children() as children:\n"
        "    children.start(run_command(Path(sys.argv[1]), quiet=True), quiet=True)\n    children.wait()\n"
    )
    parent = subprocess.Popen([*command, sys.executable, "-c", entry, str(long_run)], cwd=ROOT)
    wait_for_step(long_run, 20)
    child = read_status(long_run)["pid"]
    parent.kill()
    parent.wait()
    try:
        deadline = time.monotonic() + 60
        while (long_run / "run.lock").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        status = read_status(long_run)
        assert (status["state"], "SIGTERM" in status["reason"]) == ("cancelled", True)
        assert (long_run / "checkpoints" / f"step-{status['step']:08d}").is_dir()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_parent_that_is_gone_already_is_noticed(long_run: Path) -> None:
    done = run_core(long_run, "--parent", str(2**22 + 1))
    assert done.returncode != 0
    assert not (long_run / "checkpoints").exists()


@pytest.mark.slow
def test_a_second_process_is_told_who_holds_the_run(long_run: Path) -> None:
    first = subprocess.Popen([sys.executable, str(ROOT / "core.py"), str(long_run), "--quiet"])
    try:
        wait_for_step(long_run, 5)
        second = run_core(long_run)
        assert second.returncode == 2
        assert f"process {first.pid} on " in second.stderr
        assert "since " in second.stderr
        assert "Traceback" not in second.stderr
        assert read_status(long_run)["state"] == "running"
    finally:
        first.kill()
        first.wait()


def test_the_record_of_a_finished_run_is_written_again_when_it_was_lost(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path, max_steps=4))
    assert run_here(folder).returncode == 0
    before = read_run(folder)
    (folder / "run.json").write_text("{")
    refused = run_here(folder)
    assert refused.returncode == 2
    assert " mv " in refused.stderr
    (folder / "run.json").unlink()
    assert run_here(folder).returncode == 0
    after = read_run(folder)
    assert after["identity"] == before["identity"]
    for key in ("val_loss", "best", "bigram_val_loss"):
        assert after["results"][key] == before["results"][key]
    assert "(4 steps)" in run_here(folder).stdout
    attempts = len(read_run(folder)["attempts"])
    (folder / "status.json").write_text('{"state": "done"}')
    assert run_here(folder).returncode == 0
    assert len(read_run(folder)["attempts"]) == attempts


def test_a_loss_that_is_no_number_fails_at_its_step_and_keeps_the_checkpoint(
    tmp_path: Path, golden: Golden
) -> None:
    config = tiny_config(tmp_path, checkpoint_every=2)
    config = dataclasses.replace(config, optimizer=Optimizer(lr=1e30, grad_clip=None))
    folder = make_run(config)
    done = run_here(folder)
    assert done.returncode == 1
    status = read_status(folder)
    assert status["state"] == "failed"
    golden.text(status["reason"], numbers=False)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    last = metrics_without_clock(folder)[-1]
    assert {last["train_loss"], last["grad_norm"]} & {"nan", "inf"}


@pytest.mark.slow
def test_a_failure_of_ours_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path))
    code = (
        "import sys, core, training.run.loop\n"
        "def broken(*a, **k): raise ZeroDivisionError('the cat walked by')\n"
        "core.evaluate_run = broken\n"
        "sys.exit(core.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1
    assert read_status(folder)["reason"].startswith("ZeroDivisionError: ")
    log = (folder / "log.txt").read_text()
    assert "Traceback" in log
    assert "ZeroDivisionError: " in log
    assert run_here(folder).returncode == 0


def test_a_loss_that_is_no_number_at_once_says_that_there_is_no_checkpoint(
    tmp_path: Path, golden: Golden
) -> None:
    config = dataclasses.replace(
        tiny_config(tmp_path, evals=1, checkpoint_every=30), optimizer=Optimizer(lr=1e30, grad_clip=None)
    )
    folder = make_run(config)
    assert run_here(folder).returncode == 1
    assert not list(folder.glob("checkpoints/step-*"))
    golden.text(read_status(folder)["reason"], numbers=False)


@pytest.mark.parametrize(
    ("error", "with_checkpoint", "without"),
    [
        (
            Interrupted(signal.SIGINT),
            "from the checkpoint of step 1,200",
            "to start it over: it has",
        ),
        (NonFinite("step 9: loss nan"), "The checkpoint of step 1,200 is kept", "There is no checkpoint yet"),
        (OSError(28, "No space left", "a"), "from the checkpoint of step 1,200", "to start it over"),
    ],
)
def test_what_is_said_of_checkpoints_is_true(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    with_checkpoint: str,
    without: str,
) -> None:
    caplog.set_level("INFO")
    ending_of(error, tmp_path)
    assert without in caplog.text
    assert "1,200" not in caplog.text
    caplog.clear()
    for step in (400, 1200):
        (tmp_path / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    ending_of(error, tmp_path)
    assert with_checkpoint in caplog.text
    assert without not in caplog.text


def stopped(folder: Path) -> None:
    """Let a finished run look as if its last attempt had been stopped."""
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"state": "cancelled"}))


def test_a_damaged_status_is_written_anew_and_nothing_is_lost(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / finished.name, symlinks=True))
    (folder / "status.json").write_bytes(b"\x80{")
    done = run_here(folder)
    assert done.returncode == 0, done.stderr
    assert str(folder / "status.json") in done.stdout
    assert read_run(folder)["attempts"][-1]["resumed_from_step"] == 40
    assert outcome(folder) == outcome(finished)


def test_a_damaged_run_json_is_moved_aside_by_the_command_it_names(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "a run", symlinks=True))
    stopped(folder)
    (folder / "run.json").write_text('{"identity": ')
    refused = run_here(folder)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    command = re.search(r"mv (?:'[^']*'|\S)+ (?:'[^']*'|\S)+", refused.stderr)[0]
    subprocess.run(command, shell=True, check=True)
    assert run_here(folder).returncode == 0
    assert outcome(folder) == outcome(finished)


def test_a_damaged_lock_is_named(finished: Path, tmp_path: Path, golden: Golden) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / finished.name, symlinks=True))
    stopped(folder)
    (folder / "run.lock").touch()
    refused = run_here(folder)
    assert refused.returncode == 2
    golden.text(refused.stderr)


def test_a_config_that_was_edited_is_told_from_data_that_changed(
    finished: Path, tmp_path: Path, golden: Golden
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / finished.name, symlinks=True))
    stopped(folder)
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace("lr: 0.003", "lr: 0.01"))
    refused = run_here(folder)
    assert refused.returncode == 2
    golden.text(refused.stderr)
    (folder / "config.yaml").write_text(config.replace("checkpoint_every: 7", "checkpoint_every: 5"))
    assert run_here(folder).returncode == 0


@pytest.mark.slow
def test_data_that_changed_under_a_run_are_refused(tmp_path: Path, golden: Golden) -> None:
    config = tiny_config(tmp_path)
    folder = make_run(config)
    assert run_here(folder).returncode == 0
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"state": "failed"}))
    text = Path(config.dataset.path or "")
    text.write_text(text.read_text().upper())
    for left in text.parent.glob("tiny.npy*"):
        left.unlink()
    make_run(config)
    done = run_here(folder)
    assert done.returncode == 2
    golden.text(done.stderr, numbers=False)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, golden: Golden) -> None:
    done = run_core(tmp_path)
    assert done.returncode == 2
    golden.text(done.stderr)


@pytest.mark.privileged
def test_a_disk_that_fills_up_fails_clearly_and_the_run_goes_on_later(
    tmp_path: Path, small_disk: Path
) -> None:
    config = dataclasses.replace(tiny_config(tmp_path), runs_dir=str(small_disk / "runs"))
    folder = make_run(config)
    filler = small_disk / "filler"
    code = (
        "import sys, core, training.run.loop\n"
        "save = core.save_checkpoint\n"
        "def fill(run, *a):\n"
        f"    if run.step == 14:\n"
        f"        with open({str(filler)!r}, 'wb') as file:\n"
        "            try:\n"
        "                while True: file.write(bytes(4096)); file.flush()\n"
        "            except OSError: pass\n"
        "    save(run, *a)\n"
        "core.save_checkpoint = fill\n"
        "sys.exit(core.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 2, done.stderr
    assert os.strerror(errno.ENOSPC) in done.stderr
    assert "Traceback" not in done.stderr
    assert (folder / "checkpoints" / "step-00000010").is_dir()
    filler.unlink()
    assert run_here(folder).returncode == 0
    undisturbed = copy_of(config, tmp_path / "undisturbed")
    assert run_here(undisturbed).returncode == 0
    assert outcome(folder) == outcome(undisturbed)


def test_a_missing_dataset_is_told_without_a_traceback(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    folder = make_run(config)
    for path in tmp_path.glob("tiny*"):
        if path.is_file():
            path.unlink()
    done = run_here(folder)
    assert done.returncode == 2
    assert "tiny" in done.stderr
    assert "Traceback" not in done.stderr
    assert read_status(folder)["state"] == "failed"


def test_dataset_defaults_are_those_of_the_schema() -> None:
    assert Dataset().repeat is False


def test_core_answers_at_once_without_torch(finished: Path) -> None:
    code = "import sys, core; core.main([sys.argv[1]]); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(finished)], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.slow
def test_a_run_goes_on_with_the_shards_it_began_with(tmp_path: Path) -> None:
    """More text is appended to its set between two attempts; it reads what it read."""
    from data_loading.pretokenizer.job import pretokenize
    from data_loading.pretokenizer.options import Options
    from data_loading.text_io.text_file import TextFile
    from data_loading.tokenizers.tokenizer import BytesTokenizer

    config = tiny_config(tmp_path, max_steps=400, checkpoint_every=5)
    write_text(tmp_path / "more.txt", 3000)
    form = Options(shard_tokens=5000, val_fraction=0.2)
    pretokenize(TextFile(tmp_path / "tiny.txt"), BytesTokenizer(), tmp_path / "set", form)
    config = dataclasses.replace(
        config, dataset=dataclasses.replace(config.dataset, path=str(tmp_path / "set"), repeat=True)
    )
    undisturbed = make_run(dataclasses.replace(config, runs_dir=str(tmp_path / "undisturbed")))
    assert run_here(undisturbed).returncode == 0
    folder = make_run(config)
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "core.py"), str(folder)], stdout=subprocess.DEVNULL
    )
    wait_for_step(folder, 20)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert read_status(folder)["step"] < 400
    pretokenize(TextFile(tmp_path / "more.txt"), BytesTokenizer(), tmp_path / "set", Options(append=True))
    assert make_run(config) != folder, "a new run reads the longer set"
    done = run_here(folder)
    assert done.returncode == 0, done.stdout
    assert outcome(folder)["metrics"] == outcome(undisturbed)["metrics"]
    weights = "weights and moments"
    assert outcome(folder)[weights] == outcome(undisturbed)[weights]


def test_a_tokenizer_that_is_only_in_the_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """As on a node to which only the token set was copied."""
    from tokenizers import Tokenizer as Trained
    from tokenizers import models, pre_tokenizers, trainers

    from conf.schema import Dataset, Tokenizer
    from data_loading import load_tokenizer, pretokenize
    from data_loading.text_io.text_file import TextFile

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    text, trained = write_text(tmp_path / "tiny.txt"), Trained(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train(
        [str(text)], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    )
    (tmp_path / "toy").mkdir()
    trained.save(str(tmp_path / "toy" / "tokenizer.json"))
    spec = Tokenizer(name="toy", local_folder="toy", repo="org/toy")
    pretokenize(TextFile(text), load_tokenizer(spec), tmp_path / "only.npy")
    for path in (text, tmp_path / "toy" / "tokenizer.json"):
        path.unlink()
    dataset = Dataset(name="text", path="only.npy")
    config = dataclasses.replace(tiny_config(tmp_path, max_steps=2), dataset=dataset, tokenizer=spec)
    folder = make_run(config)
    assert core.run_attempt(folder, terminal=False) == 0
    golden.lines((folder / "log.txt").read_text(), "toy", "only.npy", numbers=False)
