"""Samples of text during training: they change no loss, and come at their steps, of every family."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import copy_of, make_run, metrics_without_clock, run_here, tiny_config

from conf import Config
from conf.composing.check import check
from conf.schema import Arch
from training.attempt.run_files import read_status
from training.plan.plan_problems import problems_with_ranks
from training.run.text_samples import PROMPT_TOKENS, TOKENS, shown

ARCHS = {
    "transformer": Arch(dropout_residual=0.1),
    "lstm": Arch(family="lstm", positions="none"),
    "lstm with states": Arch(family="lstm", positions="none", state_reset=0.1),
}


def sampling(config: Config, **keys: Any) -> Config:
    logging = dataclasses.replace(config.logging, **({"sample_every": 5} | keys))
    return dataclasses.replace(config, logging=logging)


def samples(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)
def test_losses_are_those_of_a_run_without_samples(tmp_path: Path, arch: Arch) -> None:
    config = dataclasses.replace(tiny_config(tmp_path, max_steps=12, ema=0.9), arch=arch)
    if arch.state_reset is not None:
        dataset = dataclasses.replace(config.dataset, windows="streams")
        config = dataclasses.replace(config, dataset=dataset)
    plain, folder = make_run(config), copy_of(sampling(config), tmp_path / "sampling")
    assert folder.name == plain.name, "samples are outside of the identity"
    generators = []
    for each in (plain, folder):
        done = run_here(each, "--quiet")
        assert done.returncode == 0, done.stdout + done.stderr
        generators.append(torch.get_rng_state())
    assert torch.equal(*generators)
    assert metrics_without_clock(folder) == metrics_without_clock(plain)
    newest = [max((each / "checkpoints").glob("step-*")) / "state.json" for each in (plain, folder)]
    assert len({json.loads(path.read_text())["sha256"]["model.safetensors"] for path in newest}) == 1
    assert [one["step"] for one in samples(folder)] == [5, 10, 12]
    assert {len(one["prompt"].encode()) for one in samples(folder)} == {PROMPT_TOKENS}
    assert not (plain / "samples.jsonl").exists()
    assert (folder / "log.txt").read_text().count("sample: ") == 3


def test_resumed_run_has_each_sample_once(tmp_path: Path) -> None:
    config = sampling(tiny_config(tmp_path, max_steps=12), sample_prompt="the")
    whole, folder = make_run(config), copy_of(config, tmp_path / "resumed")
    assert run_here(whole, "--quiet").returncode == 0
    assert run_here(folder, "--quiet").returncode == 0
    for path in sorted((folder / "checkpoints").glob("step-*"))[1:]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"state": "failed"}))
    assert run_here(folder, "--quiet").returncode == 0
    assert read_status(folder)["attempt"] == 2
    assert samples(folder) == samples(whole)
    assert [(one["step"], one["prompt"]) for one in samples(folder)] == [
        (5, "the"), (10, "the"), (12, "the"),
    ]  # fmt: skip


def test_what_cannot_be_sampled_is_refused() -> None:
    for config, where in (
        ({"logging": {"sample_every": 5}, "tokenizer": {"name": "ids"}}, "logging.sample_every"),
        ({"logging": {"sample_prompt": "the"}}, "logging.sample_prompt"),
        ({"logging": {"sample_every": 0}}, "logging.sample_every"),
    ):
        assert [problem.where for problem in check(config)[1]] == [where]
    found = check({"logging": {"sample_every": 5}, "training": {"parallel": "fsdp"}})[0]
    assert [problem.where for problem in problems_with_ranks(found, 2)] == ["logging.sample_every"]


def test_run_without_held_out_text_needs_a_prompt(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, max_steps=2)
    dataset = dataclasses.replace(config.dataset, val_fraction=0.0)
    config = sampling(dataclasses.replace(config, dataset=dataset))
    folder = make_run(config)
    assert run_here(folder, "--quiet").returncode == 2
    folder = make_run(sampling(config, sample_prompt="the"))
    assert run_here(folder, "--quiet").returncode == 0
    assert [one["step"] for one in samples(folder)] == [2]


def test_line_of_the_log_fits_a_terminal() -> None:
    text = "b1\nb2 \x1b[31m" + "b3 b4 " * TOKENS
    line = shown("it begins with more than the line has room for", text)
    assert len(line) == 72
    assert line.isprintable()
    assert " | b1 b2 [31mb3 b4 b3" in line
    assert shown("a1", " b1") == "a1 | b1"
    assert shown("a1", "\u6c34" * TOKENS) == f"a1 | {32 * chr(0x6C34)}...", "each takes two columns"
