"""The code that an attempt computed with, as its run folder keeps it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm.launch.code_snapshot import take
from training.attempt.code_record import changes_since, code_of_attempt, record_code
from training.attempt.code_version import code_version

FILES = {"core.py": "x = 1\n", "models/block.py": "a = 1\nb = 2\nc = 3\n", "conf/other.py": "y = 1\n"}


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "a")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@b.c")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")  # what a user may have configured
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "diff.noprefix")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "study" / "run").mkdir(parents=True)
    return tmp_path / "runs" / "study" / "run"


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def record(run: Path, root: Path) -> dict[str, Any]:
    code_version.cache_clear()
    return {"code": record_code(run, root)}


def edit(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text(text)
    code_version.cache_clear()


def told(run: Path, attempt: dict[str, Any], root: Path) -> list[tuple[str, str, int | None, int | None]]:
    before = code_of_attempt(run, attempt)
    assert before is not None
    return [(one.path, one.status, one.added, one.removed) for one in changes_since(run, before, root)]


def test_attempt_names_hash_and_commit_and_the_folder_has_the_files(checkout: Path, run: Path) -> None:
    attempt = record(run, checkout)
    version = code_version(checkout)
    assert attempt["code"] == {
        "commit": git(checkout, "rev-parse", "HEAD"),
        "dirty": False,
        "hash": version.hash,
    }
    found = code_of_attempt(run, attempt)
    assert found is not None
    assert found.version == version
    assert found.diff is None
    assert set(version.files) == {"core.py", "models/block.py"}
    assert told(run, attempt, checkout) == []


def test_difference_to_the_commit_is_kept_once_and_can_be_applied(checkout: Path, run: Path) -> None:
    edit(checkout, "models/block.py", "a = 1\nb = 3\nc = 3\n")
    edit(checkout, "models/new.py", "z = 1\n")
    edit(checkout, "conf/other.py", "y = 2\n")
    attempt = record(run, checkout)
    (diff,) = (run / "code").glob("*.diff")
    before = diff.stat().st_mtime_ns
    record(run, checkout)
    assert diff.stat().st_mtime_ns == before
    assert attempt["code"]["dirty"] is True
    git(checkout, "stash", "-qu")
    git(checkout, "apply", "-p1", str(diff))
    code_version.cache_clear()
    assert code_version(checkout).hash == attempt["code"]["hash"]
    assert (checkout / "conf/other.py").read_text() == "y = 2\n"


def test_changes_count_lines_since_a_commit(checkout: Path, run: Path) -> None:
    attempt = record(run, checkout)
    edit(checkout, "models/block.py", "a = 1\nb = 3\nc = 3\nd = 4\n")
    edit(checkout, "models/new.py", "z = 1\n")
    (checkout / "core.py").unlink()
    assert told(run, attempt, checkout) == [
        ("core.py", "removed", 0, 1),
        ("models/block.py", "changed", 2, 1),
        ("models/new.py", "added", 1, 0),
    ]


def test_changes_count_lines_since_a_difference(
    checkout: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(checkout, "models/block.py", "a = 1\nb = 3\nc = 3\n")
    edit(checkout, "models/new.py", "z = 1\n")
    attempt = record(run, checkout)
    edit(checkout, "models/block.py", "a = 1\nb = 3\nc = 4\n")
    edit(checkout, "models/new.py", "z = 1\nz = 2\n")
    (checkout / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(checkout / "tmp"))  # inside a repository
    assert told(run, attempt, checkout) == [
        ("models/block.py", "changed", 1, 1),
        ("models/new.py", "changed", 1, 0),
    ]


def test_changes_count_lines_since_a_copy_of_the_code(checkout: Path, run: Path) -> None:
    copy = take(run.parent.parent, root=checkout)
    attempt = record(run, copy.path)
    assert attempt["code"] == {
        "commit": copy.commit, "dirty": False, "snapshot": copy.hash, "hash": code_version(copy.path).hash,
    }  # fmt: skip
    edit(checkout, "core.py", "x = 2\n")
    assert told(run, attempt, checkout) == [("core.py", "changed", 1, 1)]
    for path in sorted(copy.path.rglob("*"), reverse=True):
        path.parent.chmod(0o755)
        path.unlink() if path.is_file() else path.rmdir()
    copy.path.rmdir()
    assert told(run, attempt, checkout) == [("core.py", "changed", 1, 1)]  # of its commit


def test_changes_without_git_have_no_lines(checkout: Path, run: Path) -> None:
    attempt = record(run, checkout)
    edit(checkout, "core.py", "x = 2\n")
    (checkout / ".git").rename(checkout / "gone")
    assert told(run, attempt, checkout) == [("core.py", "changed", None, None)]


def test_attempts_before_code_was_recorded_have_none(run: Path) -> None:
    for attempt in ({}, {"code": None}, {"code": {"commit": "abc", "dirty": True}}):
        assert code_of_attempt(run, attempt) is None


def test_damaged_record_still_has_its_hash(checkout: Path, run: Path) -> None:
    attempt = record(run, checkout)
    (path,) = (run / "code").glob("*.json")
    for content in ("{", "[]", json.dumps({"files": 3})):
        path.write_text(content)
        found = code_of_attempt(run, attempt)
        assert found is not None
        assert (found.version.hash, found.version.files) == (attempt["code"]["hash"], {})


def test_a_repository_around_code_that_it_does_not_have_is_not_named(tmp_path: Path, run: Path) -> None:
    project = tmp_path / "project"
    installed = project / ".venv" / "site-packages"
    for path, text in FILES.items():
        (installed / path).parent.mkdir(parents=True, exist_ok=True)
        (installed / path).write_text(text)
    git(project, "init", "-q")
    (project / "own.py").write_text("z = 1\n")
    git(project, "add", "own.py")
    git(project, "commit", "-qm", "first")
    code = record(run, installed)["code"]
    assert (code["commit"], code["dirty"]) == (None, None)
