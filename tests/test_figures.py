"""docs/figures.md and its pictures show the saved results, name met goals, and use axes that fit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from matplotlib.container import BarContainer

from benchmarks.figures import PAGE, listed, page, read
from benchmarks.harness import RESULTS
from benchmarks.pictures import IMAGES, PICTURES, digest, draw, shown_digest

SECTIONS = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
GOALS = "| goal | measured | wanted | met |"


def test_page_shows_the_saved_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python benchmarks/figures.py"


@pytest.mark.parametrize("name", PICTURES)
def test_picture_shows_the_saved_result(name: str) -> None:
    assert shown_digest(IMAGES / name) == digest(read(PICTURES[name][0])), "run python benchmarks/figures.py"


def test_digest_depends_on_values_only(tmp_path: Path) -> None:
    [path] = draw("memory-leaks.png", folder=tmp_path)
    found = read("memory_leaks")
    assert shown_digest(path) == digest(json.loads(json.dumps(found, indent=8)))
    found["by_kind"]["white"]["LeakWatch, every 20 steps"]["false_alarms"] = 0.5
    assert shown_digest(path) != digest(found)


def test_every_picture_of_the_page_is_drawn_here() -> None:
    shown = set(re.findall(r"images/([\w-]+\.png)", PAGE.read_text(encoding="utf-8")))
    assert shown == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_no_bar_has_a_logarithmic_axis(name: str) -> None:
    result, figure = PICTURES[name]
    for axes in figure(read(result)).axes:
        if any(isinstance(one, BarContainer) for one in axes.containers):
            assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")


MET = {"yes", "no", "not measured"}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_goals_of_a_section_are_met_or_not(section: str) -> None:
    prose = "\n".join(line for line in section.splitlines() if not line.startswith("|"))
    if re.search(r"\bgoals?\b", prose, re.IGNORECASE):
        assert GOALS in section
    for rows in section.split(GOALS)[1:]:
        of_goals = rows.partition("\n\n")[0].strip().splitlines()[1:]
        assert of_goals
        assert {row.split(" | ")[-1].removesuffix(" |") for row in of_goals} <= MET


@pytest.mark.parametrize("saved", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_goals_of_a_saved_result_are_on_the_page(saved: Path) -> None:
    of_result = [section for section in SECTIONS if f"`benchmarks/{saved.stem}.py`, 20" in section]
    if of_result and any("goal" in key for key in json.loads(saved.read_text())):
        assert any(GOALS in section for section in of_result)


def test_scripts_of_the_page_exist(root: Path) -> None:
    scripts = re.findall(r"^`([\w/]+\.py)`, 20", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(scripts) > 25
    assert [script for script in scripts if not (root / script).is_file()] == []


def test_numbers_are_listed_once() -> None:
    assert [listed(numbers) for numbers in ([2, 1, 2], [3, 1, 2], [4])] == ["1 and 2", "1, 2 and 3", "4"]
