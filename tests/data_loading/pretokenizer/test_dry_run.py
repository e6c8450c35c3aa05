"""`--dry-run`: what the command would do is told, and nothing is done."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import pretokenize_dataset
from data_loading.pretokenizer import disk_space, dry_run
from data_loading.pretokenizer.journal import Journal
from tests.data_loading.conftest import without_memory_lines
from tests.golden_text import Golden

MB = 1 << 20
TEXT = "The water rose, and the mark stayed high.\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT * 1000)
    monkeypatch.setattr(dry_run, "free_bytes", lambda path: 50_000 * MB)
    return tmp_path


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def command(*arguments: str) -> int:
    return pretokenize_dataset.main([*arguments])


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the dry run prints; it writes nothing."""
    before = tree(Path())
    assert command(*arguments, "--dry-run") == 0
    assert tree(Path()) == before
    return capsys.readouterr().out


def masked(page: str) -> str:
    """A plan without times, speeds and memory."""
    page = re.sub(r"[\d.,]+ (?:ms|s|min|[KMGT]?B/s)\b", "N", page)
    page = page.replace("N N", "N")  # minutes and seconds, on a slow machine
    return re.sub(r"(?m)^(  memory .*)$", lambda line: re.sub(r"[\d.,]+ [KMGT]B", "N", line[1]), page)


