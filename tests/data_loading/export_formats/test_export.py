"""Exports are put in place atomically, made once, and never replace files of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import killed_at

from data_loading.audit.check_exports import check_export
from data_loading.export_formats import FORMATS, formats_of, load_format
from data_loading.export_formats.contents import val_border
from data_loading.export_formats.export import Exported, check_exports, export
from data_loading.export_formats.record import RECORD, read_record
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.token_set import open_token_set
from tests.data_loading.export_formats.conftest import tokenized
from tests.golden_text import Golden, refused

ROOT = Path(__file__).resolve().parents[3]
POINTS = (
    "{partial}:written",
    "highwater.json:before_rename",
    "highwater.json:after_rename",
    "{name}:before_rename",
    "{name}:moved_aside",
    "{name}:after_rename",
)


def exported(tokens: Path | list[Path], names: str) -> list[Exported]:
    sets = tokens if isinstance(tokens, list) else [tokens]
    return export(formats_of(names), sets, BytesTokenizer())


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_whole(folder: Path) -> bool:
    return all(finding.ok for finding in check_export(folder))


def test_val_is_not_advised_where_it_was_given(tmp_path: Path) -> None:
    pair = [tokenized(tmp_path / "x_train.txt", "one two"), tokenized(tmp_path / "x_validation.txt", "three")]
    told: dict[int, list[str]] = {1: [], 2: []}
    for sets in (pair[:1], pair):
        export(formats_of("megatron"), sets, BytesTokenizer(), told[len(sets)].append)
    assert "--val" in "".join(told[1])
    assert told[2] == []


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_is_made_once(name: str, made: Path) -> None:
    first = exported(made, name)[0]
    assert (first.path, first.made) == (made.with_name(f"a.{name}"), True)
    assert sum(first.tokens.values()) == len(np.load(made))
    before = snapshot(first.path)
    inode = (first.path / RECORD).stat().st_ino
    second = exported(made, name)[0]
    assert (second.made, second.files, second.bytes) == (False, first.files, first.bytes)
    assert (first.path / RECORD).stat().st_ino == inode
    assert sorted([*first.files, RECORD]) == sorted(before)
    assert sum(len(before[file]) for file in first.files) == first.bytes
    assert [path.name for path in made.parent.iterdir() if path.name.startswith(".a.")] == []


def test_the_split_is_that_of_a_run(made: Path) -> None:
    """On a document start, since there are 100 documents."""
    border = val_border(open_token_set(made))
    assert exported(made, "nanogpt")[0].tokens == {"train": border, "val": len(np.load(made)) - border}
    assert border in np.load(made.with_name("a.docs.npy"))
    record = read_record(made.with_name("a.nanogpt"))
    assert record is not None
    assert record.splits["val"] == {"set": "a.npy", "start": border, "stop": len(np.load(made))}


@pytest.mark.parametrize("name", FORMATS)
def test_another_set_under_the_same_name_is_exported_again(name: str, made: Path) -> None:
    exported(made, name)
    tokenized(made.with_suffix(".txt"), " ".join(f"other{n}" for n in range(130)))
    assert exported(made, name)[0].made
    assert is_whole(made.with_name(f"a.{name}"))


def test_another_split_is_exported_again(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported(made, "nanogpt")
    monkeypatch.setattr("data_loading.export_formats.export.val_border", lambda found: 50)
    assert exported(made, "nanogpt")[0].tokens["train"] == 50
    assert (
        np.fromfile(made.with_name("a.nanogpt") / "train.bin", "<u2").tolist() == np.load(made)[:50].tolist()
    )


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: os.truncate(path, 8)])
def test_a_missing_or_short_file_is_made_again(change: Any, made: Path) -> None:
    exported(made, "nanogpt")
    change(made.with_name("a.nanogpt") / "val.bin")
    assert exported(made, "nanogpt")[0].made
    assert is_whole(made.with_name("a.nanogpt"))


def test_train_and_val_become_one_export(tmp_path: Path) -> None:
    sets = [tokenized(tmp_path / "x_train.txt", "one two"), tokenized(tmp_path / "x_validation.txt", "three")]
    done = exported(sets, "nanogpt,llm.c,mypt,megatron")
    assert [result.path.name for result in done] == [
        "x.nanogpt", "x.llm.c", "x.mypt", "x_train.megatron", "x_validation.megatron",
    ]  # fmt: skip
    assert np.fromfile(tmp_path / "x.nanogpt/val.bin", "<u2").tolist() == np.load(sets[1]).tolist()
    assert (tmp_path / "x.llm.c/x_val_000000.bin").exists()
    assert (tmp_path / "x_validation.megatron/x_validation_text_document.idx").exists()
    assert all(is_whole(result.path) for result in done)


def test_a_held_out_set_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    sets = [tokenized(tmp_path / "x.txt", "one two"), tokenized(tmp_path / "far/y.txt", "three")]
    exported(sets, "nanogpt")
    assert {finding.ok for finding in check_export(tmp_path / "x.nanogpt")} == {True}
    assert not exported(sets, "nanogpt")[0].made


def test_a_folder_of_another_program_is_refused(made: Path, golden: Golden) -> None:
    folder = made.with_name("a.nanogpt")
    folder.mkdir()
    (folder / "train.bin").write_text("precious")
    with golden.refused("export-folder-taken"):
        exported(made, "nanogpt")
    assert snapshot(folder) == {"train.bin": b"precious"}


def test_an_empty_folder_is_no_obstacle(made: Path) -> None:
    made.with_name("a.nanogpt").mkdir()
    assert exported(made, "nanogpt")[0].made
    assert is_whole(made.with_name("a.nanogpt"))


def test_a_file_of_that_name(made: Path, golden: Golden) -> None:
    made.with_name("a.nanogpt").write_text("precious")
    with golden.refused("export-folder-taken"):
        exported(made, "nanogpt")


def test_an_export_of_other_sets_is_not_replaced(tmp_path: Path, golden: Golden) -> None:
    exported(tokenized(tmp_path / "x.txt", "one two three"), "nanogpt")
    pair = [tokenized(tmp_path / "x_train.txt", "one two"), tokenized(tmp_path / "x_validation.txt", "three")]
    with golden.refused("export-of-other-sets"):
        exported(pair, "nanogpt")


def test_files_added_to_an_export_are_not_removed(made: Path, golden: Golden) -> None:
    exported(made, "megatron")
    cache = made.with_name("a.megatron") / "cache/index.npy"
    cache.parent.mkdir()
    cache.write_text("precious")
    assert not exported(made, "megatron")[0].made, "they are no harm to one that is up to date"
    tokenized(made.with_suffix(".txt"), "others")
    with golden.refused("export-folder-has-other-files"):
        exported(made, "megatron")
    assert cache.exists()


RECORD_KEYS = ("format", "sets", "splits", "files", "writer_version", "kind", "version")


@pytest.mark.parametrize("damage", ["{", "[]", "{}", *RECORD_KEYS])
def test_a_damaged_record_is_refused(damage: str, made: Path, golden: Golden) -> None:
    """Other text, or a record without one of its keys."""
    exported(made, "nanogpt")
    path = made.with_name("a.nanogpt") / RECORD
    facts = json.loads(path.read_text())
    less = json.dumps({name: value for name, value in facts.items() if name != damage})
    path.write_text(less if damage in RECORD_KEYS else damage)
    with golden.refused("export-record-damaged"):
        read_record(path.parent)
    with refused("export-record-damaged"):
        exported(made, "nanogpt")


def test_a_record_of_a_later_version(made: Path, golden: Golden) -> None:
    exported(made, "nanogpt")
    path = made.with_name("a.nanogpt") / RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with golden.refused("export-record-version"):
        read_record(path.parent)


def test_all_problems_are_reported_before_anything_is_made(tmp_path: Path, golden: Golden) -> None:
    class Big(BytesTokenizer):
        vocab_size = 200_000

    (tmp_path / "x.megatron").mkdir()
    (tmp_path / "x.megatron/mine").touch()
    with golden.refused("export-folder-taken", "export-tokenizer-too-large") as error:
        check_exports([load_format(name) for name in FORMATS], [tmp_path / "x.npy"], Big())
    assert [problem.where for problem in error.value.problems] == [
        "", "--format nanogpt", "--format llm.c", "--format mypt",
    ]  # fmt: skip


def test_all_unknown_formats_are_reported(golden: Golden) -> None:
    with golden.refused("export-format-unknown") as error:
        formats_of("megatron,nanoGPT,,parquet")
    assert len(error.value.problems) == 3
    assert [found.name for found in formats_of("mypt, megatron,mypt")] == ["mypt", "megatron"]
    assert formats_of(None) == []


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_the_old_or_the_new_export(point: str, made: Path) -> None:
    """Between the two renames there is none for a moment: the next command puts one there."""
    exported(made, "mypt")
    folder = made.with_name("a.mypt")
    old = snapshot(folder)
    tokenized(made.with_suffix(".txt"), " ".join(f"other{n}" for n in range(130)))
    named = point.format(name="a.mypt", partial=".a.mypt.partial")
    assert killed_at(named, lambda: exported(made, "mypt"))
    if point == "{name}:moved_aside":
        assert not folder.exists()
        assert snapshot(made.with_name(".a.mypt.old")) == old, "moved away whole, not removed bit by bit"
    elif point == "{name}:after_rename":
        assert is_whole(folder)
    else:
        assert snapshot(folder) == old
    exported(made, "mypt")
    assert is_whole(folder)
    assert snapshot(folder) != old
    assert sorted(path.name for path in made.parent.glob(".a.*")) == []


def test_a_full_disk_leaves_no_partial_export(made: Path, golden: Golden) -> None:
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        "from pathlib import Path\n"
        "from experiment_utils.errors import UserError\n"
        "from data_loading.export_formats import load_format\n"
        "from data_loading.export_formats.export import export\n"
        "from data_loading.tokenizers.tokenizer import BytesTokenizer\n"
        f"try: export([load_format('mypt')], [Path({str(made)!r})], BytesTokenizer())\n"
        "except UserError as error: print(error)\n"
    )
    before = snapshot(made.parent)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    golden.text(done.stdout, numbers=False)
    assert "--output /ANOTHER/FOLDER/a.npy" in done.stdout
    assert snapshot(made.parent) == before


def test_two_processes_do_not_write_one_export(made: Path) -> None:
    from experiment_utils import lock_file

    lock = made.with_name(".a.mypt.lock")
    with (
        lock_file.lock(lock, "export a.mypt"),
        pytest.raises(lock_file.LockHeld),
    ):
        exported(made, "mypt")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_set(tmp_path: Path) -> None:
    """Anonymous memory of the whole command, 30 MB against 80 MB of text, all formats."""
    peaks = []
    for size in (30, 80):
        path = tmp_path / f"t{size}.txt"
        path.write_text("-\n".join(["The water rose, and the mark stayed high.\n" * 20] * (size * 1200)))
        code = (
            "import sys, resource, pretokenize_dataset as p\n"
            f"p.main([{str(path)!r}, '--tokenizer', 'bytes', '--document-separator', '-'])\n"
            "import threading, time\n"
            "peak = 0\n"
            "def watch():\n"
            "    global peak\n"
            "    while True:\n"
            "        for line in open('/proc/self/status'):\n"
            "            if line.startswith('RssAnon'): peak = max(peak, int(line.split()[1]))\n"
            "        time.sleep(0.005)\n"
            "threading.Thread(target=watch, daemon=True).start()\n"
            f"p.main([{str(path)!r}, '--tokenizer', 'bytes', '--document-separator', '-', '--format',"
            " 'megatron,nanogpt,llm.c,mypt'])\n"
            "print(peak)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240
        )
        peaks.append(int(done.stdout.split()[-1]) / 1024)
        assert sum(file.stat().st_size for file in tmp_path.glob(f"t{size}.*/**/*.bin")) > size * 8e6
    assert peaks[1] - peaks[0] < 25, f"{peaks} MB"
