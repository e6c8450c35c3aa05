"""Names that cannot be written down, or are no place for a set: told before the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pretokenize_dataset
from data_loading.text_io.byte_files import ByteFile
from tests.data_loading.conftest import without_memory_lines
from tests.golden_text import Golden

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
    flag: str | None, folder: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    with open(STRANGE, "wb") as file:
        file.write(b"text")
    strange = os.fsdecode(STRANGE)
    message = refused(capsys, *((strange, *BYTES) if flag is None else ("a.txt", *BYTES, flag, strange)))
    golden.text(without_memory_lines(message))


def test_a_file_name_that_is_not_utf_8(
    folder: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """In a folder, and in the path to it."""
    (folder / "in").mkdir()
    with open(os.path.join(b"in", STRANGE), "wb") as file:  # noqa: PTH118
        file.write(b"text")
    message = refused(capsys, "in", *BYTES, "--output", "x.npy")
    golden.text(without_memory_lines(message))
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "in"]
    os.mkdir(b"d\xff")  # noqa: PTH102
    with open(b"d\xff/c.txt", "wb") as file:
        file.write(b"text")
    os.chdir(b"d\xff")
    with golden.refused("name-not-utf8"):
        ByteFile(Path("c.txt"))


@pytest.mark.parametrize(
    "output",
    ["a.txt/o.npy", "a.txt/b/o.npy", "x" * 246 + ".npy", "y" * 300 + ".npy", "gone/o.npy", "/proc/o.npy"],
    ids=["file", "file_above", "long", "too_long", "link", "proc"],
)
@pytest.mark.parametrize("is_plan", [False, True])
def test_a_place_where_no_set_can_be(
    output: str, is_plan: bool, folder: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (folder / "gone").symlink_to("nowhere")
    if is_plan and output.startswith("/proc"):
        return
    golden.text(
        without_memory_lines(refused(capsys, "a.txt", *BYTES, "--output", output, *["--dry-run"] * is_plan))
    )


def test_a_long_name_that_is_not_too_long(folder: Path) -> None:
    name = "x" * 196
    assert pretokenize_dataset.main(["a.txt", *BYTES, "--output", f"{name}.npy"]) == 0
    (folder / f"{name}.txt").write_text("words")
    assert pretokenize_dataset.main([f"{name}.txt", *BYTES, "--overwrite"]) == 0
    assert pretokenize_dataset.main(["verify", f"{name}.npy", "--deep"]) == 0


def test_separators_that_look_like_flags(
    folder: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert pretokenize_dataset.main(["a.txt", *BYTES, "--document-separator=--"]) == 0
    capsys.readouterr()
    assert json.loads(Path("a.npy.json").read_text())["documents"] == 2
    with pytest.raises(SystemExit) as left:
        pretokenize_dataset.main(["a.txt", *BYTES, "--document-separator", "---"])
    assert left.value.code == 2
    golden.text(without_memory_lines(capsys.readouterr().err), numbers=False)


@pytest.mark.parametrize("flags", [[], ["--json"], ["--dry-run"]])
def test_a_full_standard_output(flags: list[str], folder: Path, golden: Golden) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "a.txt", *BYTES, *flags],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    golden.text(without_memory_lines(done.stderr), numbers=False)
    assert (folder / "a.npy").exists() == (flags != ["--dry-run"])


@pytest.mark.parametrize(
    ("name", "magic"), [("a.zst", b"\x28\xb5\x2f"), ("a.gz", b"\x1f"), ("a.jsonl.xz", b"\xfd7zX")]
)
def test_a_compressed_file_of_a_few_bytes(name: str, magic: bytes, folder: Path, golden: Golden) -> None:
    (folder / name).write_bytes(magic)
    with golden.refused("input-cut-short"):
        ByteFile(folder / name)
    (folder / "a.txt").write_bytes(b"B")
    assert ByteFile(folder / "a.txt").compression is None


def test_a_link_that_leads_back_to_itself(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a.txt").symlink_to(tmp_path / "a.txt")
    with golden.refused("input-link-loop"):
        ByteFile(tmp_path / "a.txt")
