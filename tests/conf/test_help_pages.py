"""The pages of --help say what there is, as the yaml files and the schema have it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from composed_once import kept_composer

from conf.command_line.help import EXAMPLES, help_page
from conf.keys import groups, keys
from conf.option_files import CONF, default_options, options_of
from conf.values import describe
from experiment_utils.errors import UserError
from tests.golden_text import Golden


def test_the_front_page_has_examples_first_and_every_group_and_option() -> None:
    page = help_page([])
    assert page.index(EXAMPLES[0][0]) < page.index("[GROUP=OPTION]")
    assert "32d* 48d" in page
    for group in groups():
        assert re.search(rf"^  {group} ", page, re.MULTILINE)
        for option in options_of(group):
            assert re.search(rf" {re.escape(option)}(\*|\s)", page)
    assert max(map(len, page.splitlines())) <= 112


def test_a_group_page_has_every_option_and_key() -> None:
    for group in groups():
        page = help_page([group])
        for option in options_of(group):
            assert re.search(rf"^  {re.escape(option)}\*?  +\S", page, re.MULTILINE), option
        for path in keys():
            if path.startswith(f"{group}."):
                assert f"  {path}=" in page


def test_every_dataset_lists_its_default_path_and_tokenizer(golden: Golden) -> None:
    page = help_page(["dataset"])
    assert {"Datasets/c4*.txt", "stdlib*.npy"} <= set(page.split())
    golden.text(page)


def test_a_key_page() -> None:
    page = help_page(["optimizer.lr"])
    assert describe(keys()["optimizer.lr"]) in page
    assert "0.003" in page


def test_options_of_ones_own_are_listed(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "wide.yaml").write_text("# A wide one\nd_model: 100\n")
    (line,) = (line.split() for line in help_page(["model"], tmp_path).splitlines() if "wide" in line)
    assert line == ["wide", "A", "wide", "one"]
    assert " wide" in help_page([], tmp_path)


def test_the_defaults_are_those_of_config_yaml() -> None:
    listed = yaml.safe_load((CONF / "config.yaml").read_text())["defaults"]
    expected = {
        group: option
        for entry in listed
        if isinstance(entry, dict)
        for group, option in entry.items()
        if option is not None and not group.startswith("override")
    }
    assert default_options() | {"study": None} == expected | {"study": None}
    assert set(expected) == set(groups()) - {"study"}


def test_topics_that_there_are_not() -> None:
    with pytest.raises(UserError) as raised:
        help_page(["modle", "zzzzzz", "model"])
    assert [problem.where for problem in raised.value.problems] == ["modle", "zzzzzz"]
    assert "model" in raised.value.problems[0].what


def test_examples_are_commands_that_the_check_takes() -> None:
    from conf.command_line.arguments import read_arguments
    from conf.command_line.request import read_request

    composer = kept_composer()
    for command, _ in EXAMPLES:
        arguments = read_arguments(command.split())
        if not arguments.help:
            assert read_request(arguments.overrides, composer, multirun=arguments.multirun).runs
