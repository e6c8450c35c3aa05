"""Texts that tests pin: tests/golden/text/<path of the test file>.txt, one section for each text of a test.

`pytest --update-golden` rewrites the sections of the tests that run; review the difference as text.
"""

from __future__ import annotations

import difflib
import itertools
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

UPDATE = "--update-golden"
TEXTS = "tests/golden/text"
# A header is `## test_name[param]`, then ` / name` where the test has several texts.
_HEADER = re.compile(r"^## (?=[Tt]est)(.*)$\n?", re.MULTILINE)
_FILES = pytest.StashKey["GoldenFiles"]()
_PASSED = pytest.StashKey[bool]()


def read_sections(file: Path) -> dict[str, str]:
    """Texts by header of a golden file; empty if it does not exist."""
    parts = _HEADER.split(file.read_text(encoding="utf-8")) if file.exists() else []
    return {header: text.strip("\n") for header, text in zip(parts[1::2], parts[2::2], strict=True)}


def write_sections(file: Path, sections: dict[str, str]) -> None:
    """Write a golden file, sections sorted by header. Without sections the file is removed."""
    text = "\n\n".join(f"## {header}\n{sections[header]}" for header in sorted(sections))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    if not sections:
        file.unlink()


def belongs_to(header: str, test: str) -> bool:
    """Whether the section is one of this test (name with its parameters)."""
    return header == test or header.startswith(f"{test} / ")


def normalized(text: str, root: Path, temporary: Path, *, numbers: bool, pids: Iterable[int] = ()) -> str:
    """Text without what differs by machine: root is the checkout, temporary holds every tmp_path."""
    text = re.sub(re.escape(str(temporary)) + r"(/[\w.-]*\d(?![\w-]))?", "TMP", text)
    text = text.replace(sys.executable, "python").replace(str(root), "REPO")
    for found, name in ((str(Path.home()), "HOME"), (socket.gethostname(), "HOST")):
        if len(found) > 1:
            text = re.sub(rf"(?<![\w.-]){re.escape(found)}(?![\w-])", name, text)
    for pid in pids:
        text = re.sub(rf"\b{pid}\b", "PID", text)
    if not numbers:  # with a unit of time or size; hashes too; columns are as wide as their numbers
        text = re.sub(r"\b[0-9a-f]{12,}\b|\d+(?:[.,]\d+)*(?: (?:ms|s|min|h|[KMGT]?B)\b)?", "N", text)
        text = re.sub(r" {2,}", "  ", text)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


@contextmanager
def refused(*codes: str) -> Iterator[pytest.ExceptionInfo]:
    """The block raises UserError with problems of these codes and of no others."""
    from experiment_utils.errors import UserError

    __tracebackhide__ = True
    with pytest.raises(UserError) as error:
        yield error
    found = sorted({problem.code for problem in error.value.problems})
    assert found == sorted(set(codes)), f"codes {found} of: {error.value}"


class GoldenFiles:
    """What this session knows of the golden files: tests that were collected, texts that are new."""

    def __init__(self, root: Path, update: bool) -> None:
        self.root, self.update = root, update
        self.tests: dict[Path, list[str]] = {}  # that take golden, of files that were collected whole
        self.new: dict[Path, dict[str, str]] = {}
        self.unused: dict[Path, set[str]] = {}

    def file_of(self, test_file: Path) -> Path:
        """Golden file of a test file."""
        return (self.root / TEXTS / test_file.relative_to(self.root / "tests")).with_suffix(".txt")

    def without_test(self, test_file: Path) -> set[str]:
        """Headers of sections whose test does not exist or take golden; empty if the file is not whole."""
        known = self.tests.get(test_file, [])
        headers = read_sections(self.file_of(test_file)) if test_file in self.tests else {}
        return {header for header in headers if not any(belongs_to(header, test) for test in known)}

    def save(self) -> None:
        """Write the new texts; remove those that no test uses."""
        for test_file in self.tests:
            if gone := self.without_test(test_file):
                self.unused.setdefault(self.file_of(test_file), set()).update(gone)
        for file in {*self.new, *self.unused}:
            before, gone = read_sections(file), self.unused.get(file, set())
            kept = {header: text for header, text in before.items() if header not in gone}
            if kept | self.new.get(file, {}) != before:
                write_sections(file, kept | self.new.get(file, {}))


