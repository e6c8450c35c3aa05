"""pyproject.toml, the lock files and the product's messages name the same packages."""

from __future__ import annotations

import ast
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from conf.between_keys.logging_rules import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
OF_CUDA = ("nvidia-", "cuda-", "triton")
"""Packages that a CUDA build of torch requires, at versions that it names itself."""


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def declared_for_tests() -> list[str]:
    extras = project()["project"]["optional-dependencies"]
    groups = project()["dependency-groups"]
    return [
        *(line for extra, lines in extras.items() for line in lines),
        *(line for name, lines in groups.items() for line in lines if name != "docs"),
    ]


def pins(name: str) -> dict[str, Requirement]:
    """Requirements of a lock file, by canonical name; files that it includes left out."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if not line.startswith(("#", "-r "))]
    return {canonicalize_name(one.name): one for one in found}


def applies(requirement: Requirement, extras: Iterable[str] = ()) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras})


def required(lines: Iterable[str]) -> set[str]:
    """Names of all packages that these requirements install, from the metadata of what is installed."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [one for one in map(Requirement, lines) if applies(one)]
    while todo:
        one = todo.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        if key in seen:
            continue
        seen.add(key)
        requires = metadata.requires(one.name) or []
        todo += [other for other in map(Requirement, requires) if applies(other, one.extras)]
    return {name for name, _ in seen if not name.startswith(OF_CUDA) or name == "nvidia-ml-py"}


def installed_or_skip(lines: Iterable[str]) -> set[str]:
    try:
        return required(lines)
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"{error.name} is not installed: make install-test")


def applying(found: dict[str, Requirement]) -> set[str]:
    return {name for name, one in found.items() if applies(one)}


def test_run_lock_is_what_running_requires() -> None:
    needed = required(project()["project"]["dependencies"])
    locked = applying(pins("requirements.lock"))
    assert needed - locked == set()
    if sys.version_info[:2] == (3, 11):  # later ones need no backports
        assert locked - needed == set()


def test_test_lock_is_what_extras_and_groups_add() -> None:
    needed = installed_or_skip(declared_for_tests()) - set(pins("requirements.lock"))
    locked = applying(pins("requirements-test.lock"))
    assert needed - locked == set()
    if sys.version_info[:2] == (3, 11):
        assert locked - needed == set()


def test_locked_versions_are_in_the_declared_ranges() -> None:
    locked = {**pins("requirements-test.lock"), **pins("requirements.lock")}
    for line in [*project()["project"]["dependencies"], *declared_for_tests()]:
        declared = Requirement(line)
        (pin,) = locked[canonicalize_name(declared.name)].specifier
        assert pin.operator == "=="
        assert declared.specifier.contains(pin.version), line


def test_docs_lock_pins_the_docs_group() -> None:
    """`make docs` has an environment of its own, so its lock can pin what the other locks pin."""
    locked = pins("requirements-docs.lock")
    for line in project()["dependency-groups"]["docs"]:
        declared = Requirement(line)
        (pin,) = locked[canonicalize_name(declared.name)].specifier
        assert pin.operator == "=="
        assert declared.specifier.contains(pin.version), line


def test_no_package_is_in_both_locks() -> None:
    assert set(pins("requirements.lock")) & set(pins("requirements-test.lock")) == set()


def test_locks_name_no_index() -> None:
    for name in ("requirements.lock", "requirements-test.lock", "requirements-docs.lock"):
        assert "://" not in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.skipif("CI" not in os.environ, reason="a user's own environment may lack optional packages")
def test_ci_has_every_locked_package() -> None:
    """No test of CI is skipped because a package is missing."""
    wrong = []
    for name, pin in {**pins("requirements.lock"), **pins("requirements-test.lock")}.items():
        if not applies(pin):
            continue
        try:
            if not pin.specifier.contains(metadata.version(name)):
                wrong.append(f"{pin}: {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            wrong.append(f"{pin}: not installed")
    assert wrong == []


def named_extras() -> Iterator[str]:
    """Extras that calls of `install_command` and `check_installed` name in the product."""
    place = {"install_command": 0, "check_installed": 1}
    packages = project()["tool"]["setuptools"]["packages"]
    for folder in {package.split(".")[0] for package in packages}:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                at = place.get(node.func.id, len(node.args))
                if at < len(node.args) and isinstance(argument := node.args[at], ast.Constant):
                    yield argument.value


@pytest.mark.slow
def test_messages_name_every_extra_and_no_other() -> None:
    extras = project()["project"]["optional-dependencies"]
    assert {*named_extras(), *PACKAGES.values()} == set(extras)


def test_python_versions_are_declared() -> None:
    facts = project()["project"]
    minors = [line.rpartition("3.")[2] for line in facts["classifiers"] if " :: 3." in line]
    assert facts["requires-python"] == f">=3.{minors[0]}"
    assert minors == ["11", "12", "13", "14"]
