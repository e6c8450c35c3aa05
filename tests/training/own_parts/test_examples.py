"""The files in examples/ run from a folder outside the checkout."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tiny_run import column, write_text

from training.attempt.run_files import read_run

FILES = ("own_metric.py", "own_callback.py", "auxiliary_loss.py")


def test_examples_of_metric_callback_and_step(root: Path, tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(root / "examples" / name, tmp_path)
    write_text(tmp_path / "tiny.txt")
    command = [
        sys.executable, str(root / "experiments.py"), f"plugins=[{','.join(FILES)}]", "dataset=text",
        "dataset.path=tiny.txt", "tokenizer=bytes", "logging.metrics=[token_accuracy,update_ratio]",
        "own.token_accuracy.k=3", "training.callbacks=[loss_mean]", "training.step=with_auxiliary",
        "own.with_auxiliary.weight=1e-3", "training.max_steps=8", "training.seq_len=16", "training.evals=2",
        "training.eval_tokens=512", "training.effective_batch=4", "training.threads=1",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (path.parent for path in tmp_path.glob("runs/*/*/run.json"))
    assert all(0 <= share <= 100 for share in column(folder, "token_accuracy"))
    assert len(column(folder, "update_ratio")) == 8
    assert read_run(folder)["metrics"]["token_accuracy"]["unit"] == "%"
    lines = (folder / "own" / "loss_mean" / "means.jsonl").read_text().splitlines()
    assert [json.loads(line)["val_loss"] for line in lines] == column(folder, "val_loss")