class Golden:
    """Golden texts of one test."""

    def __init__(self, files: GoldenFiles, temporary: Path, test_file: Path, test: str) -> None:
        self.files, self.temporary, self.test = files, temporary, test
        self.file = files.file_of(test_file)
        self.sections = read_sections(self.file)
        self.used: dict[str, str] = {}
        self.command = f"To accept: pytest {UPDATE} {test_file.relative_to(files.root)}"

    def text(self, text: str, name: str = "", *, numbers: bool = True, pids: Iterable[int] = ()) -> None:
        """Compare the text with the section of this test and name; a second text of a name is numbered.

        numbers=False masks every number and hash as N, for times and sizes that differ; `pids` become PID.
        """
        __tracebackhide__ = True
        text = normalized(text, self.files.root, self.temporary, numbers=numbers, pids=pids)
        for number in itertools.count(1):
            label = name if number == 1 else f"{name} {number}".lstrip()
            header = f"{self.test} / {label}" if label else self.test
            if self.used.setdefault(header, text) == text:
                break
        if self.files.update:
            self.files.new.setdefault(self.file, {})[header] = text
        elif self.sections.get(header) != text:
            before = self.sections.get(header, "(no such section)").splitlines()
            lines = difflib.unified_diff(before, text.splitlines(), "golden", "now", lineterm="")
            pytest.fail("\n".join([f"{self.file}: ## {header}", *lines, self.command]), pytrace=False)

    def lines(self, text: str, *marks: str, **options: object) -> None:
        """The lines of a text that have every mark (a key, name or number), at least one, are golden."""
        __tracebackhide__ = True
        found = [line for line in text.splitlines() if all(mark in line for mark in marks)]
        assert found, f"no line with {marks} in:\n{text}"
        self.text("\n".join(found), **options)

    @contextmanager
    def refused(self, *codes: str, name: str = "", **options: object) -> Iterator[pytest.ExceptionInfo]:
        """As the function `refused`, and the text of the error is golden."""
        __tracebackhide__ = True
        with refused(*codes) as error:
            yield error
        self.text(str(error.value), name or ", ".join(codes), **options)


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    """Texts that this test pins."""
    files, test = request.config.stash[_FILES], request.node.nodeid.split("::", 1)[1]
    found = Golden(files, tmp_path_factory.getbasetemp(), request.path, test)
    if not files.update and (gone := files.without_test(request.path)):
        pytest.fail(f"{found.file}: sections without a test: {gone}\n{found.command}", pytrace=False)
    yield found
    unused = {header for header in found.sections if belongs_to(header, test)} - found.used.keys()
    if unused and request.node.stash.get(_PASSED, False):
        files.unused.setdefault(found.file, set()).update(unused)
        if not files.update:
            pytest.fail(f"{found.file}: sections not used: {unused}\n{found.command}", pytrace=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(UPDATE, action="store_true", help="rewrite tests/golden/text for the tests that run")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FILES] = GoldenFiles(config.rootpath, config.getoption(UPDATE))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the tests with golden texts of each file that is collected whole, before any is deselected."""
    named = {Path(str(given).split("::")[0]).resolve() for given in config.args if "::" in str(given)}
    for item in items:
        if item.path not in named and not config.getoption("lf", False):
            tests = config.stash[_FILES].tests.setdefault(item.path, [])
            if "golden" in getattr(item, "fixturenames", ()):
                tests.append(item.nodeid.split("::", 1)[1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    report = yield
    item.stash[_PASSED] = report.when == "call" and report.passed
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With pytest-xdist each worker writes the texts of its tests."""
    if session.config.getoption(UPDATE):
        session.config.stash[_FILES].save()
