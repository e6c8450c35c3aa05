"""Composition is Hydra's, and the yaml files cannot drift from the schema."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import conf.composing.compose
from conf import Config
from conf.between_keys.logging_rules import is_missing
from conf.command_line.request import read_request, read_run
from conf.composing.check import to_config
from conf.composing.compose import Composer
from conf.composing.hydra_setup import VERSION_BASE, prepare_hydra
from conf.keys import groups, keys
from conf.option_files import CONF
from experiment_utils.errors import UserError
from tests.golden_text import Golden, refused

OWN_FILES = {
    "model/mine.yaml": "d_model: 80\nn_heads: ${model.n_layers}\nn_layers: 5\n",
    "model/child.yaml": "defaults:\n  - mine\n\nn_layers: 8\n",
    "dataset/mine.yaml": (
        "defaults:\n  - override /tokenizer@_global_.tokenizer: gpt2\n  - override /arch@_global_.arch: "
        "transformer_untied\n\nval_fraction: 0.2\ndefault_max_tokens: 5M\n"
    ),
    "optimizer/slow.yaml": "name: adamw\nlr: 1e-4\nbeta2: 0.99\n",
    "training/long.yaml": "seq_len: 1024\nmax_steps: 1e3\n",
    "study/mine.yaml": (
        "# @package _global_\ndefaults:\n  - override /model: 64d\n\ntags: [a, b]\n"
        "optimizer:\n  lr: ${schedule.final_lr_fraction}\nnotes: ${model.name} on ${dataset.name}\n"
    ),
    "extra/global.yaml": "# @package _global_\nseed: 7\ntraining:\n  evals: 3\n",
}


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    for name, text in OWN_FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


@pytest.fixture(autouse=True)
def _no_hydra_left() -> Iterator[None]:
    yield
    GlobalHydra.instance().clear()


def composed_by_hydra(overrides: list[str], config_dir: Path | None = None) -> Config:
    """What `hydra.compose` makes of it, with the names of the options where no file gives one."""
    prepare_hydra()
    searchpath = [f"hydra.searchpath=[file://{config_dir}]"] if config_dir else []
    with initialize_config_dir(str(CONF), version_base=VERSION_BASE):
        composed = compose("config", [*searchpath, *overrides], return_hydra_config=True)
    choices = composed.hydra.runtime.choices
    plain: dict[str, Any] = OmegaConf.to_container(composed, resolve=False)  # type: ignore[assignment]
    del plain["hydra"]
    for group in groups():
        if plain[group].get("name", "") is None and choices.get(group):
            plain[group]["name"] = choices[group]
    resolved: dict[str, Any] = OmegaConf.to_container(OmegaConf.create(plain), resolve=True)  # type: ignore[assignment]
    return to_config(resolved)


CHOICES = {
    "model": ["32d", "512d", "mine", "child"],
    "arch": ["transformer", "transformer_postnorm"],
    "dataset": ["stdlib", "c4", "mine"],
    "tokenizer": ["bytes", "gpt2"],
    "optimizer": ["adamw", "slow"],
    "schedule": ["cosine", "linear_warmup"],
    "training": ["default", "long"],
    "study": ["seeds", "scaling", "mine"],
    "+extra": ["global"],
}
VALUES = [
    "optimizer.lr=1e-3",
    "training.effective_batch=64",
    "seed=3",
    "runs_dir=elsewhere",
    "tags=[x]",
    "notes='a b'",
    "dataset.path=a.txt",
    "training.max_steps=null",
    "arch.tied_head=false",
    "optimizer.grad_clip=${optimizer.lr}",
    "model.name=named",
    "++training.evals=4",
]


def test_it_is_what_hydra_composes(own_folder: Path) -> None:
    generator = random.Random(0)
    composer = Composer(own_folder)
    for _ in range(10):
        chosen = generator.sample(sorted(CHOICES), generator.randint(0, 5))
        overrides = [f"{group}={generator.choice(CHOICES[group])}" for group in chosen]
        overrides += generator.sample(VALUES, generator.randint(0, 4))
        assert read_run(overrides, composer, rules=()) == composed_by_hydra(overrides, own_folder), overrides


@pytest.mark.slow
def test_nothing_leaks_from_one_composition_to_the_next(own_folder: Path) -> None:
    """The same composer, whatever it composed before."""
    composer = Composer(own_folder)
    for dataset, model, study in itertools.product(CHOICES["dataset"], CHOICES["model"], CHOICES["study"]):
        read_run([f"dataset={dataset}", f"model={model}", f"study={study}"], composer, rules=())
    for dataset, model in itertools.product(CHOICES["dataset"], ["mine", "32d"]):
        overrides = [f"dataset={dataset}", f"model={model}"]
        assert read_run(overrides, composer, rules=()) == composed_by_hydra(overrides, own_folder)


def test_a_choice_that_follows_another_choice_is_followed(own_folder: Path) -> None:
    """A defaults list with an interpolation: no file can stand for another then."""
    (own_folder / "mine.yaml").write_text(
        "defaults:\n  - config\n  - override optimizer: ${model}_rate\n  - _self_\n"
    )
    (own_folder / "optimizer" / "32d_rate.yaml").write_text("name: adamw\nlr: 0.1\n")
    (own_folder / "optimizer" / "64d_rate.yaml").write_text("name: adamw\nlr: 0.2\n")
    composer = Composer(own_folder, "mine")
    rates = [read_run([f"model={model}"], composer).optimizer.lr for model in ("64d", "32d", "64d")]
    assert rates == [0.2, 0.1, 0.2]


@pytest.mark.slow
def test_a_sweep_over_many_groups_asks_hydra_for_few_lists(
    composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    original = conf.composing.compose.Composer._defaults_list
    monkeypatch.setattr(Composer, "_defaults_list", lambda self, o: asked.append(1) or original(self, o))  # type: ignore[func-returns-value]
    request = read_request(["model=glob(*)", "schedule=glob(*)", "seed=0,1"], composer, multirun=True)
    assert len(request.runs) == 270
    assert len({run.config.model.d_model for run in request.runs}) == 15
    assert len(asked) <= 3


@pytest.mark.parametrize("group", list(groups()))
def test_every_option_of_every_group_keeps_to_the_schema(group: str, composer: Composer) -> None:
    options = composer.options(group)
    assert options == [
        file.stem for file in sorted((CONF / group).glob("*.yaml"), key=lambda f: options.index(f.stem))
    ]
    for option in options:
        if group == "logging" and is_missing(option):
            continue  # refused, with the command that installs it
        needs = {
            "custom": ["tokenizer.path=somewhere"],
            "mix": ["dataset.sources=[a,b]", "dataset.weights=[0.5,0.5]"],
        }.get(option, [])
        # A study may be a sweep; what else Hydra makes of -m costs each of the others twice the time.
        request = read_request([f"{group}={option}", *needs], composer, multirun=group == "study")
        for run in request.runs:
            section = getattr(run.config, group)
            if hasattr(section, "name"):
                assert section.name == option


def test_files_name_only_what_they_change(composer: Composer) -> None:
    """A value that repeats the schema's default would hide a change of that default."""
    for group in groups():
        for file in (CONF / group).glob("*.yaml"):
            content = OmegaConf.to_container(OmegaConf.load(file))
            assert isinstance(content, dict)
            for name, value in content.items():
                known = keys().get(f"{group}.{name}")
                if known is not None and (group, file.stem) != ("model", "32d"):
                    assert value != known.default, f"{file}: {name}"


