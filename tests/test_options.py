"""Config files and code cannot drift: every option of every group is composed and run for one step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from composed_once import kept_composer
from tiny_run import write_text

import core
from conf.between_keys.logging_rules import is_missing
from conf.command_line import request
from conf.composing.compose import Composer
from training.attempt.begin import create_run
from training.attempt.run_files import read_run
from training.plan.run_plan import make_plan

ROOT = Path(__file__).resolve().parent.parent
GROUPS = (
    "model",
    "arch",
    "dataset",
    "tokenizer",
    "optimizer",
    "schedule",
    "training",
    "restore",
    "memory",
    "ensemble",
    "logging",
    "slurm",
)
LARGE = {"160d", "192d", "224d", "256d", "320d", "384d", "448d", "512d"}
QUICK_OF_A_GROUP = 1
"""Options of each group in the quick tests; tests/conf/composing/test_compose.py composes all of them."""
BASE = [
    "training.max_steps=1", "training.seq_len=16", "training.effective_batch=2", "training.evals=1",
    "training.eval_tokens=32", "training.threads=1", "training.device=cpu",
]  # fmt: skip
NEEDS = {
    ("dataset", "text"): ["dataset.path=Datasets/own.txt"],
    ("dataset", "hf"): ["dataset.path=hf://./hub", "dataset.val_tokens=400"],
    ("dataset", "mix"): ["dataset.sources=[Datasets/own.txt,c4]", "dataset.weights=[0.7,0.3]"],
    ("tokenizer", "ids"): ["dataset=synthetic"],
    ("tokenizer", "custom"): ["tokenizer.path=gpt2_tokenizer"],
    ("schedule", "constant"): ["schedule.warmup_fraction=0"],
    ("schedule", "cosine"): ["schedule.warmup_fraction=0"],
}

FROM_THE_HUB = ("dclm", "fineweb", "fineweb-edu", "pile", "shakespeare", "tiny_shakespeare")
"""Where they are not in Datasets/."""


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / "conf" / group).glob("*.yaml"))


def cases() -> list[object]:
    found: list[object] = []
    for group in GROUPS:
        quick = [option for option in options(group) if option not in LARGE][:QUICK_OF_A_GROUP]
        for option in options(group):
            marks = [] if option in quick else [pytest.mark.slow]
            found.append(pytest.param(group, option, marks=marks, id=f"{group}={option}"))
    found += [pytest.param("study", option, id=f"study={option}") for option in options("study")]
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text for each dataset and a small tokenizer where gpt2's is looked for."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("home")
    (folder / "Datasets").mkdir()
    text = write_text(folder / "Datasets" / "own.txt", words=4000)
    for name in ("c4", "openwebtext", "wikitext103_train", "wikitext103_validation", *FROM_THE_HUB):
        (folder / "Datasets" / f"{name}.txt").write_text(f"{text.read_text()}{name}\n")
    (folder / "hub").mkdir()
    lines = [json.dumps({"text": line}) for line in text.read_text().splitlines()]
    (folder / "hub" / "train.jsonl").write_text("\n".join(lines))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(text)], trainer)
    (folder / "gpt2_tokenizer").mkdir()
    tokenizer.save(str(folder / "gpt2_tokenizer" / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def composer() -> Composer:
    return kept_composer()


def test_every_group_with_files_is_run() -> None:
    with_files = {path.parent.name for path in (ROOT / "conf").glob("*/*.yaml")}
    assert with_files == {*GROUPS, "study"}


@pytest.mark.parametrize(("group", "option"), cases())
def test_one_step(
    group: str, option: str, home: Path, composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if group == "logging" and is_missing(option):
        pytest.skip(f"{option} is not installed: make install-test")
    monkeypatch.chdir(home)
    budget = ["training.max_tokens=null", "training.tokens_per_param=null"] if group == "study" else []
    overrides = [f"{group}={option}", *BASE, *budget, *NEEDS.get((group, option), [])]
    plan = make_plan(request.read_run(overrides, composer), tokenize=True)
    assert plan.identity is not None
    folder = create_run(plan.config, plan.identity)
    assert core.run_attempt(folder, terminal=False) == 0, (folder / "log.txt").read_text()
    results = read_run(folder)["results"]
    assert 0 < results["val_loss"] < 20
