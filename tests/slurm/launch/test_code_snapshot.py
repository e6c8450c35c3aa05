"""The code that a job runs: what was there when it was submitted, whole, once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from experiment_utils.errors import UserError
from slurm.launch import code_snapshot as snapshot
from slurm.launch.code_snapshot import DIFF, MANIFEST, PACKAGE, SNAPSHOTS, take, while_submitting
from tests.golden_text import Golden
from training.attempt.code_record import commit_of, read_manifest


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@y", *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a module, a tool, a link, an ignored folder and runs inside it."""
    root = tmp_path / "code"
    (root / "room").mkdir(parents=True)
    (root / "core.py").write_text("one = 1\n")
    (root / "room" / "tool.sh").write_text("#!/bin/sh\n")
    (root / "room" / "tool.sh").chmod(0o755)
    (root / "room" / "link").symlink_to("tool.sh")
    (root / ".gitignore").write_text("/Datasets/\n*.tmp\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x")
    (root / "Datasets").mkdir()
    (root / "Datasets" / "huge.npy").write_text("x" * 10_000)
    return root


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_what_is_copied(checkout: Path, tmp_path: Path) -> None:
    (checkout / "new.py").write_text("two = 2\n")
    (checkout / "left.tmp").write_text("")
    found = take(tmp_path / "runs", root=checkout)
    assert found.path == tmp_path / "runs" / SNAPSHOTS / found.hash
    code = {".gitignore", "core.py", "new.py", "room/tool.sh", "room/link"}
    assert names(found.path) == {*code, MANIFEST, DIFF}
    assert (found.path / "room" / "link").is_symlink()
    for name in code - {"room/link"}:
        mode = stat.S_IMODE((found.path / name).stat().st_mode)
        assert mode == (0o555 if name == "room/tool.sh" else 0o444), name
    assert (found.commit, found.dirty) == (git(checkout, "rev-parse", "HEAD"), True), (
        "the commit does not have new.py"
    )


def test_a_folder_in_which_nothing_can_be_written_is_a_mistake_of_who_names_it(golden: Golden) -> None:
    """Of a read-only file system, or one that has no such folder: /proc, also for root."""
    for given in ("/proc/x", "/proc"):
        with golden.refused("runs-dir-not-writable"), while_submitting(given):
            raise AssertionError("submits")


def test_later_edits_change_nothing(checkout: Path, tmp_path: Path) -> None:
    found = take(tmp_path / "runs", root=checkout)
    (checkout / "core.py").write_text("one = 2\n")
    assert (found.path / "core.py").read_text() == "one = 1\n"
    edited = take(tmp_path / "runs", root=checkout)
    assert edited.path != found.path
    assert edited.dirty
    assert b"+one = 2" in (edited.path / DIFF).read_bytes()
    (checkout / "core.py").write_text("one = 1\n")
    assert take(tmp_path / "runs", root=checkout) == found


def test_another_commit_of_the_same_files_is_another_copy(checkout: Path, tmp_path: Path) -> None:
    (checkout / "core.py").write_text("one = 2\n")
    dirty = take(tmp_path / "runs", root=checkout)
    git(checkout, "commit", "-qam", "y")
    clean = take(tmp_path / "runs", root=checkout)
    assert clean.path != dirty.path
    assert (clean.dirty, dirty.dirty) == (False, True)


def test_the_attempt_tells_the_commit_of_the_copy(checkout: Path) -> None:
    found = take(checkout / "results", root=checkout)  # below a checkout, whose commit is another matter
    git(checkout, "commit", "-q", "--allow-empty", "-m", "later")
    told = commit_of(found.path)
    assert told == {"commit": found.commit, "dirty": False, "snapshot": found.hash}
    assert told["commit"] != git(checkout, "rev-parse", "HEAD")


def test_runs_inside_the_checkout_are_not_copied(checkout: Path) -> None:
    (checkout / "results" / "study").mkdir(parents=True)
    (checkout / "results" / "study" / "weights").write_text("x")
    first = take(checkout / "results", root=checkout)
    (checkout / "results" / "study" / "weights").write_text("y")
    assert take(checkout / "results", root=checkout) == first
    assert not (first.path / "results").exists()
    assert ".snapshots" not in str(names(take(checkout / "elsewhere", root=checkout).path))


def test_runs_around_the_checkout(checkout: Path) -> None:
    """runs_dir=.. holds the code too, which is to be copied all the same."""
    found = take(checkout.parent, root=checkout)
    assert names(found.path) == {".gitignore", "core.py", "room/tool.sh", "room/link", MANIFEST, DIFF}
    assert take(checkout.parent, root=checkout).path == found.path


def test_runs_among_the_code_are_refused(checkout: Path, golden: Golden) -> None:
    with golden.refused("runs-dir-is-code"):
        take(checkout, root=checkout)
    assert not (checkout / SNAPSHOTS).exists()


