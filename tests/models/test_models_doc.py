"""docs/models.md and docs/training.md say what the code does: its choices and its numbers."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from conf.schema import Arch, Model, Optimizer, Schedule
from models.options.counts import count_parameters, flops_per_token


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "models.md").read_text()


@pytest.mark.parametrize("group", [Optimizer, Schedule])
def test_every_choice_has_a_row_and_the_default_comes_first(root: Path, group: type) -> None:
    page = (root / "docs" / "training.md").read_text()
    for field in fields(group):
        choices = field.metadata["choices"]
        if choices is None:
            continue
        found = documented(page, f"{group.__name__.lower()}.{field.name}")
        assert found[0] == field.default
        assert set(found) == set(choices)


def documented(page: str, key: str) -> list[str]:
    """The choices in the rows of a key; rows after the first leave the key out."""
    block = re.search(rf"^\| `{re.escape(key)}` \|.*\n(?:\| \|.*\n)*", page, re.MULTILINE)
    assert block, key
    return [row.split("|")[2].strip(" `") for row in block.group().splitlines()]


def test_the_sizes_of_the_table_are_those_of_the_formulas(page: str, root: Path) -> None:
    rows = re.findall(r"^\| `(\d+)d` \| (.*) \|$", page, re.MULTILINE)
    assert {f"{width}d" for width, _ in rows} == {
        path.stem for path in (root / "conf" / "model").glob("*.yaml")
    }
    for width, cells in rows:
        model, arch = Model(d_model=int(width)), Arch()
        gpt2, in_bytes = (count_parameters(model, arch, vocabulary, 128) for vocabulary in (50_257, 257))
        flops = flops_per_token(model, arch, 50_257, 128)
        assert cells == (
            f"{round(int(width) / 16)} | {gpt2.non_embedding:,} | {gpt2.total:,} | {in_bytes.total:,} | "
            f"{flops.head / flops.total:.0%}"
        )


def test_the_sizes_of_the_replaced_system_are_those_of_its_option(page: str, root: Path) -> None:
    options = yaml.safe_load((root / "conf" / "arch" / "experimental_progress.yaml").read_text())
    rows = re.findall(r"^\| `model=(\d+)d` \| ([\d,]+) \|$", page, re.MULTILINE)
    assert [width for width, _ in rows] == ["32", "64", "128", "256", "512"]
    for width, total in rows:
        counted = count_parameters(Model(d_model=int(width)), Arch(**options), 50_257, 128)
        assert f"{counted.total:,}" == total


def test_every_choice_of_the_schema_has_its_code() -> None:
    from training.optimizers import OPTIMIZERS
    from training.step.schedules import SCHEDULES

    choices = {
        (group, field.name): set(field.metadata["choices"] or ())
        for group in (Optimizer, Schedule)
        for field in fields(group)
    }
    assert choices[Optimizer, "name"] == set(OPTIMIZERS)
    assert choices[Schedule, "name"] == set(SCHEDULES)
