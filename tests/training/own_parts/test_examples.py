"""The files in examples/ run from a folder outside the checkout."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import column, write_text

from training.attempt.plugin_copies import hashes_of
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


EXAMPLES = {
    "mlp_mixer.py": ["arch=mixer", "own.mixer.expansion=1"],
    "own_optimizer.py": ["optimizer=sign_sgd", "schedule=triangle"],
    "own_dataset.py": ["dataset=sums", "tokenizer=digits", "own.sums.documents=200", "arch.activation=sine"],
    "transformers_model.py": ["arch=causal_lm"],
}
_OF_A_TEXT = ["dataset=text", "dataset.path=tiny.txt", "tokenizer=bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_models_optimizers_and_data(root: Path, tmp_path: Path, name: str) -> None:
    """In a folder with modules of the user's that are named as ours."""
    shutil.copy(root / "examples" / name, tmp_path)
    for package in ("models", "conf"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit(9)")
    (tmp_path / "memory.py").write_text("raise SystemExit(9)")
    write_text(tmp_path / "tiny.txt")
    chosen = EXAMPLES[name]
    command = [
        sys.executable, str(root / "experiments.py"), f"plugins=[{name}]", *chosen,
        *([] if "dataset=sums" in chosen else _OF_A_TEXT), "model=32d", "training.max_steps=4",
        "training.seq_len=16", "training.evals=1", "training.eval_tokens=256", "training.effective_batch=4",
        "training.threads=1",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (path.parent for path in tmp_path.glob("runs/*/*/run.json"))
    run = read_run(folder)
    assert run["attempts"][0]["code"]["plugins"] == hashes_of(folder)
    assert len(column(folder, "train_loss")) == 4
