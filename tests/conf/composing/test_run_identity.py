"""Identities never drift, and names tell runs apart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from conf import Config
from conf.composing.check import to_config
from conf.composing.run_identity import identity, run_name, varying_settings
from conf.schema import Arch, Model, Restore, Training

GOLDEN = Path(__file__).parents[2] / "golden" / "identities.json"


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


def test_the_balance_of_experts_is_in_the_identity_of_runs_that_have_experts() -> None:
    def identity_of(**options: object) -> str:
        return identity(dataclasses.replace(Config(), arch=Arch(**options)), "data")  # type: ignore[arg-type]

    assert identity_of() == identity_of(balance_over="micro_batch")
    assert identity_of(n_experts=4) != identity_of(n_experts=4, balance_over="micro_batch")
    old = to_config({"arch": {"n_experts": 4}})
    assert identity(old, "data") == identity_of(n_experts=4, balance_over="micro_batch")


def test_a_run_has_a_name_a_person_can_read() -> None:
    config = dataclasses.replace(Config(), seed=1)
    assert run_name(config, "1a2b3c4d" + "0" * 56) == "32d-lr0.003-seed1-1a2b3c4d"
    apart = dataclasses.replace(config, seed_init=1, seed_data=7)
    assert run_name(apart, "1a2b3c4d" + "0" * 56) == "32d-lr0.003-seed1-data7-1a2b3c4d"


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
    assert run_name(config, "ab" * 32) == f"{name}-lr0.003-seed0-abababab"


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
    assert varying_settings([]) == {}
    assert varying_settings(sweep(optimizer__lr=[1e-3, 3e-3], seed=[0, 1])) == {}
    assert varying_settings(sweep(training__max_steps=[1, 2], notes=["a", "b"])) == {}
    assert varying_settings(sweep(model__d_model=[32, 64])) == {}
    assert varying_settings(
        sweep(training__effective_batch=[4, 8], schedule__name=["cosine", "constant"], seed=[0, 1])
    ) == {
        "schedule": ["cosine", "cosine", "constant", "constant"] * 2,
        "effective_batch": ["4"] * 4 + ["8"] * 4,
    }


def test_what_an_option_brings_with_it_is_told_by_its_name() -> None:
    plain, post = Config(), Config(arch=Arch(name="transformer_postnorm", norm_position="post"))
    bare = dataclasses.replace(post, arch=dataclasses.replace(post.arch, tied_head=False))
    names = ["transformer", "transformer_postnorm"]
    assert varying_settings([plain, post]) == {"arch": names}
    told = varying_settings([plain, post, bare])
    assert told == {"arch": [*names, names[1]], "tied_head": ["true", "true", "false"]}


def test_what_follows_from_the_run_that_one_begins_from_has_no_column() -> None:
    """The rungs of a search: the first begins anew."""
    anew, trunk = Config(), Config(restore=Restore(from_="runs/a/b", what="run", step=20))
    assert varying_settings([anew, trunk]) == {"from": ["null", "runs/a/b"]}
    earlier = dataclasses.replace(trunk, restore=dataclasses.replace(trunk.restore, step=10))
    assert varying_settings([trunk, earlier]) == {"step": ["20", "10"]}


def test_titles_tell_keys_of_the_same_name_apart() -> None:
    configs = sweep(dataset__path=["a", "b c"], tokenizer__path=[None, "t"])
    assert varying_settings(configs) == {
        "path": ["a", "a", "b c", "b c"],
        "tokenizer.path": ["null", "t"] * 2,
    }
