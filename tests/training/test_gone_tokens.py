"""Tokens that are gone when an attempt begins: what is gone, where it was, what to type; exit 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_run import make_run, run_here, tiny_config

from training.attempt.run_files import read_status


def purge(folder: Path, *names: str) -> None:
    for path in folder.iterdir():
        if path.name.startswith("tiny.") and path.is_file() and path.name.endswith(names):
            path.unlink()


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize(
    ("gone", "command"),
    [
        (("npy", "json"), "pretokenize_dataset.py {folder}/tiny.txt --tokenizer bytes"),
        (("npy", "json", "txt"), "--output {folder}/tiny.npy"),
    ],
)
def test_tokens_that_are_gone_are_named(
    gone: tuple[str, ...], command: str, has_begun: bool, tmp_path: Path
) -> None:
    run = make_run(tiny_config(tmp_path, max_steps=4, evals=1))
    if has_begun:
        assert run_here(run, "--quiet").returncode == 0
        status = json.loads((run / "status.json").read_text())
        (run / "status.json").write_text(json.dumps({**status, "state": "timeout", "step": 2}))
    purge(tmp_path, *gone)
    assert run_here(run, "--quiet").returncode == 2
    reason = read_status(run)["reason"]
    assert "AssertionError" not in reason
    for part in (f"{tmp_path}/tiny.npy", command.format(folder=tmp_path), f"resubmit {run}"):
        assert part in reason
