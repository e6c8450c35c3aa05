"""A run of ours that is planned and not yet started, and data for it that need no download."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import ROOT


def planned_run(runs_dir: Path, **overrides: Any) -> Path:
    """Folder of the run that `python experiments.py KEY=VALUE ...` would start.

    Args:
        overrides: in which `__` is a dot: training__max_steps.
    """
    from conf.command_line.request import read_run
    from conf.composing.compose import Composer
    from training.attempt.begin import create_run
    from training.plan.run_plan import make_plan

    words = [f"{key.replace('__', '.')}={value}" for key, value in overrides.items()]
    place = tempfile.mkdtemp(dir=runs_dir)
    plan = make_plan(read_run([*words, f"runs_dir={place}"], Composer()), tokenize=True)
    return create_run(plan.config, str(plan.identity))


def on_cpu(folder: Path, vocabulary: int, steps: int, batch: int, seq_len: int = 128) -> dict[str, Any]:
    """Overrides of a run over random ids on the CPU, which are made if missing. It evaluates once."""
    path = folder / f"random-{vocabulary}.npy"
    if not path.exists():
        write_ids(path, max(1 << 16, 4 * steps * batch * seq_len), vocabulary)
    return {
        "dataset": "text", "dataset__path": path, **tokenizer_of(folder, vocabulary),
        "training__max_steps": steps, "training__seq_len": seq_len, "training__effective_batch": batch,
        "training__evals": 1, "training__eval_tokens": seq_len, "training__device": "cpu",
        "training__precision": "fp32",
    }  # fmt: skip


def core_command(run: Path) -> list[Any]:
    """The command that trains a planned run in a process."""
    return [sys.executable, ROOT / "core.py", run, "--quiet"]


def run_facts(run: Path) -> dict[str, Any]:
    """Seconds by stage, as the last attempt of a run recorded them."""
    from training.attempt.run_files import read_run

    found: dict[str, Any] = read_run(run)["attempts"][-1]["seconds"]
    return found


def write_ids(path: Path, tokens: int, vocabulary: int) -> Path:
    """Random ids, uint16, as a .npy; returns the path."""
    np.save(path, np.random.default_rng(0).integers(0, vocabulary, tokens, dtype=np.uint16))
    return path


def tokenizer_of(folder: Path, vocabulary: int) -> dict[str, Any]:
    """Overrides for a tokenizer of this vocabulary: bytes, or words in a folder that is made if missing."""
    if vocabulary == 257:
        return {"tokenizer": "bytes"}
    words = folder / f"words-{vocabulary}"
    if not words.exists():
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from tokenizers.pre_tokenizers import Whitespace

        ids = {f"w{i}": i for i in range(vocabulary - 1)} | {"<|endoftext|>": vocabulary - 1}
        tokenizer = Tokenizer(WordLevel(ids, unk_token="w0"))
        tokenizer.pre_tokenizer = Whitespace()
        tokenizer.add_special_tokens(["<|endoftext|>"])
        words.mkdir(parents=True)
        tokenizer.save(str(words / "tokenizer.json"))
    return {"tokenizer": "custom", "tokenizer__path": words}
