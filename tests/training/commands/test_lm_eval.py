"""lm-eval is asked as its interface documents, on the export of the run, and what it found is kept.

A package of its name stands for it, which notes how it was called and writes as lm-eval writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_run import make_run, run_here, tiny_config

from tests.golden_text import Golden
from training.__main__ import main
from training.attempt.run_files import read_run

STAND_IN = """
import argparse, json, os, pathlib, sys
parser = argparse.ArgumentParser()
for name in ("model", "model_args", "tasks", "output_path", "device", "batch_size"):
    parser.add_argument(f"--{name}")
parser.add_argument("--num_fewshot", type=int)
parser.add_argument("--limit", type=float)
options = parser.parse_args()
print("ITS-STDERR")
place = pathlib.Path(os.environ["CALLS"])
place.write_text(json.dumps(vars(options)))
if options.tasks == "broken":
    sys.exit("no such task")
if options.tasks != "silent":
    name = options.model_args.split("pretrained=")[1].split(",")[0]
    folder = pathlib.Path(options.output_path) / name.replace("/", "__")
    folder.mkdir(parents=True)
    (folder / "samples_x.json").write_text("[]")
    results = {
        task: {"alias": task, "acc,none": 0.25 + number, "acc_stderr,none": 0.01}
        for number, task in enumerate(options.tasks.split(","))
    }
    text = json.dumps({"results": results, "lm_eval_version": "0.4.9"})
    (folder / "results_2026-01-01T00-00-00.json").write_text(text)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tiny_config(tmp_path_factory.mktemp("finished"), max_steps=4, evals=1))
    assert run_here(folder, "--quiet").returncode == 0
    return folder


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it notes how it was called."""
    package = tmp_path / "site" / "lm_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls.json"))
    sys.modules.pop("lm_eval", None)
    return tmp_path / "calls.json"


def refused(capfd: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main([*map(str, words)]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.slow
def test_it_is_asked_and_its_results_are_kept(
    finished: Path, stand_in: Path, capfd: pytest.CaptureFixture[str], golden: Golden
) -> None:
    asked = ["eval", str(finished), "--harness", "lm-eval", "--tasks"]
    how = ["--num-fewshot", "5", "--limit", "20", "--batch-size", "8", "--device", "cpu", "--json"]
    assert main([*asked, "a,b", *how]) == 0
    captured = capfd.readouterr()
    told = json.loads(captured.out)
    assert "ITS-STDERR" in captured.err
    model = finished / "hf-step-00000004"
    call: dict[str, Any] = json.loads(stand_in.read_text())
    assert not Path(call.pop("output_path")).exists()
    assert call == {
        "model": "hf", "model_args": f"pretrained={model.resolve()},dtype=float32", "tasks": "a,b",
        "device": "cpu", "batch_size": "8", "num_fewshot": 5, "limit": 20.0,
    }  # fmt: skip
    assert (model / "model.safetensors").is_file()
    assert told["results"]["b"]["acc,none"] == 1.25
    made = (model / "model.safetensors").stat().st_mtime_ns

    assert main([*asked, "b,c"]) == 0
    page = capfd.readouterr().out
    assert "c                       acc                 1.2500 ± 0.0100" in page
    assert (model / "model.safetensors").stat().st_mtime_ns == made, "the export was there already"
    call = json.loads(stand_in.read_text())
    assert (call["num_fewshot"], call["limit"], call["device"], call["batch_size"]) == (None,) * 4
    kept = json.loads((finished / "lm-eval-step-00000004.json").read_text())
    assert {task: found["acc,none"] for task, found in kept["results"].items()} == {
        "a": 0.25,
        "b": 0.25,
        "c": 1.25,
    }
    assert kept["how"]["a"] == {"num_fewshot": 5, "limit": 20.0, "lm_eval": "0.4.9"}
    assert kept["how"]["b"]["limit"] is None
    assert (kept["step"], kept["identity"]) == (4, read_run(finished)["identity"])

    before = (finished / "lm-eval-step-00000004.json").read_bytes()
    golden.text(refused(capfd, *asked, "broken"))
    golden.text(refused(capfd, *asked, "silent"))
    (model / "highwater.json").write_text("{}")
    golden.text(refused(capfd, *asked, "a"))
    assert (finished / "lm-eval-step-00000004.json").read_bytes() == before


def test_where_it_is_not_installed_the_command_says_what_to_type(
    finished: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = refused(capfd, "eval", finished, "--harness", "lm-eval", "--tasks", "a")
    assert "'lm-eval[hf]'" in told
    assert f"export {finished}" in told
    golden.text(told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--harness", "lm-eval"], "needs --tasks"),
        (["--tasks", "a"], "--tasks goes with --harness lm-eval"),
        (["--limit", "5"], "--limit goes with --harness lm-eval"),
        (["--num-fewshot", "5"], "--num-fewshot goes with --harness lm-eval"),
        (["--harness", "lm-eval", "--tasks", "a", "--seq-len", "8"], "--seq-len does not go with --harness"),
        (["--harness", "lm-eval", "--tasks", "a", "--by-position"], "--by-position does not go with"),
    ],
)
def test_what_does_not_go_together(
    words: list[str], told: str, finished: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert told in refused(capfd, "eval", finished, *words)
