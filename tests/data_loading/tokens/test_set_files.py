"""Killed at any point, a set is the old one whole or the new one whole; the next process cleans up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.commit import finish_commit
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import open_token_set
from experiment_utils import atomic_files, lock_file
from tests.forked import killed_at
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = "the old text\n", "the new words\nof more\n"

NOT_YET = ("a.npy:appended", "a.npy:noted", "a.npy:before_commit")
POINTS = (
    *NOT_YET,
    "a.npy:after_commit",
    "a.npy:moved_tokenizer",
    "a.npy:moved_docs.npy",
    "a.npy:moved_tokens.npy",
    "a.npy:moved_manifest.json",
)

MADE = """
from pathlib import Path
from data_loading.pretokenizer.job import *
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer

text = Path({text!r})
source = TextFile(text, document_separator="of more")
pretokenize(source, BytesTokenizer(), text.with_suffix(".npy"), Options(overwrite=True))
"""


def make(text: Path) -> None:
    source = TextFile(text, document_separator="of more")
    pretokenize(source, BytesTokenizer(), text.with_suffix(".npy"), Options(overwrite=True))


def content(output: Path) -> tuple[str, dict[str, object]]:
    """The text that a reader finds, and what its manifest says."""
    found = open_token_set(output)
    assert found.manifest is not None
    assert found.documents is not None
    assert found.manifest["tokens"] == found.n_tokens
    assert found.manifest["documents"] == len(found.documents)
    assert (output.with_name("a.tokenizer") / "bytes.json").exists()
    return BytesTokenizer().decode(found.tokens).replace("<|endoftext|>", ""), found.manifest


def names(folder: Path) -> list[str]:
    """Without what is only remembered of a set, and may be deleted."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".checked.json"))


WHOLE = ["a.docs.npy", "a.npy", "a.npy.json", "a.tokenizer", "a.txt"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(("next_one", "old"), [("reader", True), ("writer", True), ("reader", False)])
def test_a_kill_at_a_named_point_leaves_the_old_or_the_new_set(
    point: str, next_one: str, old: bool, tmp_path: Path, golden: Golden
) -> None:
    text, output = tmp_path / "a.txt", tmp_path / "a.npy"
    if old:
        text.write_text(OLD)
        make(text)
    text.write_text(NEW)
    assert killed_at(point, lambda: make(text))
    assert names(tmp_path) != WHOLE, "the kill came in the middle"
    if next_one == "writer":
        make(text)
    if point in NOT_YET and next_one == "reader":
        if old:
            assert content(output)[0] == OLD
        else:
            with golden.refused("tokens-file-missing"):
                open_token_set(output)
    else:
        found, manifest = content(output)
        assert found == "the new words\n"
        assert manifest["sources"][0]["bytes"] == len(NEW)  # type: ignore[index]
        assert names(tmp_path) == WHOLE, "nothing is left over"


def test_every_point_is_passed_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text(NEW)
    passed: list[str] = []
    monkeypatch.setattr(atomic_files, "on_point", passed.append)
    make(tmp_path / "a.txt")
    assert tuple(point for point in passed if "json:" not in point) == POINTS


def test_the_device_has_all_of_it_before_it_counts(
    tmp_path: Path, synced: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    had: dict[str, list[tuple[int, int]]] = {}
    monkeypatch.setattr(atomic_files, "on_point", lambda name: had.setdefault(name, list(synced)))
    (tmp_path / "a.txt").write_text(NEW)
    make(tmp_path / "a.txt")
    names = ("a.npy", "a.docs.npy", "a.npy.json", "a.tokenizer/bytes.json", "a.tokenizer")
    made = [(tmp_path / name).stat() for name in names]
    before, after = had["a.npy:before_commit"], had["a.npy:after_commit"]
    assert {(status.st_ino, status.st_size) for status in made} <= set(before)
    folder = tmp_path.stat().st_ino
    assert folder in [inode for inode, _ in after[len(before) :]]
    assert folder in [inode for inode, _ in synced[len(had["a.npy:moved_manifest.json"]) :]]


def test_a_reader_that_may_not_finish_the_commit_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    text = tmp_path / "a.txt"
    text.write_text(OLD)
    make(text)
    text.write_text(NEW)
    assert killed_at("a.npy:moved_docs.npy", lambda: make(text))

    def read_only(*arguments: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(lock_file, "lock", read_only)
    with golden.refused("settle-failed"):
        open_token_set(tmp_path / "a.npy")


def test_a_reader_waits_for_a_writer_that_is_at_it(tmp_path: Path) -> None:
    """The lock is the writer's while it moves files; here it is held by a process that then ends."""
    text = tmp_path / "a.txt"
    text.write_text(NEW)
    assert killed_at("a.npy:after_commit", lambda: make(text))
    files = SetFiles(tmp_path / "a.npy")
    code = (
        "import time\nfrom experiment_utils import lock_file\n"
        f"with lock_file.lock({str(files.lock)!r}, 'it'): print('held', flush=True); time.sleep(1)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert content(files.tokens)[0] == "the new words\n"
        assert holder.poll() is not None or not files.lock.exists()


def test_finishing_twice_changes_nothing(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text(NEW)
    assert killed_at("a.npy:moved_tokenizer", lambda: make(text))
    files = SetFiles(tmp_path / "a.npy")
    finish_commit(files)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    finish_commit(files)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert np.load(files.tokens)[-1] == 256


def test_names_of_a_set() -> None:
    files = SetFiles(Path("x/a.b.npy"))
    assert files.documents == Path("x/a.b.docs.npy")
    assert files.manifest == Path("x/a.b.npy.json")
    assert files.tokenizer == Path("x/a.b.tokenizer")
    assert files.checked == Path("x/a.b.npy.checked.json")


@pytest.mark.soak
@pytest.mark.parametrize("run", range(30))
def test_a_kill_at_any_moment(run: int, tmp_path: Path) -> None:
    text, output = tmp_path / "a.txt", tmp_path / "a.npy"
    text.write_text(OLD)
    make(text)
    text.write_text(NEW)
    code = MADE.format(text=str(text))
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        process.wait(timeout=0.15 + run * 0.01)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert content(output)[0] in (OLD, "the new words\n")
    make(text)
    assert names(tmp_path) == WHOLE
