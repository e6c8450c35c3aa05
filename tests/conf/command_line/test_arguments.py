"""Flags and overrides in any order, without Hydra."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.command_line.arguments import read_arguments
from experiment_utils.errors import UserError
from tests.golden_text import Golden


def test_flags_and_overrides_in_any_order() -> None:
    found = read_arguments(["model=32d", "-m", "seed=0,1", "--json", "~x", "-cd", "mine", "+a=-3"])
    assert found.overrides == ["model=32d", "seed=0,1", "~x", "+a=-3"]
    assert (found.multirun, found.json, found.config_dir) == (True, True, Path("mine"))
    assert (found.help, found.version, found.show, found.to_hydra) == (False, False, None, False)


@pytest.mark.parametrize(
    ("argv", "topics"),
    [
        (["--help"], []),
        (["-h", "model"], ["model"]),
        (["--help", "model=64d", "optimizer.lr"], ["model", "optimizer.lr"]),
        (["model=?"], ["model"]),
        (["seed=3", "optimizer.lr=?"], ["optimizer.lr"]),
    ],
)
def test_help_and_its_topics(argv: list[str], topics: list[str]) -> None:
    found = read_arguments(argv)
    assert found.help
    assert found.topics == topics


@pytest.mark.parametrize(
    "argv", [["--info"], ["--info", "plugins"], ["--hydra-help"], ["--cfg", "hydra"], ["-sc", "query=x"]]
)
def test_commands_that_are_hydras(argv: list[str]) -> None:
    assert read_arguments(argv).to_hydra


def test_the_configuration_is_shown_by_us() -> None:
    found = read_arguments(["--cfg", "job", "--package", "model"])
    assert (found.show, found.package, found.to_hydra) == ("job", "model", False)


def test_unknown_flags_and_wrong_choices_are_refused(golden: Golden) -> None:
    texts = []
    for argv in ("--hlp", "--model 64d", "--plan", "--plan=true", "--cfg", "--cfg jobs", "-x --yy"):
        with pytest.raises(UserError) as raised:
            read_arguments(argv.split())
        texts.append(f"{argv}\n  {raised.value}")
    golden.text("\n".join(texts))
