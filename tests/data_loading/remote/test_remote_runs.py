"""Runs on a set in a store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.data_loading.remote.conftest import KEY, SECRET, upload
from tests.golden_text import Golden


def run(root: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    arguments = [
        "model=32d", "dataset=text", "tokenizer=bytes", f"runs_dir={folder / 'runs'}",
        f"dataset.cache={folder / 'cache'}", "dataset.order=shuffled_shards", "training.max_steps=6",
        "training.seq_len=32", "training.eval_tokens=1K", *more,
    ]  # fmt: skip
    return subprocess.run(
        [sys.executable, "experiments.py", *arguments], cwd=root, capture_output=True, text=True, timeout=240
    )


@pytest.mark.slow
def test_run_gives_same_losses_as_from_disk(
    make_set: Callable[..., Path], bucket: Any, tmp_path: Path, root: Path
) -> None:
    shards = make_set(60_000, 7_000)
    upload(bucket, shards, "c4")
    losses = []
    for number, (path, *more) in enumerate((("s3://sets/c4", "dataset.disk_budget=200K"), (str(shards),))):
        done = run(root, tmp_path / str(number), f"dataset.path={path}", *more)
        assert done.returncode == 0, done.stderr
        shown = [done.stdout, done.stderr]
        for file in (tmp_path / str(number)).rglob("*"):
            if file.is_file() and file.suffix in (".json", ".yaml", ".log", ".csv", ".txt"):
                shown.append(file.read_text(errors="replace"))
        assert not any(KEY in text or SECRET in text for text in shown)
        found = next((tmp_path / str(number) / "runs").rglob("run.json"))
        losses.append(json.loads(found.read_text())["results"])
    assert losses[0]["val_loss"] == losses[1]["val_loss"]
    held = sum(p.stat().st_size for p in (tmp_path / "0" / "cache").rglob("*") if p.is_file())
    assert 30_000 < held <= 200 << 10


@pytest.mark.slow
def test_unusable_set_is_refused_before_the_run(
    make_set: Callable[..., Path], bucket: Any, tmp_path: Path, root: Path, golden: Golden
) -> None:
    upload(bucket, make_set(60_000, 7_000), "c4")
    for arguments in (
        ["dataset.path=s3://sets/nothing"],
        ["dataset.path=s3://sets/c4", "dataset.disk_budget=20K"],
        ["dataset.path=s3://sets/c4", "dataset.val_path=here.npy"],
        ["dataset.path=s3://sets/c4", "dataset.disk_budget=80K", "dataset.val_fraction=0.7", "plan=true"],
    ):
        done = run(root, tmp_path, *arguments)
        assert done.returncode == 2
        golden.text(done.stderr)
