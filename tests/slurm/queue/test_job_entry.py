"""The word of a job, and the check of the Python that it runs."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from slurm.queue import job_entry
from slurm.queue.job_entry import LEAST_PYTHON, OF_A_RUN, check_python, word_for, words_of

NAMES = {"yaml": "omegaconf"}
"""Modules that come with a package of another name."""


def test_a_word_is_read_as_it_was_written(tmp_path: Path) -> None:
    study = tmp_path / "a|b c"
    assert words_of(word_for(study, "20260101-1", 2, 17)) == (str(study), "20260101-1", 2, 17)


@pytest.mark.parametrize("word", ["", "a|b|0|0", "/a|0|0", "/a|b|x|0"])
def test_another_text_is_no_word(word: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        words_of(word)


def test_this_python_passes_and_one_without_a_package_gets_one_line(root: Path) -> None:
    check_python()
    bare = subprocess.run(  # -S: without site-packages
        [sys.executable, "-S", "-m", "slurm.in_job", "word"], cwd=root, capture_output=True, text=True
    )
    assert bare.returncode == 1
    (line,) = bare.stderr.splitlines()
    assert all(name in line for name in (*OF_A_RUN, sys.executable, "slurm.python", "slurm.setup"))


def test_a_python_that_is_too_old_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 6, 8))
    with pytest.raises(SystemExit) as ended:
        check_python()
    assert "3.6" in str(ended.value)
    assert "3.11" in str(ended.value)


@pytest.mark.parametrize("module", ["queue/job_entry.py", "in_job/__main__.py", "__init__.py"])
def test_what_runs_before_the_check_can_be_read_by_an_old_python(module: str) -> None:
    text = (Path(job_entry.__file__).parents[1] / module).read_text()
    tree = ast.parse(text, feature_version=(3, 7))
    sources = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "__future__" not in sources, "a syntax error for Python 3.6"


def test_the_check_asks_for_what_the_project_requires(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=" + ".".join(map(str, LEAST_PYTHON))
    required = " ".join(project["dependencies"])
    assert all(NAMES.get(name, name) in required for name in OF_A_RUN)
