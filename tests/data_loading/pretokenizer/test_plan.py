"""`--dry-run`: what the command would do is told, and nothing is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pretokenize_dataset
from data_loading.pretokenizer import disk_space, plan
from data_loading.pretokenizer.journal import Journal

MB = 1 << 20
TEXT = "The water rose, and the mark stayed high.\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT * 1000)
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


def test_all_is_told_and_the_command_to_type(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = planned(capsys, "a.txt", "--tokenizer", "bytes").splitlines()
    assert lines[0] == "plan: a.txt, 0.0 MB -> a.npy"
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[1:-1]}
    assert list(told) == [
        *("output", "tokenizer", "engine", "cuts", "tokens", "documents", "time", "disk", "memory")
    ]
    assert told["output"] == "nothing is there yet"
    assert told["tokenizer"] == "bytes (257 ids, uint16)"
    assert told["engine"] == "bytes 1"
    assert told["tokens"] == "42,001 (all of it was encoded)"
    assert told["documents"] == "1"
    assert told["time"].startswith("about ")
    assert told["disk"].startswith("83 KB; ")
    assert lines[-1] == "next: python pretokenize_dataset.py a.txt --tokenizer bytes"


@pytest.mark.slow
def test_the_outcome_is_as_planned(here: Path, capsys: pytest.CaptureFixture[str], shared_data: Path) -> None:
    """Two real texts laid behind each other until they are too long to be encoded whole."""
    texts = [(shared_data / name).read_bytes() for name in ("wikitext2_valid.txt", "tinyshakespeare.txt")]
    (here / "real.txt").write_bytes(b"".join(texts * 4))
    arguments = ("real.txt", "--tokenizer", str(shared_data / "gpt2"), "--json")
    found = json.loads(planned(capsys, *arguments))
    assert command(*arguments) == 0
    made = json.loads(capsys.readouterr().out)
    assert 0 < found["tokens_error"] < 0.05 * found["tokens"]
    assert abs(made["tokens"] - found["tokens"]) <= found["tokens_error"]
    assert (made["documents"], made["path"]) == (found["documents"], found["path"])
    assert made["engine"] == found["engine"]
    on_disk = sum(path.stat().st_size for path in here.glob("real.npy")) + sum(
        path.stat().st_size for path in (here / "real.tokenizer").iterdir()
    )
    assert found["disk_bytes"] == pytest.approx(on_disk, rel=0.02)
    assert found["seconds"] > 0
    assert made["peak_memory_bytes"] > found["memory_bytes"] / 2
    again = json.loads(planned(capsys, *arguments))
    assert (again["state"], again["tokens"]) == ("up to date: nothing to do", made["tokens"])


def test_what_would_be_refused_is_told_with_its_reason(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("a.txt", "--tokenizer", "bytes") == 0
    (here / "a.txt").write_text(TEXT * 999)
    capsys.readouterr()
    out = planned(capsys, "a.txt", "--tokenizer", "bytes")
    assert "output     something else is there" in out
    assert "refused    a.npy exists, but it was made from a text of 42,000 bytes" in out
    assert "next:" not in out, "the command would be refused"
    out = planned(capsys, "a.txt", "--tokenizer", "bytes", "--overwrite")
    assert "a set is there, which is replaced" in out
    assert "refused" not in out
    assert "next: python pretokenize_dataset.py a.txt --tokenizer bytes --overwrite" in out


def test_a_run_that_would_be_refused_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], tokenizer_folder: Callable[[str], Path]
) -> None:
    (here / "a.txt").write_text("日本語" * 200_000, encoding="utf-8")
    arguments = ("a.txt", "--tokenizer", str(tokenizer_folder("mistral")), "--run-limit", "1MB")
    out = planned(capsys, *arguments)
    assert "refused    a.txt: from byte 0 on there is no place to cut at for more than 1 MB" in out
    assert "next:" not in out
    assert command(*arguments) == 2
    assert "a.txt: from byte 0 on there is no place to cut at" in capsys.readouterr().err
    assert "next:" in planned(capsys, *arguments[:-1], "2MB")


def test_the_time_is_told_as_what_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, expected in ((["--dedup", "lines"], True), (["--clean", "normalize"], True), ([], False)):
        out = planned(capsys, "a.txt", "--tokenizer", "bytes", *flags)
        (time,) = [line for line in out.splitlines() if line.split()[:1] == ["time"]]
        assert ("and what --clean and --dedup take before that" in time) == expected


def test_an_unfinished_attempt_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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
    assert "an unfinished attempt is there (" in planned(capsys, "a.txt", "--tokenizer", "bytes")
    (here / "a.txt").write_text(TEXT * 999)
    assert "holds an unfinished tokenization of another text" in planned(
        capsys, "a.txt", "--tokenizer", "bytes"
    )


def test_a_set_of_its_own_to_hold_out_and_limits(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "b.jsonl").write_text('{"text": "water"}\n' * 500)
    out = planned(
        *(capsys, "b.jsonl", "--val", "a.txt", "--tokenizer", "bytes", "--output", "mix"),
        *("--max-documents", "100"),
    )
    assert "plan: b.jsonl, 0.0 MB -> mix_train.npy" in out
    assert "tokens     about 600, as limited, if its beginning is like the samples" in out
    assert "plan: a.txt, 0.0 MB -> mix_validation.npy" in out
    assert out.endswith(
        "next: python pretokenize_dataset.py b.jsonl --val a.txt --tokenizer bytes --output mix "
        "--max-documents 100\n"
    )


@pytest.mark.parametrize(
    ("free", "told"),
    [(2 * MB, "TOO LITTLE, the command would refuse"), (9 * MB, None)],
)
def test_too_little_room_is_told_and_the_command_refuses(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    told: str | None,
) -> None:
    (here / "a.txt").write_text(TEXT * 100_000)
    for place in (plan, disk_space):
        monkeypatch.setattr(place, "free_bytes", lambda path: free)
    out = planned(capsys, "a.txt", "--tokenizer", "bytes")
    assert (told in out) if told else ("Make room" not in out)
    assert command("a.txt", "--tokenizer", "bytes") == (2 if told else 0)


def test_what_is_held_out_finds_the_room_that_the_text_leaves(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "a.txt").write_text(TEXT * 100_000)
    (here / "b.txt").write_text(TEXT * 30_000)
    monkeypatch.setattr(plan, "free_bytes", lambda path: 9 * MB)
    out = planned(capsys, "a.txt", "--val", "b.txt", "--tokenizer", "bytes", "--output", "mix")
    train, val = out.split("plan: b.txt")
    assert "TOO LITTLE" not in train
    assert "TOO LITTLE" in val


def test_what_cannot_be_planned_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("a.txt", "--train-tokenizer", "300", "--dry-run") == 2
    assert "--train-tokenizer is not trained yet" in capsys.readouterr().err
    assert not (here / "a.bpe300").exists()
    arguments = ["-", "--output", "x.npy", "--dry-run", "--tokenizer", "bytes"]
    done = subprocess.run(
        [sys.executable, pretokenize_dataset.__file__, *arguments],
        input="text",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "- is gone once it was looked at. Write it to a file, and plan that" in done.stderr


def test_ten_gigabytes_are_planned_in_seconds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("big.txt", "wb") as file:  # sparse: zeros are text too
        file.write(TEXT.encode() * 100_000)
        os.truncate("big.txt", 10**10)
    started = time.process_time()
    out = planned(capsys, "big.txt", "--tokenizer", "bytes")
    assert time.process_time() - started < 5
    assert "plan: big.txt, 10,000.0 MB" in out
    assert "tokens     10B +- 0 (95%, 0.00%), from 3.1 MB at 96 places" in out
