"""Rules of docs/style.md that a machine can check, and what each room is still allowed to break."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.rules.__main__ import GOALS, ROOT
from tests.rules.allowed import LISTS, UPDATE, differences, findings_by_room, read_allowed, update
from tests.rules.sources import Finding, rooms

ROOMS = list(rooms(ROOT))


@cache
def findings_here() -> dict[str, list[Finding]]:
    return findings_by_room(ROOT)


@pytest.mark.parametrize("room", ROOMS)
def test_room_breaks_exactly_what_its_list_allows(room: str) -> None:
    found = list(differences(findings_here()[room], read_allowed(room)))
    if found:
        header = f"{room} is not as in tests/rules/allowed/{room}.txt (rules: docs/style.md):"
        pytest.fail("\n".join([header, *found]), pytrace=False)


def test_each_list_and_each_goal_belongs_to_a_room() -> None:
    assert {path.stem for path in LISTS.glob("*.txt")} <= set(ROOMS)
    assert {room for group in GOALS for room in group} == {*ROOMS, "tests", "benchmarks"} - {"docs"}


def found_in(checkout: Path, files: dict[str, str]) -> dict[tuple[str, str], int]:
    """Findings in a small checkout to which files are added, as (path, rule) -> count."""
    setuptools = '[tool.setuptools]\npackages = ["memory", "memory.leaks"]\npy-modules = []\n'
    for name, text in {"pyproject.toml": setuptools, **files}.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    found = [finding for findings in findings_by_room(checkout).values() for finding in findings]
    return {(finding.path, finding.rule): finding.count for finding in found}


A = "memory/a.py"
CLASSES = "class Shared: pass\nclass _Private: pass"
FOR_TYPE_CHECKERS = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from memory.a import x"
CASES = {
    "identifier": ({A: "is_told = 1"}, {(A, "told"): 1}),
    "class name": ({A: "class ToldTwice: pass"}, {(A, "told"): 1}),
    "constant": ({A: "TOLD = 1"}, {(A, "told"): 1}),
    "start of a name": ({A: "def tell_memory(): pass"}, {(A, "tell_"): 1}),
    "wrapped comment": ({A: "# it has gone\n    # on since"}, {(A, "gone-on"): 1}),
    "continued string": ({A: 'print("so "\n  "many")'}, {(A, "so-many"): 1}),
    "other words": ({A: "recommend = untold = tell = stand"}, {}),
    "docstring": ({A: 'def f():\n    """Of a run: its name."""'}, {(A, "docstring-of"): 1}),
    "attribute": ({A: 'class A:\n    b: int\n    """What b holds."""'}, {(A, "docstring-what"): 1}),
    "other docstring": ({A: '"""Offset of a run."""'}, {}),
    "page": ({"docs/a.md": "so many", "docs/style.md": "told"}, {("docs/a.md", "so-many"): 1}),
    "changes": (
        {"CHANGELOG.md": "## [Unreleased]\nnobody\n## 0.1.0\nanew\n"},
        {("CHANGELOG.md", "nobody"): 1},
    ),
    "16 modules": ({f"memory/m{number}.py": "" for number in range(16)} | {"memory/__init__.py": ""}, {}),
    "17 modules": ({f"memory/m{number}.py": "" for number in range(17)}, {("memory", "modules"): 17}),
    "module names": (
        {"memory/run.py": "", "memory/leaks/run.py": "", "memory/base.py": "", "memory/leaks/base.py": ""},
        {("memory:run", "same-module-name"): 2},
    ),
    "class names": ({A: CLASSES, "memory/b.py": CLASSES}, {("memory:Shared", "same-class-name"): 2}),
    "circle of files": (
        {A: "from memory.b import x", "memory/b.py": "def f():\n    from memory import a"},
        {(A, "circle-of-files"): 1, ("memory/b.py", "circle-of-files"): 1},
    ),
    "arrow into a circle": ({A: "import memory.b", "memory/b.py": "", "memory/c.py": "import memory.a"}, {}),
    "for type checkers": ({A: "from memory.b import x", "memory/b.py": FOR_TYPE_CHECKERS}, {}),
    "circle of packages": (
        {"memory/leaks/b.py": "import memory.a", A: "from memory.leaks import c", "memory/leaks/c.py": ""},
        {("memory/leaks", "circle-of-packages"): 1, (A, "circle-of-packages"): 1},
    ),
}


@pytest.mark.parametrize(("files", "expected"), CASES.values(), ids=CASES)
def test_each_rule_finds_its_breaches_and_nothing_else(
    tmp_path: Path, files: dict[str, str], expected: dict[tuple[str, str], int]
) -> None:
    assert found_in(tmp_path, files) == expected


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ({}, "2, allowed 0 (line 3, 9)"),
        ({("memory/a.py", "told"): 1}, "2, allowed 1 (line 3, 9)"),
        ({("memory/a.py", "told"): 3}, UPDATE),
        ({("memory/a.py", "told"): 2, ("memory/deleted.py", "told"): 1}, UPDATE),
    ],
)
def test_list_fails_when_there_is_more_or_less(allowed: dict[tuple[str, str], int], expected: str) -> None:
    findings = [Finding("memory/a.py", "told", 2, "line 3, 9")]
    assert list(differences(findings, {("memory/a.py", "told"): 2})) == []
    assert expected in next(differences(findings, allowed))


def test_update_shrinks_and_follows_moves_but_does_not_grow(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    found_in(tmp_path, {"memory/a.py": "told, told"})
    (line,) = update(tmp_path, lists)
    assert re.findall(r"\w+", line) == ["memory", "told", "2", "before", "0"]
    assert read_allowed("memory", lists) == {}
    update(tmp_path, lists, allow_more=True)
    (tmp_path / "memory/a.py").rename(tmp_path / "memory/b.py")
    assert update(tmp_path, lists) == []
    assert read_allowed("memory", lists) == {("memory/b.py", "told"): 2}
    (tmp_path / "memory/b.py").write_text("")
    update(tmp_path, lists)
    assert not list(lists.iterdir())
