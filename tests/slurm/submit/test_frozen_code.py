"""The copy of the code that an earlier submission ran with."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from conf import Config
from conf.composing.check import to_config, to_plain, to_yaml
from experiment_utils.errors import UserError
from slurm.launch.code_snapshot import take
from slurm.records.submissions import SLURM, Submission
from slurm.submit.frozen_code import copy_of, keep_known_keys, moved_on
from training.attempt.run_files import read_config


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a file that decides numbers and one that does not."""
    root = tmp_path / "code"
    (root / "docs").mkdir(parents=True)
    (root / "core.py").write_text("one = 1\n")
    (root / "docs" / "page.md").write_text("words\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        identity = ["-c", "user.name=x", "-c", "user.email=x@y"]
        subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True)
    return root


def of_copy(path: Path, study: Path) -> Submission:
    return Submission("x", study, SLURM, 0.0, "me", "n1", str(study), "", [], snapshot=str(path))


def edited(root: Path) -> Path:
    """The same checkout at another path: the version of a path is read once a process."""
    return Path(shutil.copytree(root, root.with_name(f"{root.name}2")))


@pytest.mark.parametrize(
    ("edit", "changes", "others"),
    [
        (lambda root: None, (), 0),
        (lambda root: (root / "core.py").write_text("# a comment\none = 1\n"), (), 0),
        (lambda root: (root / "core.py").write_text("one = 2\ntwo = 2\n"), ("core.py (+2 -1)",), 0),
        (lambda root: (root / "docs" / "page.md").write_text("other\n"), (), 1),
        (lambda root: (root / "docs" / "page.md").unlink(), (), 1),
    ],
)
def test_the_checkout_has_moved_on_by_what_differs(
    checkout: Path, tmp_path: Path, edit: Callable[[Path], None], changes: tuple[str, ...], others: int
) -> None:
    run = tmp_path / "runs" / "s" / "run"
    run.mkdir(parents=True)
    copy = take(tmp_path / "runs", root=checkout).path
    now = edited(checkout)
    edit(now)
    found = moved_on(copy, run, now)
    assert (found.changes, found.others, bool(found)) == (changes, others, bool(changes or others))


def test_a_copy_that_is_not_whole_is_refused(checkout: Path, tmp_path: Path) -> None:
    copy = take(tmp_path / "runs", root=checkout).path
    assert copy_of(of_copy(copy, tmp_path)) == copy
    (copy / "docs" / "page.md").unlink()
    for remove in (lambda: None, lambda: shutil.rmtree(copy)):
        remove()
        with pytest.raises(UserError) as error:
            copy_of(of_copy(copy, tmp_path))
        assert error.value.codes == ["copy-not-whole"]


def test_a_config_has_no_keys_that_the_copy_does_not_know(tmp_path: Path) -> None:
    config = dataclasses.replace(Config(), slurm=dataclasses.replace(Config().slurm, mem=1 << 30))
    before = to_plain(config)
    del before["notify"], before["slurm"]["pack"], before["slurm"]["mem"]
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    keep_known_keys(tmp_path, before)
    kept = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert "notify" not in kept
    assert "pack" not in kept["slurm"]
    assert kept["slurm"]["mem"] == 1 << 30, "other than its default: it was asked for"
    assert to_config(read_config(tmp_path)) == config
