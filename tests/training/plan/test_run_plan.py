"""The plan is what will be done: complete, stable, refused where the data do not serve."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import ROOT, tiny_config

from conf import Config
from conf.budget import Budget
from conf.schema import Dataset, Schedule, Study, Training
from conf.seeding import seeds as seeds_of
from data_loading import open_held_out, open_train, prepare_data
from experiment_utils.errors import UserError
from tests.golden_text import Golden
from training.attempt.run_files import run_folder
from training.plan.describe import dear_evaluations
from training.plan.run_plan import make_plan, resolve


def with_training(config: Config, **changes: object) -> Config:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **changes))


def test_a_text_without_tokens_is_planned_without_identity_and_left_alone(tmp_path: Path) -> None:
    plan = make_plan(tiny_config(tmp_path), tokenize=False)
    assert plan.identity is None
    assert plan.folder is None
    assert plan.to_json()["not_tokenized"].endswith("tiny.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.txt"]


def test_the_plan_of_a_tokenized_text_is_complete(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    planned = make_plan(config, tokenize=True)
    again = make_plan(config, tokenize=False)
    assert planned == again
    assert planned.identity is not None
    assert planned.folder == run_folder(planned.config, planned.identity)
    assert planned.total_flops == planned.flops_per_token * planned.budget.tokens
    page = planned.render()
    for fact in (
        f"{planned.parameters:,} parameters",
        "40 steps of 4 x 16",
        "micro-batch 2 x 2",
        str(planned.folder),
    ):
        assert fact in page


def test_a_recurrence_has_no_heads(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    assert "1 layer, 1 head: " in make_plan(config, tokenize=True).render()
    lstm = dataclasses.replace(config, arch=dataclasses.replace(config.arch, family="lstm"))
    assert "1 layer: " in make_plan(lstm, tokenize=True).render()


def test_wishes_beyond_the_end_of_the_run_are_told(tmp_path: Path, golden: Golden) -> None:
    config = tiny_config(tmp_path)  # 40 steps of 64 tokens
    wishes = {"profile": "40:41", "milestones": ["1K", "2K"], "max_time": "90"}
    page = make_plan(with_training(config, **wishes), tokenize=False).render()
    assert "1 h 30 min" in page
    assert "training.milestones" not in page
    assert "training.profile" not in page
    wishes = {"profile": "41:50", "milestones": ["1K", "3K", "1M"]}
    page = make_plan(with_training(config, **wishes), tokenize=False).render()
    golden.lines(page, "training.profile=41:50")
    golden.lines(page, "training.milestones")


def test_a_warm_up_that_outlasts_the_run_is_told(tmp_path: Path, golden: Golden) -> None:
    config = tiny_config(tmp_path)
    for name in ("cosine_warmup", "wsd"):
        long = dataclasses.replace(config, schedule=Schedule(name, warmup_steps=100))
        page = make_plan(long, tokenize=True).render()
        golden.lines(page, "0.0012")
    enough = dataclasses.replace(config, schedule=Schedule("cosine_warmup", warmup_steps=40))
    assert "0.0012" not in make_plan(enough, tokenize=True).render()


def test_resolving_twice_changes_nothing(tmp_path: Path) -> None:
    config = resolve(with_training(tiny_config(tmp_path), effective_batch=None, batch_tokens=64))
    assert config.training.effective_batch == 4
    assert config.training.batch_tokens is None
    assert (config.seed_init, config.seed_data) == (0, 0)
    assert resolve(config) == config


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"seed": 3}, {"seed_init": 3, "seed_data": 3}),
        ({"seed": 3}, {"seed": 5, "seed_init": 3, "seed_data": 3}),
        ({"seed_data": 5}, {"seed": 5, "seed_init": 0}),
    ],
)
def test_seeds_that_mean_the_same_are_one_run(
    tmp_path: Path, one: dict[str, int], other: dict[str, int]
) -> None:
    config = tiny_config(tmp_path)
    found, same = (make_plan(dataclasses.replace(config, **seeds), tokenize=True) for seeds in (one, other))
    assert found.identity == same.identity
    assert found.folder == same.folder
    assert seeds_of(found.config) == seeds_of(same.config)
    assert found.identity != make_plan(dataclasses.replace(config, seed=4), tokenize=True).identity


def test_a_plan_of_its_own_resolved_config_is_the_same_run(tmp_path: Path) -> None:
    config = with_training(tiny_config(tmp_path), max_steps=None)
    first = make_plan(config, tokenize=True)
    assert first.config.training.max_tokens == first.budget.tokens
    assert make_plan(first.config, tokenize=False).identity == first.identity


def test_the_same_text_elsewhere_is_the_same_run(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = make_plan(tiny_config(tmp_path / "a"), tokenize=True)
    other = make_plan(tiny_config(tmp_path / "b"), tokenize=True)
    assert one.identity == other.identity
    text = tmp_path / "b" / "tiny.txt"
    for path in (tmp_path / "b").glob("tiny.npy*"):
        path.unlink()
    text.write_text(text.read_text() + "more\n")
    assert make_plan(tiny_config(tmp_path / "b"), tokenize=True).identity != one.identity


def test_a_window_longer_than_the_data_is_refused_for_both_splits(tmp_path: Path) -> None:
    config = with_training(tiny_config(tmp_path), seq_len=1_000_000)
    with pytest.raises(UserError) as raised:
        make_plan(config, tokenize=True)
    messages = [str(problem) for problem in raised.value.problems]
    assert len(messages) == 2
    assert all("training.seq_len" in message and "1000001 tokens" in message for message in messages)


def test_a_budget_beyond_the_data_is_refused(tmp_path: Path) -> None:
    config = with_training(tiny_config(tmp_path), max_steps=None, max_tokens=10**9)
    with pytest.raises(UserError, match=r"training\.max_tokens.*dataset\.repeat=true"):
        make_plan(config, tokenize=True)
    repeated = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, repeat=True))
    assert make_plan(repeated, tokenize=True).budget.epochs > 1


def with_documents(folder: Path, lengths: list[int], **dataset: object) -> Config:
    """A text of documents of so many tokens each, the line feed and the end-of-text id counted."""
    text = folder / "documents.txt"
    text.write_text("".join("x" * (n - 2) + "\n---\n" for n in lengths))
    made = Dataset(name="text", path=str(text), document_separator="---", documents="separate")
    return dataclasses.replace(tiny_config(folder), dataset=dataclasses.replace(made, **dataset))


def test_the_plan_of_packed_documents_counts_rows(tmp_path: Path, golden: Golden) -> None:
    """Each row of 16 has a document of 10 and one of 6."""
    config = with_documents(tmp_path, [10, 6] * 200, val_fraction=0.25, test_fraction=0.1)
    config = with_training(config, max_steps=None, effective_batch=10)
    plan = make_plan(config, tokenize=True)
    assert plan.data is not None
    counted = {split: plan.data[f"{split}_windows"] for split in ("train", "val", "test")}
    data = prepare_data(config.dataset, config.tokenizer, tokenize=False)
    assert counted == {
        "train": len(open_train(data, config.dataset, 16, 0, 10)),
        "val": len(open_held_out(data, "val", config.dataset, 16)),
        "test": len(open_held_out(data, "test", config.dataset, 16)),
    }
    assert counted["train"] == data.tokens("train") // 16
    assert plan.budget.steps == counted["train"] // 10
    assert plan.data["packing_efficiency"]["train"] == 1
    assert "100.0%" in plan.render()
    assert plan.to_json()["data"]["packing_efficiency"].keys() == counted.keys()
    with pytest.raises(UserError) as raised:
        make_plan(with_training(config, max_steps=counted["train"] // 10 + 1), tokenize=False)
    golden.text(str(raised.value))


def test_documents_without_a_label_are_refused(tmp_path: Path, golden: Golden) -> None:
    with pytest.raises(UserError) as raised:
        make_plan(with_documents(tmp_path, [4] * 300, shift=4), tokenize=True)
    assert len(raised.value.problems) == 2
    golden.text(str(raised.value))


def test_planning_loads_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tiny_run import tiny_config\n"
        "from training.plan.run_plan import make_plan\n"
        "make_plan(tiny_config(Path(sys.argv[1])), tokenize=True).render()\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip().endswith("False"), done.stderr


def test_a_place_for_runs_that_is_a_file_is_refused(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").touch()
    for runs_dir, study, where in (
        ("tiny.txt", None, r"runs_dir: .*tiny\.txt"),
        ("tiny.txt/deeper", "x", r"runs_dir: .*tiny\.txt"),
        ("runs", "mine", r"study\.name: .*mine"),
    ):
        placed = dataclasses.replace(config, runs_dir=str(tmp_path / runs_dir), study=Study(study))
        for tokenize in (False, True):
            with pytest.raises(UserError, match=rf"^{where} is a file"):
                make_plan(placed, tokenize=tokenize)
    assert not list(tmp_path.glob("tiny.npy*"))
    for runs_dir in ("runs", "new/deeper"):
        assert make_plan(dataclasses.replace(config, runs_dir=str(tmp_path / runs_dir)), tokenize=False)


def test_what_must_be_done_before_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr("training.devices.gpu_check.GPU_DEVICE_FILES", ("no-such-file",))
    config = with_training(tiny_config(tmp_path), device="cuda")
    dataset = dataclasses.replace(config.dataset, auto_tokenize=False)
    (gpu,) = make_plan(config, tokenize=False).needs
    tokenize, told_gpu = make_plan(dataclasses.replace(config, dataset=dataset), tokenize=False).needs
    assert {str(tmp_path / "tiny.txt"), "--tokenizer", "bytes"} <= set(tokenize.split())
    assert told_gpu == gpu
    compiled = with_training(config, device="auto", deterministic=True, compile=True, threads=2)
    (deterministic,) = make_plan(compiled, tokenize=False).needs
    assert make_plan(with_training(compiled, threads=1), tokenize=False).needs == ()
    monkeypatch.setattr("training.devices.gpu_check.GPU_DEVICE_FILES", ("null",))
    monkeypatch.setattr("training.devices.gpu_check.torch_build", lambda: "cpu")
    (need,) = make_plan(config, tokenize=False).needs
    assert "training.device: " in need
    golden.text("\n".join([gpu, tokenize, deterministic]), numbers=False)
    monkeypatch.setattr("training.devices.gpu_check.torch_build", lambda: "cuda")
    monkeypatch.setattr("training.devices.gpu_check.torch_facts", lambda: {"cuda": "13.0"})
    assert make_plan(config, tokenize=True).needs == ()


def test_default_training_fits_the_default_dataset_budget() -> None:
    assert Training().max_tokens is None


@pytest.mark.parametrize(
    ("evaluations", "eval_tokens", "override"),
    [
        (10, 6_000, None),  # a third of 60,000 of 100,000 tokens: a fifth
        (10, 12_000, "training.eval_tokens=5888"),
        (10, 600_000, "training.eval_tokens=5888"),
        (1000, 128, "training.evals=468"),
    ],
)
def test_evaluations_that_cost_more_than_a_fifth_of_training_are_warned_of(
    evaluations: int, eval_tokens: int, override: str | None
) -> None:
    budget = Budget(
        tokens=100_000,
        steps=100,
        epochs=0.1,
        effective_batch=8,
        micro_batch=8,
        batch_tokens=1_000,
        accumulation=1,
    )
    found = dear_evaluations(budget, evaluations, eval_tokens, Training(seq_len=128))
    assert [line.rpartition(" ")[2] for line in found] == ([] if override is None else [override])
