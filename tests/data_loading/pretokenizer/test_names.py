"""Names that cannot be written down, or are no place for a set: told before the work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pretokenize_dataset
from conf import UserError
from data_loading.pretokenizer.byte_files import ByteFile

SCRIPT = Path(__file__).resolve().parents[3] / "pretokenize_dataset.py"
BYTES = ("--tokenizer", "bytes")
STRANGE = b"b\xff.txt"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("some\n--\nwords")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert pretokenize_dataset.main(list(arguments)) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize("flag", [None, "--output", "--document-separator", "--tokenizer"])
def test_an_argument_that_is_not_utf_8(
    flag: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(STRANGE, "wb") as file:
        file.write(b"text")
    strange = os.fsdecode(STRANGE)
    message = refused(capsys, *((strange, *BYTES) if flag is None else ("a.txt", *BYTES, flag, strange)))
    assert r"b'b\xff.txt' is not UTF-8" in message
    assert "mv" in message


def test_a_file_name_that_is_not_utf_8(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder, and in the path to it."""
    (folder / "in").mkdir()
    with open(os.path.join(b"in", STRANGE), "wb") as file:  # noqa: PTH118
        file.write(b"text")
    message = refused(capsys, "in", *BYTES, "--output", "x.npy")
    assert "b\\xff.txt' is not UTF-8" in message
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "in"]
    os.mkdir(b"d\xff")  # noqa: PTH102
    with open(b"d\xff/c.txt", "wb") as file:
        file.write(b"text")
    os.chdir(b"d\xff")
    with pytest.raises(UserError, match="is not UTF-8"):
        ByteFile(Path("c.txt"))
