"""`python -m data_loading bench`, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_loading.__main__ import main
from data_loading.commands import bench
from data_loading.opening import open_for_reading
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(0, 257, 50_000, np.uint16))
    return tmp_path / "ids.npy"


def test_a_set_is_measured_by_each_reader_beside_the_floor(
    path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    command = ["bench", str(path), "--seq-len", "32", "--batch-size", "8", "--seconds", "1", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["reader"], row["state"].replace("not cold", "cold")) for row in found["rows"]] == [
        ("mmap", "mapped"), ("mmap", "cached"), ("mmap", "cold"), ("pread", "cached"), ("pread", "cold"),
        ("memory", "cached"),
    ]  # fmt: skip
    for row in found["rows"]:
        assert row["ours_tokens_s"] > 1000
        assert row["floor_tokens_s"] > 1000
        assert row["share_of_floor"] > 0
    assert found["files"] == 1
    assert "mmap" in found["auto"]
    page = bench.page(found)
    golden.text(page, numbers=False)
    assert f"auto: {found['auto']}" in page
    assert page.count("\nmmap ") == 3


def test_tokens_without_a_file_have_no_floor(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert main(["bench", "synthetic:uniform:257:100K", "--seq-len", "32", "--seconds", "1"]) == 0
    page = capsys.readouterr().out
    golden.text(page, numbers=False)


def test_a_large_set_is_not_copied_into_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(bench, "_LARGEST_COPY_BYTES", 100_000)
    data = open_for_reading(str(path), None)
    readers, left_out = bench._readers(data)
    assert readers == ["mmap", "pread"]
    golden.text(left_out["memory"])
    monkeypatch.setattr(bench, "_LARGEST_COPY_BYTES", 101_000)
    assert bench._readers(data) == (["mmap", "pread", "memory"], {})


def test_the_page_says_what_was_not_cold_and_what_was_left_out(golden: Golden) -> None:
    row = {
        "reader": "mmap", "state": "not cold", "rounds": 1, "batches": 1, "ours_tokens_s": 2e6,
        "floor_tokens_s": None, "share_of_floor": None, "share_of_floor_by_cpu": None,
        "ours_read_over_useful": 0.0, "floor_read_over_useful": None,
    }  # fmt: skip
    cold = row | {
        "state": "cold",
        "floor_tokens_s": 1e6,
        "share_of_floor": 2.0,
        "share_of_floor_by_cpu": 0.5,
        "ours_read_over_useful": 3.04,
    }
    page = bench.page(
        {
            "source": "s3://x/c4",
            "tokens": 10,
            "dtype": "uint16",
            "file_bytes": 20,
            "files": 2,
            "windows": 1,
            "seq_len": 8,
            "batch_size": 1,
            "auto": "mmap",
            "no_floor": "the tokens are in no file",
            "left_out": {"memory": "not measured: too large"},
            "rows": [row, cold],
        }
    )
    golden.text(page)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere"],
        ["{path}", "--seq-len", "60000"],
        ["{path}", "--batch-size", "0"],
        ["{path}", "--seconds", "0.5"],
        ["{path}", "--seconds", "nan"],
        ["gopher://x"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_measured_is_one_line_and_exit_2(
    path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["bench", *(one.format(path=path) for one in arguments)]) == 2
    golden.text(capsys.readouterr().err.splitlines()[-1])


def test_a_text_that_is_not_tokenized_is_told_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (tmp_path / "a.txt").write_text("some text")
    assert main(["bench", str(tmp_path / "a.txt")]) == 2
    golden.text(capsys.readouterr().err)


def test_help_is_true_and_needs_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "data_loading", "bench", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0
    for word in ("--seq-len", "--batch-size", "--seconds", "--json"):
        assert word in done.stdout
    code = (
        "import sys; from data_loading.__main__ import COMMANDS; "
        "from experiment_utils.room_command import room_parser; "
        "room_parser('data_loading', COMMANDS); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
