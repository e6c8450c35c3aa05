"""Budgets are met exactly or refused, identities never drift, run folders are found again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiment_utils
from conf import Config, UserError
from conf.check import to_config
from conf.schema import Arch, Model, Restore, Training
from experiment_utils import identity, micro_batch, milestones, resolve_budget

GOLDEN = Path(__file__).parent / "golden" / "identities.json"


def budget(training: Training, windows: int = 10**9, **options: object) -> experiment_utils.Budget:
    defaults = {
        "parameters": 1000,
        "train_windows": windows,
        "repeat": False,
        "default_max_tokens": 2_000_000,
    }
    return resolve_budget(training, **(defaults | options))  # type: ignore[arg-type]


@given(
    max_tokens=st.integers(1, 10**12),
    seq_len=st.integers(1, 4096),
    batch=st.integers(1, 2048),
)
def test_a_budget_of_tokens_is_met_and_exceeded_by_less_than_a_step(
    max_tokens: int, seq_len: int, batch: int
) -> None:
    found = budget(
        Training(max_tokens=max_tokens, seq_len=seq_len, effective_batch=batch), windows=10**13, parameters=1
    )
    assert found.tokens == found.steps * batch * seq_len
    assert max_tokens <= found.tokens < max_tokens + batch * seq_len
    assert found.micro_batch * found.accumulation == batch


def test_tokens_per_param_counts_all_parameters() -> None:
    found = budget(Training(tokens_per_param=40, seq_len=1024, effective_batch=64), parameters=29_755_217)
    assert found.tokens == pytest.approx(1.19e9, rel=0.001)


def test_steps_are_taken_as_given() -> None:
    assert budget(Training(max_steps=7)).steps == 7


def test_batch_tokens_and_effective_batch_mean_the_same() -> None:
    by_tokens = budget(Training(max_steps=7, seq_len=128, batch_tokens=8192))
    by_windows = budget(Training(max_steps=7, seq_len=128, effective_batch=64))
    assert by_tokens == by_windows


def test_without_a_budget_one_epoch_at_most() -> None:
    assert budget(Training(seq_len=128)).tokens == pytest.approx(2_000_000, abs=4096)
    small = budget(Training(seq_len=128), windows=1000)
    assert small.steps == 1000 // 32


def test_a_budget_beyond_the_data_is_refused_with_what_there_is() -> None:
    with pytest.raises(UserError) as raised:
        budget(Training(max_tokens=10_000_000, seq_len=128), windows=2375)
    message = str(raised.value)
    assert "training.max_tokens" in message
    assert "2,375 windows" in message
    assert "training.max_steps=74" in message
    assert "dataset.repeat=true" in message
    repeated = budget(Training(max_tokens=10_000_000, seq_len=128), windows=2375, repeat=True)
    assert repeated.epochs == pytest.approx(repeated.steps * 32 / 2375)


def test_the_last_whole_step_of_an_epoch_may_be_taken() -> None:
    assert budget(Training(max_steps=74, seq_len=128), windows=2375).steps == 74
    with pytest.raises(UserError):
        budget(Training(max_steps=75, seq_len=128), windows=2375)


def test_a_step_larger_than_the_data_is_refused() -> None:
    with pytest.raises(UserError, match=r"effective_batch=5 or less"):
        budget(Training(max_steps=1, seq_len=128, effective_batch=32), windows=5)


@given(batch=st.integers(1, 4096), seq_len=st.integers(1, 65536))
def test_auto_micro_batch_divides_the_effective_batch(batch: int, seq_len: int) -> None:
    size = micro_batch(Training(effective_batch=batch, seq_len=seq_len))
    assert batch % size == 0
    assert size == 1 or size * seq_len <= experiment_utils.AUTO_MICRO_BATCH_TOKENS


@given(steps=st.integers(1, 10**6), count=st.integers(1, 200), spacing=st.sampled_from(["linear", "log"]))
def test_milestones_ascend_to_the_last_step(steps: int, count: int, spacing: str) -> None:
    found = milestones(steps, count, spacing)
    assert found == sorted(set(found))
    assert found[-1] == steps
    assert found[0] >= 1
    assert len(found) <= count


def test_log_milestones_have_equal_ratios() -> None:
    assert milestones(10_000, 5, "log") == [1, 10, 100, 1000, 10_000]
    assert milestones(100, 4, "linear") == [25, 50, 75, 100]


def test_identities_of_old_configs_never_change() -> None:
    for case in json.loads(GOLDEN.read_text()):
        assert identity(to_config(case["config"]), case["data"]) == case["identity"], case["why"]


def test_where_and_how_are_not_in_the_identity() -> None:
    config = Config()
    moved = dataclasses.replace(
        config,
        runs_dir="elsewhere",
        plan=True,
        tags=["a"],
        notes="b",
        study=dataclasses.replace(config.study, name="other"),
        memory=dataclasses.replace(config.memory, every_steps=7),
        logging=dataclasses.replace(config.logging, every_s=1.0, to="wandb", every_steps=7, project="p"),
        dataset=dataclasses.replace(config.dataset, path="/data/c4.npy", auto_tokenize=False),
        training=dataclasses.replace(
            config.training,
            micro_batch=4,
            loss_chunk=64,
            threads=3,
            checkpoint_every=9,
            activation_checkpointing=True,
        ),
    )
    assert identity(config, "data") == identity(moved, "data")


@pytest.mark.parametrize(
    ("group", "change"),
    [
        ("optimizer", {"lr": 1e-2}),
        ("training", {"seq_len": 64}),
        ("model", {"d_model": 48}),
        ("dataset", {"val_fraction": 0.2}),
        ("schedule", {"name": "constant"}),
    ],
)
def test_what_is_computed_is_in_the_identity(group: str, change: dict[str, object]) -> None:
    config = Config()
    changed = dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **change)})
    assert identity(config, "data") != identity(changed, "data")
    assert identity(config, "data") != identity(config, "other data")


def test_a_key_added_later_keeps_old_identities_at_its_old_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    from conf.schema import key

    @dataclasses.dataclass
    class Grown(Training):
        z_loss: float = key(0.0, "added later", as_before=0.0)

    def config(**options: float) -> Config:
        return dataclasses.replace(Config(), training=Grown(**options))

    assert identity(config(), "data") == identity(Config(), "data")
    assert identity(config(z_loss=1e-4), "data") != identity(Config(), "data")


def test_a_run_has_a_name_a_person_can_read() -> None:
    config = dataclasses.replace(Config(), seed=1)
    assert experiment_utils.run_name(config, "1a2b3c4d" + "0" * 56) == "32d-lr0.003-seed1-1a2b3c4d"
    apart = dataclasses.replace(config, seed_init=1, seed_data=7)
    assert experiment_utils.run_name(apart, "1a2b3c4d" + "0" * 56) == "32d-lr0.003-seed1-data7-1a2b3c4d"


def test_create_run_writes_a_config_that_reads_back(tmp_path: Path) -> None:
    config = dataclasses.replace(
        Config(), runs_dir=str(tmp_path / "runs"), tags=["été", "1e-3"], notes="on: off"
    )
    folder = experiment_utils.create_run(config, "ab" * 32)
    assert folder == tmp_path / "runs" / "default" / "32d-lr0.003-seed0-abababab"
    assert to_config(experiment_utils.read_config(folder)) == config
    assert experiment_utils.create_run(config, "ab" * 32) == folder


def test_create_run_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    config = dataclasses.replace(Config(), runs_dir=str(tmp_path / "runs"))
    with pytest.raises(UserError, match="runs_dir") as raised:
        experiment_utils.create_run(config, "ab" * 32)
    assert str(tmp_path / "runs") in str(raised.value)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Model(), "32d"),
        (Model("32d", 64), "64d"),
        (Model("32d", 64, 4, 4), "64d"),
        (Model("32d", 64, 2, 8), "64d-2layers-8heads"),
        (Model("narrow", 40, 1), "narrow"),
    ],
)
def test_a_run_is_not_called_by_a_size_it_is_not(model: Model, name: str) -> None:
    config = dataclasses.replace(Config(), model=model)
    assert experiment_utils.run_name(config, "ab" * 32) == f"{name}-lr0.003-seed0-abababab"


def sweep(**values: list[object]) -> list[Config]:
    """Every combination; a key is written GROUP__KEY."""
    configs = [Config()]
    for path, choices in values.items():
        group, _, name = path.rpartition("__")
        configs = [
            dataclasses.replace(
                config, **{group: dataclasses.replace(getattr(config, group), **{name: choice})}
            )
            if group
            else dataclasses.replace(config, **{name: choice})
            for config in configs
            for choice in choices
        ]
    return configs


def test_what_varies_and_no_name_tells_has_a_column() -> None:
    assert experiment_utils.varying_settings([]) == {}
    assert experiment_utils.varying_settings(sweep(optimizer__lr=[1e-3, 3e-3], seed=[0, 1])) == {}
    assert experiment_utils.varying_settings(sweep(training__max_steps=[1, 2], notes=["a", "b"])) == {}
    assert experiment_utils.varying_settings(sweep(model__d_model=[32, 64])) == {}
    assert experiment_utils.varying_settings(
        sweep(training__effective_batch=[4, 8], schedule__name=["cosine", "constant"], seed=[0, 1])
    ) == {
        "schedule": ["cosine", "cosine", "constant", "constant"] * 2,
        "effective_batch": ["4"] * 4 + ["8"] * 4,
    }


def test_what_an_option_brings_with_it_is_told_by_its_name() -> None:
    plain, post = Config(), Config(arch=Arch(name="transformer_postnorm", norm_position="post"))
    bare = dataclasses.replace(post, arch=dataclasses.replace(post.arch, tied_head=False))
    names = ["transformer", "transformer_postnorm"]
    assert experiment_utils.varying_settings([plain, post]) == {"arch": names}
    told = experiment_utils.varying_settings([plain, post, bare])
    assert told == {"arch": [*names, names[1]], "tied_head": ["true", "true", "false"]}


def test_what_follows_from_the_run_that_one_begins_from_has_no_column() -> None:
    """The rungs of a search: the first begins anew."""
    anew, trunk = Config(), Config(restore=Restore(from_="runs/a/b", what="run", step=20))
    assert experiment_utils.varying_settings([anew, trunk]) == {"from": ["null", "runs/a/b"]}
    earlier = dataclasses.replace(trunk, restore=dataclasses.replace(trunk.restore, step=10))
    assert experiment_utils.varying_settings([trunk, earlier]) == {"step": ["20", "10"]}


def test_titles_tell_keys_of_the_same_name_apart() -> None:
    configs = sweep(dataset__path=["a", "b c"], tokenizer__path=[None, "t"])
    assert experiment_utils.varying_settings(configs) == {
        "path": ["a", "a", "b c", "b c"],
        "tokenizer.path": ["null", "t"] * 2,
    }


def test_the_state_of_a_run_whose_process_is_gone(tmp_path: Path) -> None:
    assert experiment_utils.state_of(tmp_path) is None
    experiment_utils.Status(tmp_path, attempt=1).update(state="running")
    with experiment_utils.run_lock(tmp_path):
        assert experiment_utils.state_of(tmp_path) == "running"
        lock = (tmp_path / "run.lock").read_text()
    assert experiment_utils.state_of(tmp_path) == "failed"
    holder = json.loads(lock)
    (tmp_path / "run.lock").write_text(json.dumps(holder | {"pid": 1, "started_at": 1}))
    assert experiment_utils.state_of(tmp_path) == "failed"
    (tmp_path / "run.lock").write_text(json.dumps(holder | {"host": "elsewhere"}))
    assert experiment_utils.state_of(tmp_path) == "running"
    (tmp_path / "run.lock").write_text("{")
    assert experiment_utils.state_of(tmp_path) == "running"
    experiment_utils.Status(tmp_path, attempt=1).update(state="done")
    assert experiment_utils.state_of(tmp_path) == "done"


@pytest.mark.parametrize("content", ['{"attempts": 5}', '{"auto": [1]}', '{"results": 5}', "[]", "{"])
def test_a_run_json_of_another_shape_is_told(content: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match=r"run\.json was damaged .*Move it aside: mv "):
        experiment_utils.read_run(tmp_path)
