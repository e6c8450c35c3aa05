"""Parts of plugins as choices and options of a configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conf.command_line.request import read_request
from conf.composing.check import to_config, to_plain, to_yaml
from conf.composing.compose import Composer
from conf.composing.run_identity import identity
from experiment_utils.errors import UserError
from tests.own_plugins import MODEL, OPTIMIZER, SCHEDULE, forget_plugins, write_plugin

CALLBACK = (
    '@dataclass\nclass P:\n    every: int = 3\n@register.callback("probe", options=P)\nclass Probe: ...'
)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    forget_plugins()
    yield
    forget_plugins()


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_plugin(tmp_path, MODEL, OPTIMIZER, SCHEDULE, CALLBACK)


def configs(*overrides: str, multirun: bool = False) -> list[Any]:
    request = read_request(list(overrides), Composer(), multirun=multirun)
    return [run.config for run in request.runs]


def codes(*overrides: str) -> dict[str, str]:
    with pytest.raises(UserError) as refused:
        configs(*overrides)
    return {problem.where: problem.code for problem in refused.value.problems}


def test_parts_are_options_of_their_groups(plugin: Path) -> None:
    (config,) = configs(
        "plugins=[parts.py]", "arch=tiny", "optimizer=plain", "schedule=falling", "own.tiny.hidden=5"
    )
    assert (config.arch.family, config.arch.name) == ("tiny", "tiny")
    assert (config.optimizer.name, config.schedule.name) == ("plain", "falling")
    assert config.own == {"tiny": {"hidden": 5}}
    assert config.plugins == [str(plugin)]


def test_plugin_without_a_part_in_use_is_not_recorded(plugin: Path) -> None:
    (config,) = configs("plugins=[parts.py]")
    assert config.plugins == []
    assert config.own == {}


def test_options_are_swept(plugin: Path) -> None:
    found = configs("plugins=[parts.py]", "arch=tiny,transformer", "seed=0,1", multirun=True)
    assert [config.own for config in found] == [{"tiny": {"hidden": 8}}] * 2 + [{}] * 2
    found = configs("plugins=[parts.py]", "arch=tiny", "own.tiny.hidden=2,4", multirun=True)
    assert [config.own["tiny"]["hidden"] for config in found] == [2, 4]


def test_all_problems_at_once(plugin: Path) -> None:
    found = codes(
        "plugins=[parts.py]", "arch=tiny", "own.tiny.hidden=0", "own.tiny.hiden=3", "own.probe.every=2",
        "arch.norm=layer", "optimizer.lr=x", "training.callbacks=[prob]", "own.other.a=1",
    )  # fmt: skip
    assert {"own.tiny.hidden", "own.tiny.hiden", "own.other.a", "optimizer.lr", "training.callbacks"} <= {
        *found
    }
    assert found["own.probe.every"] == "part-not-used"


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("plugins=[gone.py]", "no-plugin"),
        ("plugins=[parts]", "no-plugin"),
        ("plugins=[no.such.module]", "no-plugin"),
        ("plugins=[text.txt/]", "no-plugin"),
        ("plugins=parts.py", "plugins-no-list"),
        ("plugins=[parts.py],[parts.py]", "plugins-swept"),
    ],
)
def test_plugins_that_cannot_be_used(plugin: Path, typed: str, code: str) -> None:
    assert codes(typed) == {"plugins": code}


def test_names_of_ours_and_names_twice_are_refused(plugin: Path, tmp_path: Path) -> None:
    write_plugin(tmp_path, OPTIMIZER.replace("plain", "adamw"), name="ours.py")
    assert list(codes("plugins=[ours.py]").values()) == ["name-taken"]
    write_plugin(tmp_path, SCHEDULE.replace("falling", "tiny"), name="twice.py")
    assert codes("plugins=[parts.py,twice.py]") == {"plugins": "registered-twice"}


@pytest.mark.parametrize("place", ["study", "variable", "folder", "module"])
def test_places_of_plugins(plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    typed = ["arch=tiny"]
    if place == "study":
        (tmp_path / "own" / "study").mkdir(parents=True)
        (tmp_path / "own" / "study" / "mine.yaml").write_text("# @package _global_\nplugins: [parts.py]\n")
        request = read_request(["study=mine", *typed], Composer(tmp_path / "own"), multirun=False)
        assert request.runs[0].config.plugins == [str(plugin)]
        return
    if place == "variable":
        monkeypatch.setenv("HIGHWATER_PLUGINS", os.pathsep.join(["parts.py"]))
        expected = str(plugin)
    elif place == "folder":
        (tmp_path / "folder").mkdir()
        plugin.rename(tmp_path / "folder" / "parts.py")
        typed, expected = [*typed, "plugins=[folder]"], str(tmp_path / "folder")
    else:
        (tmp_path / "pack" / "inner").mkdir(parents=True)
        (tmp_path / "pack" / "__init__.py").write_text("raise SystemExit('it is not imported')")
        plugin.rename(tmp_path / "pack" / "inner" / "parts.py")
        monkeypatch.syspath_prepend(str(tmp_path))
        typed, expected = [*typed, "plugins=[pack.inner.parts]"], "pack.inner.parts"
    (config,) = configs(*typed)
    assert config.plugins == [expected]


def test_identity_has_name_and_options_and_no_path(plugin: Path, tmp_path: Path) -> None:
    (one,) = configs("plugins=[parts.py]", "arch=tiny")
    plugin.rename(tmp_path / "moved.py")
    forget_plugins()
    (moved,) = configs("plugins=[moved.py]", "arch=tiny")
    (other,) = configs("plugins=[moved.py]", "arch=tiny", "own.tiny.hidden=9")
    (watched,) = configs("plugins=[moved.py]", "arch=tiny", "training.callbacks=[probe]", "own.probe.every=2")
    assert identity(one, "data") == identity(moved, "data") == identity(watched, "data")
    assert identity(other, "data") != identity(one, "data")


def test_saved_configuration_is_read_without_its_plugin(plugin: Path) -> None:
    (config,) = configs("plugins=[parts.py]", "arch=tiny", "optimizer=plain", "own.tiny.hidden=5")
    text, plain = to_yaml(config), to_plain(config)
    plugin.unlink()
    forget_plugins()
    assert to_config(plain) == config
    assert "hidden: 5" in text


def test_a_typo_imports_no_plugin_and_no_torch(plugin: Path, tmp_path: Path, root: Path) -> None:
    write_plugin(tmp_path, MODEL, 'raise SystemExit("run")', name="loud.py")
    code = (
        "import sys, experiments\n"
        "code = experiments.main(['plugins=[loud.py]', 'arch=tiny', 'own.tiny.hiden=3'])\n"
        "print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.stdout.split() == ["2", "False"]
    assert "own.tiny.hidden" in done.stderr


@pytest.mark.parametrize(
    "typed",
    ["dataset.documents=masked", "training.activation_checkpointing=true", "training.parallel=fsdp"],
)
def test_settings_that_an_own_model_does_not_go_with(plugin: Path, typed: str) -> None:
    assert codes("plugins=[parts.py]", "arch=tiny", typed) == {typed.partition("=")[0]: "own-model"}


def test_plugins_of_an_earlier_request_are_forgotten(plugin: Path, tmp_path: Path) -> None:
    configs("plugins=[parts.py]", "arch=tiny")
    assert "arch" in codes("arch=tiny")
    plugin.rename(tmp_path / "moved.py")
    assert configs("plugins=[moved.py]", "arch=tiny")[0].plugins == [str(tmp_path / "moved.py")]


def test_edited_plugin_is_read_again(plugin: Path) -> None:
    assert configs("plugins=[parts.py]", "arch=tiny")[0].own["tiny"]["hidden"] == 8
    plugin.write_text(plugin.read_text().replace("option(8,", "option(16,"))
    assert configs("plugins=[parts.py]", "arch=tiny")[0].own["tiny"]["hidden"] == 16


def test_hydra_gets_the_parts_of_a_sweep(plugin: Path) -> None:
    from hydra.core.config_store import ConfigStore

    from conf.composing.hydra_setup import prepare_hydra
    from conf.own_parts.use import use_plugins

    use_plugins(["parts.py"], only=True)
    prepare_hydra(own_parts=True)
    repo = ConfigStore.instance().repo
    assert repo["arch"]["tiny.yaml"].node == {"name": "tiny", "family": "tiny"}
    assert repo["schema.yaml"].node["own"]["tiny"] == {"hidden": 8}
    del repo["arch"], repo["optimizer"], repo["schedule"]
    prepare_hydra()