def test_a_folder_that_pythonpath_cannot_name_is_refused(
    checkout: Path, tmp_path: Path, golden: Golden
) -> None:
    """A job would run what is installed, or nothing."""
    (tmp_path / "link").symlink_to(tmp_path / "a:b")
    for runs_dir in (tmp_path / "a:b", tmp_path / "link" / "runs"):
        with golden.refused("path-separator"):
            take(runs_dir, root=checkout)
    assert not (tmp_path / "a:b").exists()


def test_deleted_files_and_inner_repositories(checkout: Path, tmp_path: Path) -> None:
    (checkout / "room" / "tool.sh").unlink()
    inner = checkout / "inner"
    inner.mkdir()
    (inner / "core.py").write_text("")
    (inner / ".gitignore").write_text("secret\n")
    (inner / "secret").write_text("")
    git(inner, "init", "-q")
    found = names(take(tmp_path / "runs", root=checkout).path)
    assert "room/tool.sh" not in found
    assert {"inner/core.py", "inner/.gitignore"} <= found
    assert "inner/secret" not in found


def test_too_large(checkout: Path, tmp_path: Path, golden: Golden) -> None:
    (checkout / "big.bin").write_bytes(b"x" * 5000)
    with golden.refused("code-too-large"):
        take(tmp_path / "runs", root=checkout, limit_bytes=1 << 10)
    assert not (tmp_path / "runs").exists()


def test_without_git_the_package(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "slurm" / "__pycache__").mkdir(parents=True)
    (checkout / "slurm" / "a.py").write_text("")
    (checkout / "slurm" / "__pycache__" / "a.pyc").write_text("")
    (checkout / "notes.txt").write_text("")
    monkeypatch.setattr(snapshot, "_git", lambda *_: None)
    found = take(tmp_path / "runs", root=checkout)
    assert names(found.path) == {"core.py", "slurm/a.py", MANIFEST, DIFF}
    assert (found.commit, found.dirty) == (None, None)


def test_an_ignored_checkout_counts_as_none(checkout: Path, tmp_path: Path) -> None:
    """As of a package that is installed below some repository."""
    installed = checkout / "Datasets" / "site-packages"
    installed.mkdir()
    (installed / "core.py").write_text("")
    assert names(take(tmp_path / "runs", root=installed).path) == {"core.py", MANIFEST, DIFF}


def test_package_is_that_of_the_project(root: Path) -> None:
    setup = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    tops = {name.partition(".")[0] for name in setup["packages"]}
    assert {*PACKAGE} == {*tops, *(f"{name}.py" for name in setup["py-modules"]), "pyproject.toml"}


def test_many_shells_at_once(checkout: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from slurm.launch.code_snapshot import take; "
        "print(take(sys.argv[1], root=Path(sys.argv[2])).path)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "runs"), str(checkout)]
    around = {**os.environ, "PYTHONPATH": str(Path(snapshot.__file__).parent.parent)}
    with ThreadPoolExecutor(3) as shells:
        told = set(shells.map(lambda _: subprocess.check_output(command, env=around, text=True), range(3)))
    (path,) = told
    assert [one.name for one in (tmp_path / "runs" / SNAPSHOTS).iterdir()] == [Path(path.strip()).name]


def test_a_copy_has_the_bytes_of_its_hash_though_a_file_is_edited_meanwhile(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = snapshot._write

    def edited(path: Path, file: snapshot._File) -> None:
        (checkout / "core.py").write_text("one = 3\n")
        write(path, file)

    monkeypatch.setattr(snapshot, "_write", edited)
    found = take(tmp_path / "runs", root=checkout)
    assert (found.path / "core.py").read_text() == "one = 1\n"
    assert not found.dirty
    assert take(tmp_path / "runs", root=checkout).path != found.path


def test_a_copy_that_is_not_whole_is_completed(checkout: Path, tmp_path: Path) -> None:
    """Its maker was killed, or files of it are gone or shorter."""
    found = take(tmp_path / "runs", root=checkout)
    whole = names(found.path)
    for name in (MANIFEST, DIFF, "room/link"):
        (found.path / name).unlink()
    (found.path / "core.py").chmod(0o644)
    (found.path / "core.py").write_text("")
    assert read_manifest(found.path) is None
    assert take(tmp_path / "runs", root=checkout) == found
    assert (found.path / "core.py").read_text() == "one = 1\n"
    assert names(found.path) == whole


@pytest.mark.parametrize("name", ["slurm-42.out", "room/slurm-42_7.out"])
def test_what_a_plain_job_writes_is_left_alone(checkout: Path, tmp_path: Path, name: str) -> None:
    before = take(tmp_path / "runs", root=checkout)
    (checkout / name).write_text("a line\n")
    assert take(tmp_path / "runs", root=checkout) == before
    assert not (before.path / name).exists()


def test_a_folder_that_cannot_be_written(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(UserError) as error:
        take(tmp_path / "runs", root=checkout)
    assert error.value.codes == ["snapshot-not-written"]