def test_all_is_told_and_the_command_to_type(
    here: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    page = planned(capsys, "a.txt", "--tokenizer", "bytes")
    golden.text(masked(page))
    assert max(map(len, page.splitlines())) <= 80
    found = json.loads(planned(capsys, "a.txt", "--tokenizer", "bytes", "--json"))
    assert (found["tokens"], found["documents"], found["disk_bytes"] >> 10) == (42_001, 1, 83)


@pytest.mark.slow
def test_the_outcome_is_as_planned(here: Path, capsys: pytest.CaptureFixture[str], shared_data: Path) -> None:
    """Two real texts laid behind each other until they are too long to be encoded whole."""
    texts = [(shared_data / name).read_bytes() for name in ("wikitext2_valid.txt", "tinyshakespeare.txt")]
    (here / "real.txt").write_bytes(b"".join(texts * 4))
    arguments = ("real.txt", "--tokenizer", str(shared_data / "gpt2"), "--json")
    found = json.loads(planned(capsys, *arguments))
    # In a process of its own: the memory of this one is that of other tests.
    script = [sys.executable, pretokenize_dataset.__file__]
    made = json.loads(subprocess.run([*script, *arguments], capture_output=True, check=True).stdout)
    assert found["tokens"] == pytest.approx(made["tokens"], rel=0.1)
    assert not found["is_exact"]
    assert (made["documents"], made["path"]) == (found["documents"], found["path"])
    assert made["engine"] == found["engine"]
    on_disk = sum(path.stat().st_size for path in here.glob("real.npy")) + sum(
        path.stat().st_size for path in (here / "real.tokenizer").iterdir()
    )
    assert found["disk_bytes"] == pytest.approx(on_disk, rel=0.1)
    assert found["seconds"] > 0
    assert made["peak_memory_bytes"] < found["most_memory_bytes"]
    again = json.loads(planned(capsys, *arguments))
    assert again["tokens"] == made["tokens"]


def test_what_would_be_refused_is_told_with_its_reason(
    here: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert command("a.txt", "--tokenizer", "bytes") == 0
    (here / "a.txt").write_text(TEXT * 999)
    capsys.readouterr()
    out = planned(capsys, "a.txt", "--tokenizer", "bytes")
    golden.text(masked(out))
    out = planned(capsys, "a.txt", "--tokenizer", "bytes", "--overwrite")
    golden.text(masked(out), "overwrite")


def test_rows_without_text_are_no_documents(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"text": ["one", None, "", "two"]}), here / "n.parquet")
    found = json.loads(planned(capsys, "n.parquet", "--tokenizer", "bytes", "--json"))
    assert command("n.parquet", "--tokenizer", "bytes", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert (found["is_exact"], found["documents"], found["tokens"]) == (True, 2, made["tokens"])


@pytest.mark.parametrize("content", [b"\n \n" * 9, b"\xff the water rose\n", b'{"text": "\xff"}\n'])
@pytest.mark.parametrize("name", ["a.jsonl", "b.txt"])
def test_text_that_the_command_refuses_is_refused(
    name: str, content: bytes, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / name).write_bytes(content)
    code = command(name, "--tokenizer", "bytes", "--output", "made.npy")
    said = [capsys.readouterr().err.splitlines()[-1].partition(" (")[0]]
    assert command(name, "--tokenizer", "bytes", "--output", "planned.npy", "--dry-run") == code
    said += [line.partition(" (")[0] for line in capsys.readouterr().err.splitlines()[-1:]]
    assert not code or said[0] == said[1]


@pytest.mark.parametrize("flags", [["--dedup", "lines"], ["--clean", "normalize"], []], ids=" ".join)
def test_the_time_is_told_as_what_it_is(
    flags: list[str], here: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    golden.text(masked(planned(capsys, "a.txt", "--tokenizer", "bytes", *flags)))


def test_an_unfinished_attempt_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    note, noted = Journal.note, []

    def stop(journal: Journal, *progress: Any) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(progress)
        note(journal, *progress)

    monkeypatch.setattr(Journal, "note", stop)
    (here / "a.txt").write_text(TEXT * 200_000)
    assert command("a.txt", "--tokenizer", "bytes") == 130
    capsys.readouterr()
    golden.text(masked(planned(capsys, "a.txt", "--tokenizer", "bytes")))
    (here / "a.txt").write_text(TEXT * 999)
    golden.text(masked(planned(capsys, "a.txt", "--tokenizer", "bytes")))


def test_a_set_of_its_own_to_hold_out_and_limits(
    here: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (here / "b.jsonl").write_text('{"text": "water"}\n' * 500)
    out = planned(
        *(capsys, "b.jsonl", "--val", "a.txt", "--tokenizer", "bytes", "--output", "mix"),
        *("--max-documents", "100"),
    )
    golden.text(masked(out))


@pytest.mark.parametrize(("free", "status"), [(2 * MB, 2), (8 * MB, 0)])
def test_too_little_room_is_told_and_the_command_refuses(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    status: int,
    golden: Golden,
) -> None:
    (here / "a.txt").write_text(TEXT * 100_000)
    for place in (dry_run, disk_space):
        monkeypatch.setattr(place, "free_bytes", lambda path: free)
    golden.text(masked(planned(capsys, "a.txt", "--tokenizer", "bytes")))
    assert command("a.txt", "--tokenizer", "bytes") == status


def test_what_is_held_out_finds_the_room_that_the_text_leaves(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    (here / "a.txt").write_text(TEXT * 100_000)
    (here / "b.txt").write_text(TEXT * 30_000)
    monkeypatch.setattr(dry_run, "free_bytes", lambda path: 9 * MB)
    out = planned(capsys, "a.txt", "--val", "b.txt", "--tokenizer", "bytes", "--output", "mix")
    golden.text(masked(out))


def test_what_cannot_be_planned_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert command("a.txt", "--train-tokenizer", "300", "--dry-run") == 2
    golden.text(without_memory_lines(capsys.readouterr().err), numbers=False)
    assert not (here / "a.bpe300").exists()
    arguments = ["-", "--output", "x.npy", "--dry-run", "--tokenizer", "bytes"]
    done = subprocess.run(
        [sys.executable, pretokenize_dataset.__file__, *arguments],
        input="text",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    golden.text(without_memory_lines(done.stderr), "standard input")


def test_ten_gigabytes_are_planned_in_seconds(
    here: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    with open("big.txt", "wb") as file:  # sparse: zeros are text too
        file.write(TEXT.encode() * 100_000)
        os.truncate("big.txt", 10**10)
    started = time.process_time()
    out = planned(capsys, "big.txt", "--tokenizer", "bytes")
    assert time.process_time() - started < 5
    golden.text(masked(out))
