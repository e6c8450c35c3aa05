"""A run small enough for tests: a real text, real tokens, a real model, seconds of training."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import core
from conf import Config
from conf.schema import Dataset, Logging, Memory, Model, Tokenizer, Training
from training.attempt.begin import create_run
from training.attempt.run_files import read_run, read_status
from training.report.metrics import CLOCK_COLUMNS

ROOT = Path(__file__).resolve().parent.parent


def write_text(path: Path, words: int = 8000) -> Path:
    """Text with something to learn: words of a small vocabulary in a skewed order."""
    generator = random.Random(0)
    vocabulary = ["the", "high", "water", "mark", "of", "memory", "rises", "and", "falls", "again"]
    lines = [
        " ".join(generator.choices(vocabulary, weights=range(10, 0, -1), k=12)) for _ in range(words // 12)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def tiny_config(folder: Path, **training: Any) -> Config:
    """40 steps of a one-block model over a byte-tokenized text in `folder`."""
    text = folder / "tiny.txt"
    if not text.exists():
        write_text(text)
    options = {
        "max_steps": 40, "seq_len": 16, "effective_batch": 4, "micro_batch": 2, "evals": 4,
        "eval_tokens": 512, "checkpoint_every": 7, "threads": 1, "device": "cpu",
    }  # fmt: skip
    return Config(
        model=Model(name="tiny", d_model=16, n_layers=1, n_heads=1),
        dataset=Dataset(name="text", path=str(text)),
        tokenizer=Tokenizer(name="bytes"),
        training=Training(**(options | training)),
        memory=Memory(every_steps=11),
        logging=Logging(every_s=60.0),
        runs_dir=str(folder / "runs"),
    )


def with_documents(config: Config, documents: str = "masked") -> Config:
    """Its text in documents of some lines each, which are told apart."""
    path = Path(str(config.dataset.path))
    lines = [line for line in path.read_text().splitlines() if line != "--"]
    path.write_text("\n--\n".join("\n".join(lines[at : at + 4]) for at in range(0, len(lines), 4)) + "\n")
    dataset = dataclasses.replace(config.dataset, documents=documents, document_separator="--")
    return dataclasses.replace(config, dataset=dataset)


def mixed_config(folder: Path, dataset: dict[str, Any] | None = None, **training: Any) -> Config:
    """`tiny_config` over two texts, one of them a sixth of the other."""
    for name, words in (("long", 9600), ("short", 1600)):
        if not (folder / f"{name}.txt").exists():
            write_text(folder / f"{name}.txt", words)
    sources = [str(folder / f"{name}.txt") for name in ("long", "short")]
    options = {"name": "mix", "source": "mix", "sources": sources, "weights": ["0.75", "0.25"]}
    return dataclasses.replace(
        tiny_config(folder, **training), dataset=Dataset(**(options | (dataset or {})))
    )


def make_run(config: Config) -> Path:
    """The run's folder, as an entry makes it."""
    from training.plan.run_plan import make_plan

    plan = make_plan(config, tokenize=True)
    assert plan.identity is not None
    return create_run(plan.config, plan.identity)


def run_core(folder: Path, *arguments: str, patience_s: float = 240) -> subprocess.CompletedProcess[str]:
    """The run as a process of its own."""
    return subprocess.run(
        [sys.executable, str(ROOT / "core.py"), str(folder), *arguments],
        capture_output=True, text=True, timeout=patience_s,
    )  # fmt: skip


def run_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has torch loaded: a quarter of the time."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = core.main([str(folder), *arguments])
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def metrics_without_clock(folder: Path) -> list[dict[str, str]]:
    with open(folder / "metrics.csv", newline="") as file:
        return [
            {key: value for key, value in row.items() if key not in CLOCK_COLUMNS}
            for row in csv.DictReader(file)
        ]


def column(folder: Path, name: str) -> list[float]:
    return [float(row[name]) for row in metrics_without_clock(folder) if row[name]]


def assert_same_numbers(folder: Path, other: Path) -> None:
    """That a run on several ranks has the numbers of one on another count, to float tolerance."""
    assert read_status(folder)["state"] == "done"
    for name in ("step", "tokens", "lr"):
        assert column(folder, name) == column(other, name)
    for name in ("train_loss", "val_loss", "grad_norm"):
        assert column(folder, name) == pytest.approx(column(other, name), rel=2e-5), name
    results = [read_run(each)["results"] for each in (folder, other)]
    assert results[0]["val_loss"] == pytest.approx(results[1]["val_loss"], rel=2e-5)


def evaluations_without_clock(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "evals.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def outcome(folder: Path) -> dict[str, Any]:
    """All of a finished run that must not depend on how often it was interrupted."""
    newest = max((folder / "checkpoints").glob("step-*"))
    state = json.loads((newest / "state.json").read_text())
    sources = folder / "sources.csv"
    return {
        "metrics": metrics_without_clock(folder),
        "sources": sources.read_text() if sources.exists() else None,
        "evaluations": evaluations_without_clock(folder),
        "weights and moments": state["sha256"],
        "checkpoints": sorted(path.name for path in (folder / "checkpoints").iterdir()),
        "val_loss": read_run(folder)["results"]["val_loss"],
        "state": read_status(folder)["state"],
    }


def copy_of(config: Config, runs_dir: Path) -> Path:
    """A second folder for the same run, elsewhere."""
    return make_run(dataclasses.replace(config, runs_dir=str(runs_dir)))