def test_every_dataset_brings_its_tokenizer_and_the_command_line_wins(composer: Composer) -> None:
    expected = {"stdlib": "bytes", "text": "gpt2", "c4": "gpt2", "openwebtext": "gpt2", "wikitext103": "gpt2"}
    of_the_hub = ("dclm", "fineweb", "fineweb-edu", "hf", "pile", "shakespeare", "tiny_shakespeare")
    expected |= dict.fromkeys(of_the_hub, "gpt2")
    expected |= {"synthetic": "ids", "dummy": "ids", "distributed_dummy": "ids"}
    expected["mix"] = "gpt2"
    assert composer.options("dataset") == sorted(expected)
    for dataset, tokenizer in expected.items():
        needs = ["dataset.sources=[a]", "dataset.weights=[1]"] if dataset == "mix" else []
        assert read_run([f"dataset={dataset}", *needs], composer).tokenizer.name == tokenizer
    for order in (["dataset=c4", "tokenizer=bytes"], ["tokenizer=bytes", "dataset=c4"]):
        assert read_run(order, composer).tokenizer.name == "bytes"


def test_sizes(composer: Composer) -> None:
    widths = [32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512]
    assert composer.options("model") == [f"{width}d" for width in widths]
    assert [composer.compose({"model": f"{w}d"}).plain["model"]["d_model"] for w in widths] == widths


