"""A run tells growth by step at the end of its train lines, and who holds the memory where it is asked to."""

from __future__ import annotations

import dataclasses
import gc
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import make_run, outcome, run_here, tiny_config

from conf import Config
from memory.attribute import Attribution

MB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]


def with_memory(config: Config, **options: Any) -> Config:
    return dataclasses.replace(config, memory=dataclasses.replace(config.memory, **options))


def leaks(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "memory.jsonl").read_text().splitlines()]
    return [record["leak"] for record in records if record["event"] == "end" and "leak" in record]


LEAKS = """
import sys
import core
from memory.leaks import monitor as leak_monitor
from training.run import loop
from training.step.train_step import Step
real, held = Step.take, []
def leaking(*arguments, **options):
    held.append(bytearray(b"x" * (1 << 20)))
    return real(*arguments, **options)
Step.take = leaking
loop.LeakMonitor.left_s = lambda *_: 1e9
leak_monitor._SHARE = 1.0  # on a busy machine too, every step is measured
sys.exit(core.main([sys.argv[1], "--quiet"]))
"""
"""In a process of its own: in this one memory that other tests have freed would be taken first."""


@pytest.mark.slow
def test_a_run_that_leaks_says_so_and_warns(tmp_path: Path) -> None:
    folder = make_run(with_memory(tiny_config(tmp_path, max_steps=400, evals=1, checkpoint_every=400)))
    done = subprocess.run([sys.executable, "-c", LEAKS, str(folder)], cwd=ROOT, check=False)
    assert done.returncode == 0
    log = (folder / "log.txt").read_text()
    found = leaks(folder)
    assert found[-1]["verdict"] == "leak"
    assert found[-1]["holder"] == "main"
    assert found[-1]["slope_bytes_per_step"] == pytest.approx(MB, rel=0.2)
    lines = [line for line in log.splitlines() if "+1.0 MB/step" in line]
    assert "[mem]" in lines[-1]
    assert any("memory.attribute=true" in line for line in lines)


def test_a_run_that_does_not_is_left_alone(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path, max_steps=160, evals=2, checkpoint_every=80))
    assert run_here(folder, "--quiet").returncode == 0
    found = leaks(folder)
    assert not any(leak["verdict"] == "leak" for leak in found)
    assert not (folder / "memory.attribution.json").exists()


@pytest.mark.slow
def test_attribution_is_written_and_changes_no_result(tmp_path: Path) -> None:
    plain = make_run(tiny_config(tmp_path))
    assert run_here(plain, "--quiet").returncode == 0
    config = with_memory(tiny_config(tmp_path), attribute=True)
    folder = make_run(dataclasses.replace(config, runs_dir=str(tmp_path / "attributed")))
    assert folder.name == plain.name  # what is measured is no part of what is computed
    assert run_here(folder, "--quiet").returncode == 0
    assert outcome(folder) == outcome(plain)
    record = json.loads((folder / "memory.attribution.json").read_text())
    found = {one["facts"]["when"]: Attribution.from_json(one) for one in record["attributions"]}
    assert {"first_step", "finish"} <= set(found) <= {"first_step", "peak", "finish"}
    run = json.loads((folder / "run.json").read_text())
    of_kind = {of["kind"]: of["bytes"] for of in found["finish"].kinds if of["where"] == "anon"}
    # other tests of this process may have left a model
    assert of_kind["parameters"] >= 4 * run["parameters"]
    assert of_kind["optimizer"] >= 8 * run["parameters"]
    is_alone = of_kind["parameters"] < 8 * run["parameters"]  # else larger models may be all that is listed
    assert not is_alone or any(of["module"].startswith("LossModel.model.") for of in found["finish"].modules)
    assert re.search(r"\[mem\] .*finish 40 .*anon", (folder / "log.txt").read_text())


def test_a_disk_that_fails_does_not_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.freeze()  # what other tests have left is not walked over

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("training.report.memory_attribution.atomic_files.write_json", fail)
    from training.report.memory_attribution import Attributions

    attributions = Attributions(tmp_path, is_on=True)
    attributions.take("finish", 3)
    assert list(tmp_path.iterdir()) == []
    assert torch.is_grad_enabled()
