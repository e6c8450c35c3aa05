"""Which edits change the hash of the code."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from training.attempt import code_version as module
from training.attempt.code_version import (
    COUNTED,
    NOT_COUNTED,
    changed,
    code_version,
    counted_files,
    normalized,
)

SOURCE = '''"""Docstring."""
from torch import nn


class Block(nn.Module):
    """Docstring."""

    SCALE = 0.5
    """Meaning of SCALE."""

    def forward(self, x, *, width: int = 3):
        # a comment
        words = f"{x:>{width}}" "é" f"{x!r}"
        return [x * self.SCALE, words]
'''


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path in ("core.py", "models/block.py", "training/commands/eval.py", "data_loading/dataset/orders.py"):
        (tmp_path / "code" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / path).write_text(SOURCE)
    return tmp_path / "code"


def version_of(root: Path) -> module.CodeVersion:
    return code_version.__wrapped__(root)  # not that of the last look


def test_named_files_exist(root: Path) -> None:
    assert [path for path in (*COUNTED, *NOT_COUNTED) if not (root / path).exists()] == []


def test_what_trains_is_counted_and_commands_are_not(root: Path) -> None:
    found = set(counted_files(root))
    for path in ("core.py", "models/layers/attention.py", "training/step/train_step.py", "conf/sizes.py",
                 "training/optimizers/lion.py", "training/step/schedules.py", "training/ensemble/step.py",
                 "data_loading/dataset/orders.py", "conf/proportions.py"):  # fmt: skip
        assert path in found
    for path in ("training/commands/eval.py", "data_loading/pretokenizer/pool.py", "training/report/log.py",
                 "data_loading/readers/mapped.py", "training/report/metrics.py",
                 "slurm/launch/work_through.py"):  # fmt: skip
        assert path not in found


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("Docstring.", "Another."),
        lambda text: text.replace("# a comment", "# another"),
        lambda text: text.replace("Meaning", "The meaning"),
        lambda text: text.replace("[x * self.SCALE, words]", "[\n  x*self.SCALE,\n  words,\n  ]"),
        lambda text: text.replace("    ", "  "),
    ],
)  # fmt: skip
def test_comments_docstrings_and_layout_do_not_count(edit, checkout: Path) -> None:
    before = version_of(checkout)
    (checkout / "models/block.py").write_text(edit(SOURCE))
    assert edit(SOURCE) != SOURCE
    assert version_of(checkout) == before


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("0.5", "0.25"),
        lambda text: text.replace("x * self", "x + self"),
        lambda text: text.replace("{x!r}", "{x!s}"),
        lambda text: text.replace("width: int = 3", "width: int = 4"),
        lambda text: text.replace("é", "è"),
        lambda text: text + "def\n",  # it cannot be parsed
    ],
)
def test_edited_code_counts(edit, checkout: Path) -> None:
    before = version_of(checkout)
    (checkout / "models/block.py").write_text(edit(SOURCE))
    now = version_of(checkout)
    assert now.hash != before.hash
    assert [(one.path, one.status) for one in changed(before.files, now.files)] == [
        ("models/block.py", "changed")
    ]


def test_added_and_removed_files_count_and_commands_do_not(checkout: Path) -> None:
    before = version_of(checkout)
    (checkout / "training/commands/eval.py").write_text("x = 1\n")
    assert version_of(checkout) == before
    (checkout / "models/block.py").rename(checkout / "models/other.py")
    found = changed(before.files, version_of(checkout).files)
    assert [(one.path, one.status) for one in found] == [
        ("models/block.py", "removed"),
        ("models/other.py", "added"),
    ]


def test_hash_does_not_depend_on_the_version_of_python() -> None:
    """The digest was computed by 3.10, 3.11, 3.12 and 3.13."""
    assert module.digest(normalized(SOURCE.encode())) == "df777120403bc957"


def test_second_look_parses_nothing(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = version_of(checkout)
    monkeypatch.setattr(module, "normalized", lambda content: pytest.fail("parsed again"))
    assert version_of(checkout) == before


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", None])
def test_damaged_or_missing_cache_costs_nothing(
    content: bytes | None, checkout: Path, own_cache: Path, tmp_path: Path
) -> None:
    before = version_of(checkout)
    (path,) = own_cache.rglob("*.json")
    if content is None:
        path.unlink()
        path.parent.rmdir()
        path.parent.write_text("a file where the folder was")
    else:
        path.write_bytes(content)
    assert version_of(checkout) == before


def test_change_is_shown_with_its_lines() -> None:
    found = module.Change("core.py", "changed", 3, 1)
    assert str(found) == "core.py (+3 -1)"
    assert str(dataclasses.replace(found, added=None)) == "core.py"
