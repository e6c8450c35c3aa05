"""Every fault of an export is found, in each format, and a whole one has none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.audit.check_exports import check_export, export_folder_of
from data_loading.audit.check_set import check_set
from data_loading.commands.set_commands import main
from data_loading.export_formats import FORMATS
from data_loading.export_formats.record import RECORD
from tests.data_loading.export_formats.conftest import made as made
from tests.data_loading.export_formats.conftest import tokenized
from tests.data_loading.export_formats.test_export import exported
from tests.golden_text import Golden

PARTS = ("files", "format", "set", "tokens")
LARGEST = {
    "megatron": "a_text_document.bin",
    "nanogpt": "train.bin",
    "llm.c": "a_train_000001.bin",
    "mypt": "train/shard_00000.bin",
}


def wrong(folder: Path) -> dict[str, str]:
    return {
        finding.what.removeprefix(f"{folder.name[2:]} export: "): finding.message
        for finding in check_export(folder)
        if finding.ok is False
    }


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def record_as_it_is(folder: Path, name: str) -> None:
    """Make the record fit a changed file."""
    from data_loading.text_io.content_hash import file_content_hash

    facts = json.loads((folder / RECORD).read_text())
    path = folder / name
    facts["files"][name] = {"bytes": path.stat().st_size, "content_hash": file_content_hash(path)}
    (folder / RECORD).write_text(json.dumps(facts))


@pytest.fixture(params=FORMATS)
def folder(request: pytest.FixtureRequest, made: Path) -> Path:
    return exported(made, request.param)[0].path


def test_a_whole_export_has_no_fault(folder: Path) -> None:
    name = folder.name[2:]
    assert {finding.what: finding.ok for finding in check_export(folder)} == {
        f"{name} export: {part}": True for part in PARTS
    }


def test_a_flipped_bit_is_found_and_where(folder: Path, golden: Golden) -> None:
    name = LARGEST[folder.name[2:]]
    offset = 1024 if folder.name == "a.llm.c" else 0
    itemsize = 4 if folder.name == "a.mypt" else 2
    flip(folder / name, offset + 40 * itemsize)
    found = wrong(folder)
    assert set(found) == {"files", "tokens"}
    golden.text("\n".join(found.values()))


@pytest.mark.parametrize(("change", "is_recorded", "found", "found_of_nanogpt"), [
    (lambda data: data[:-4] + bytes([data[-4] ^ 1]) + data[-3:], True, {"tokens"}, {"tokens"}),
    (lambda data: data[:-4], True, {"format"}, {"tokens"}),
    (lambda data: data[:-5], False, {"files", "format"}, {"files", "format"}),
    (lambda data: data + bytes(4), False, {"files", "format"}, {"files", "tokens"}),
    (lambda data: data + bytes(4), True, {"format"}, {"tokens"}),
    (None, False, {"files", "format"}, {"files", "format"}),
])  # fmt: skip
def test_damage_is_found(
    change: Callable[[bytes], bytes] | None,
    is_recorded: bool,
    found: set[str],
    found_of_nanogpt: set[str],
    folder: Path,
) -> None:
    """Also if the record fits the damaged file: tokens are compared with the set. nanoGPT has no header."""
    path = folder / LARGEST[folder.name[2:]]
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    if is_recorded:
        record_as_it_is(folder, LARGEST[folder.name[2:]])
    assert set(wrong(folder)) == (found_of_nanogpt if folder.name == "a.nanogpt" else found)


def test_another_set_of_the_same_name_is_found(folder: Path, made: Path) -> None:
    old = json.loads(made.with_name("a.npy.json").read_text())["fingerprint"]
    tokenized(made.with_suffix(".txt"), "another text")
    new = json.loads(made.with_name("a.npy.json").read_text())["fingerprint"]
    found = wrong(folder)
    assert set(found) == {"set"}
    assert old[:12] in found["set"]
    assert new[:12] in found["set"]


def test_without_its_set_only_its_record_is_compared(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / folder.name
    shutil.copytree(folder, moved)
    findings = {finding.what.split(": ")[1]: finding.ok for finding in check_export(moved)}
    assert findings == {"files": True, "format": True, "set": None}
    flip(moved / LARGEST[folder.name[2:]], -1)
    assert "files" in wrong(moved)


def test_a_damaged_set_is_no_fault_of_the_export(folder: Path, made: Path) -> None:
    flip(made, -1)
    assert wrong(folder) == {}
    assert next(finding for finding in check_export(folder) if finding.what.endswith("set")).ok is None


def test_verifying_a_set_verifies_its_exports(folder: Path, made: Path) -> None:
    tokenized(made.with_name("b.txt"), "not of this set")
    exported(made.with_name("b.npy"), folder.name[2:])
    exports = [finding.what for finding in check_set(made) if "export" in finding.what]
    assert exports == [f"{folder.name[2:]} export: {part}" for part in PARTS]
    flip(folder / LARGEST[folder.name[2:]], -1)
    assert any(finding.ok is False for finding in check_set(made))
    assert all(finding.ok for finding in check_set(made.with_name("b.npy")))


@pytest.mark.parametrize(("name", "change"), [
    ("a.megatron/a_text_document.idx", lambda data: b"X" + data[1:]),
    ("a.megatron/a_text_document.idx", lambda data: data[:20]),
    ("a.megatron/a_text_document.idx", lambda data: data[:9] + b"\2" + data[10:]),
    ("a.megatron/a_text_document.idx", lambda data: data[:17] + b"\7" + data[18:]),
    ("a.megatron/a_text_document.idx", lambda data: data[:-8]),
    ("a.megatron/a_text_document.idx", lambda data: data[:34] + b"\1" + data[35:]),
    ("a.megatron/a_text_document.idx", lambda data: data[:-8] + bytes(8)),
    ("a.megatron/a_text_document.idx", lambda data: data[:-8] + b"\xff" + bytes(7)),
    ("a.llm.c/a_val_000000.bin", lambda data: b"\0" + data[1:]),
    ("a.llm.c/a_val_000000.bin", lambda data: data[:4] + b"\2" + data[5:]),
    ("a.llm.c/a_val_000000.bin", lambda data: data[:100]),
    ("a.llm.c/a_val_000000.bin", lambda data: data[:1025]),
    ("a.nanogpt/val.bin", lambda data: b""),
    ("a.mypt/dataset_metadata.json", lambda data: b"{"),
    ("a.mypt/dataset_metadata.json", lambda data: b"[]"),
    ("a.mypt/dataset_metadata.json", lambda data: b"{}"),
    ("a.mypt/tokenizer_state.json", lambda data: b"{}"),
])  # fmt: skip
def test_damage_that_the_readers_would_refuse(
    name: str, change: Callable[[bytes], bytes], made: Path, golden: Golden
) -> None:
    path = made.with_name(name.split("/")[0])
    exported(made, path.name[2:])
    file = made.parent / name
    file.write_bytes(change(file.read_bytes()))
    found = wrong(path)
    assert "files" in found
    golden.text(found["format"])


def test_document_starts_are_compared_too(made: Path, golden: Golden) -> None:
    """Two documents become one: the tokens are the same, and the index is a good one."""
    exported(made, "megatron")
    path = made.with_name("a.megatron") / "a_text_document.idx"
    data = path.read_bytes()
    header = data[:26] + len(np.load(made.with_name("a.docs.npy"))).to_bytes(8, "little")
    path.write_bytes(header + data[34:-16] + data[-8:])
    record_as_it_is(path.parent, path.name)
    found = wrong(path.parent)
    assert set(found) == {"tokens"}
    golden.text(found["tokens"])


def test_a_damaged_record_is_a_finding(made: Path) -> None:
    exported(made, "nanogpt")
    (made.with_name("a.nanogpt") / RECORD).write_text("{")
    assert [finding.ok for finding in check_export(made.with_name("a.nanogpt"))] == [False]
    assert [f.what for f in check_set(made) if not f.ok] == ["nanogpt export"]


def test_a_missing_record(made: Path, golden: Golden) -> None:
    exported(made, "nanogpt")
    (made.with_name("a.nanogpt") / RECORD).unlink()
    made.with_name("b.nanogpt").mkdir()
    found = [finding for finding in check_set(made) if "export" in finding.what]
    assert [finding.ok for finding in found] == [None]
    golden.text(found[0].message)


def test_paths_that_name_an_export(made: Path) -> None:
    folder = exported(made, "mypt")[0].path
    for given in (folder, folder / "train.bin", folder / "train/shard_00000.bin", folder / RECORD):
        assert export_folder_of(given) == folder
    for given in (made, made.with_name("a"), made.parent, made.with_suffix(".txt")):
        assert export_folder_of(given) is None


def test_the_command(made: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    folder = exported(made, "nanogpt")[0].path
    assert main(["verify", str(folder)]) == 0
    golden.text(capsys.readouterr().out, "whole")
    assert main(["verify", str(folder / "train.bin"), "--json"]) == 0
    facts: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [fact["what"] for fact in facts] == [f"nanogpt export: {part}" for part in PARTS]
    flip(folder / "val.bin", 0)
    for given in (folder, made):
        assert main(["verify", str(given)]) == 1
        golden.text("".join(capsys.readouterr()), "damaged")
    (folder / RECORD).unlink()
    with golden.refused("no-export"):
        main(["verify", str(folder)])
