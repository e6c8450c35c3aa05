"""Golden texts: compared, rewritten, and held to the tests that there are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.golden_text import normalized, read_sections

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parent
TEXTS = TESTS / "golden" / "text"
HOOKS = "from tests.golden_text import *\nfrom tests.golden_text import golden\n"
GOLDEN = "tests/golden/text/test_a.txt"


class Project:
    """A checkout with one test file."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.golden = pytester.path / GOLDEN
        (pytester.path / "tests").mkdir()
        (pytester.path / "pytest.ini").write_text("[pytest]\n")
        (pytester.path / "tests" / "conftest.py").write_text(HOOKS)

    def run(self, body: str, *options: str) -> pytest.RunResult:
        header = "import pytest\nfrom experiment_utils.errors import Problem, UserError\n"
        (self.pytester.path / "tests" / "test_a.py").write_text(header + body)
        return self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *(options or ("tests",)))


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)


TWO = "def test_a(golden): golden.text('first')\ndef test_b(golden): golden.text('second')\n"
UPDATE = ("--update-golden", "tests")


def test_update_writes_sections_that_then_hold(project: Project) -> None:
    project.run(TWO, *UPDATE).assert_outcomes(passed=2)
    assert project.golden.read_text() == "## test_a\nfirst\n\n## test_b\nsecond\n"
    project.run(TWO).assert_outcomes(passed=2)


def test_difference_fails_with_the_diff_and_the_command(project: Project) -> None:
    project.run(TWO, *UPDATE)
    result = project.run(TWO.replace("second", "other"))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*## test_b", "-second", "+other", "*pytest --update-golden tests/test_a.py"]
    )


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (("tests",), "## test_a\nfirst\n"),
        (("tests", "-k", "test_a"), "## test_a\nfirst\n"),
        (("tests/test_a.py::test_a",), "## test_a\nfirst\n\n## test_b\nsecond\n"),
    ],
    ids=["whole", "deselected", "by_name"],
)
def test_sections_of_removed_tests_go_when_the_file_is_collected_whole(
    project: Project, options: tuple[str, ...], kept: str
) -> None:
    project.run(TWO, *UPDATE)
    only_a = TWO.splitlines()[0]
    failures = 0 if "second" in kept else 1
    project.run(only_a, *options).assert_outcomes(errors=failures, passed=1 - failures)
    project.run(only_a, "--update-golden", *options)
    assert project.golden.read_text() == kept


@pytest.mark.parametrize("before", ["@pytest.mark.skip\n", "@pytest.mark.xfail\n"])
def test_sections_of_tests_that_do_not_pass_stay(project: Project, before: str) -> None:
    project.run(TWO, *UPDATE)
    skipped = TWO.replace(
        "def test_b(golden): golden.text('second')", f"{before}def test_b(golden): assert False"
    )
    project.run(skipped, *UPDATE)
    assert set(read_sections(project.golden)) == {"test_a", "test_b"}


def test_section_that_its_test_does_not_use_fails_and_goes(project: Project) -> None:
    named = "def test_a(golden):\n    golden.text('x')\n    golden.text('y', 'more')\n"
    project.run(named, *UPDATE)
    assert set(read_sections(project.golden)) == {"test_a", "test_a / more"}
    fewer = named.replace("    golden.text('y', 'more')\n", "")
    project.run(fewer).assert_outcomes(passed=1, errors=1)
    project.run(fewer, *UPDATE)
    assert set(read_sections(project.golden)) == {"test_a"}


def test_each_worker_writes_the_files_of_its_tests(project: Project) -> None:
    pytest.importorskip("xdist")
    other = project.pytester.path / "tests" / "test_c.py"
    other.write_text(TWO)
    for _ in range(2):
        result = project.run(TWO, *UPDATE, "-n", "2", "--dist", "loadfile")
        result.assert_outcomes(passed=4)
    assert (
        len(read_sections(project.golden)) == len(read_sections(project.golden.with_name("test_c.txt"))) == 2
    )
    project.run(
        "def test_a(golden): golden.text('first')", "tests", "-n", "2", "--dist", "loadfile"
    ).assert_outcomes(passed=2, errors=1)


def test_parameters_and_repeated_texts_have_sections_of_their_own(project: Project) -> None:
    body = (
        "@pytest.mark.parametrize('a', ['one', 'two'])\n"
        "def test_a(a, golden):\n    for text in (a, 'x', 'x', a): golden.text(text)\n"
    )
    project.run(body, *UPDATE).assert_outcomes(passed=2)
    assert read_sections(project.golden) == {
        "test_a[one]": "one", "test_a[one] / 2": "x", "test_a[two]": "two", "test_a[two] / 2": "x",
    }  # fmt: skip
    project.run(body).assert_outcomes(passed=2)


REFUSED = "def test_a(golden):\n    with golden.refused({codes}) as error: {body}\n"


@pytest.mark.parametrize(
    ("codes", "body", "passes"),
    [
        ("'a'", "raise UserError('text', code='a')", True),
        ("'a', 'b'", "raise UserError(Problem('x', 'no', 'b'), Problem('y', 'no', 'a'))", True),
        ("'a'", "raise UserError(Problem('x', 'no', 'b'), Problem('y', 'no', 'a'))", False),
        ("'a', 'b'", "raise UserError('text', code='a')", False),
        ("'a'", "raise UserError('text')", False),
        ("'a'", "raise ValueError('text')", False),
        ("'a'", "pass", False),
    ],
)
def test_refused_takes_the_codes_of_all_problems(
    project: Project, codes: str, body: str, passes: bool
) -> None:
    result = project.run(REFUSED.format(codes=codes, body=body), *UPDATE)
    result.assert_outcomes(passed=passes, failed=not passes)
    assert read_sections(project.golden).keys() == (
        {f"test_a / {codes.replace(chr(39), '')}"} if passes else set()
    )


def test_text_is_as_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, root = tmp_path.parent, TESTS.parent
    monkeypatch.setenv("HOME", "/home/me")
    text = f"{tmp_path}/a.txt {base}/shared {sys.executable} x.py {root}/conf /home/me/runs /home/men "
    text += f"{os.getpid()} 1 B  \n"
    assert normalized(text, root, base, numbers=True, pids=[os.getpid()]) == (
        "TMP/a.txt TMP/shared python x.py REPO/conf HOME/runs /home/men PID 1 B"
    )
    assert normalized("a    1,024.5 kB\nb 7 s", root, base, numbers=False) == "a  N kB\nb N"


def test_each_section_has_a_test() -> None:
    """Also of files whose last test with a golden text went, so that no test run looks at them."""
    wrong = []
    for file in TEXTS.rglob("*.txt"):
        test_file = (TESTS / file.relative_to(TEXTS)).with_suffix(".py")
        text = test_file.read_text() if test_file.exists() else ""
        for header in read_sections(file):
            name = header.split("[")[0].split(" / ")[0].split("::")[-1]
            if f"def {name}(" not in text:
                wrong.append(f"{file.relative_to(TESTS)}: {header}")
    assert wrong == []