def test_what_yaml_takes_for_a_number_of_base_60_is_the_text_again(own_folder: Path) -> None:
    (own_folder / "study" / "late.yaml").write_text(
        "# @package _global_\nnotes: 24:00:00\ntags: [10:20, b]\nruns_dir: a:b\noptimizer:\n  lr: 0.5\n"
    )
    (own_folder / "dataset" / "late.yaml").write_text("path: 1:30\nseq: 1\n")
    config = read_run(["study=late"], Composer(own_folder))
    assert config.notes == "24:00:00"
    assert config.tags == ["10:20", "b"]
    with pytest.raises(UserError, match=r"dataset\.seq"):
        read_run(["dataset=late"], Composer(own_folder))
    (own_folder / "training" / "late.yaml").write_text("max_steps: 1:30\n")
    with pytest.raises(UserError, match="got `1:30`"):
        read_run(["training=late"], Composer(own_folder))


def test_a_value_knows_its_file(own_folder: Path) -> None:
    composition = Composer(own_folder).compose({"model": "child", "study": "mine"})
    assert composition.origin("model.n_layers") == own_folder / "model" / "child.yaml"
    assert composition.origin("model.d_model") == own_folder / "model" / "mine.yaml"
    assert composition.origin("optimizer.lr") == own_folder / "study" / "mine.yaml"
    assert composition.origin("optimizer.beta1") is None


@pytest.mark.parametrize(
    "text",
    ["a: [1", "- 1\n- 2\n", "defaults:\n  - nowhere\n", "defaults:\n  - override /tokenizer: gpt2\n"],
)
def test_a_file_that_cannot_be_used_is_the_users_error(own_folder: Path, text: str) -> None:
    (own_folder / "model" / "broken.yaml").write_text(text)
    with pytest.raises(UserError) as raised:
        read_run(["model=broken"], Composer(own_folder))
    assert "broken.yaml" in str(raised.value)


GLOBAL = "# @package _global_\ndefaults:\n"


@pytest.mark.parametrize("multirun", [False, True])
def test_a_defaults_list_that_cannot_be_followed_names_its_file_and_the_choices(
    own_folder: Path, multirun: bool, golden: Golden
) -> None:
    texts = []
    for file, text in (
        ("model/odd", "defaults: [32d, 33e]"),
        ("model/odd", "defaults: 32d"),
        ("study/odd", f"{GLOBAL}  - override /dataset: stdlb"),
        ("study/odd", f"{GLOBAL}  - override /datset: stdlib"),
        ("study/odd", "defaults:\n  - /datset: stdlib"),
        ("dataset/odd", "defaults:\n  - override /tokenizer: gpt2"),
    ):
        (own_folder / f"{file}.yaml").write_text(text + "\n")
        group = file.partition("/")[0]
        with pytest.raises(UserError) as raised:
            read_request([f"{group}=odd", "seed=1"], Composer(own_folder), multirun=multirun)
        (problem,) = raised.value.problems
        assert problem.where == str(own_folder / f"{file}.yaml")
        texts.append(problem.what)
    golden.text("\n".join(texts))


@pytest.mark.parametrize("text", ["defaults: [odd]\nd_model: 32\n", "&a [*a]\n"])
def test_a_file_that_holds_itself(own_folder: Path, text: str) -> None:
    (own_folder / "model" / "odd.yaml").write_text(text)
    with refused("circular-file"):
        read_run(["model=odd"], Composer(own_folder))


def test_a_file_that_is_no_utf8_is_the_users_error(own_folder: Path) -> None:
    (own_folder / "model" / "broken.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(UserError) as raised:
        read_run(["model=broken"], Composer(own_folder))
    (problem,) = raised.value.problems
    assert problem.where == str(own_folder / "model" / "broken.yaml")
    assert "UTF-8" in problem.what


def test_missing_folder_and_file_are_refused(tmp_path: Path, golden: Golden) -> None:
    with golden.refused("no-config-dir"):
        Composer(tmp_path / "nowhere")
    with golden.refused("no-config-name"):
        Composer(None, "mine")
