"""The engine works while it is compared: nothing counts before the ids are found equal."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.pretokenizer import make_set as making
from data_loading.pretokenizer.engines import parity
from data_loading.pretokenizer.engines.registry import chosen_before
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.journal import read_engine, read_job, read_progress, write_engine
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.writer import SetWriter
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.read_files import read_tokenizer
from tests.data_loading.conftest import training_text
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("".join(training_text()) * 12)
    return path


@pytest.fixture
def gpt2(tokenizer_folder: Callable[[str], Path]) -> Path:
    return tokenizer_folder("gpt2")


def test_the_set_is_the_one_of_comparing_first(text: Path, gpt2: Path) -> None:
    at_once, _ = make(text, gpt2)
    before, _ = make(text, gpt2, "b.npy", workers=0)
    assert at_once.path.read_bytes() == before.path.read_bytes()
    assert at_once.manifest == before.manifest
    assert at_once.manifest["engine"]["compared_bytes"] > 200_000


def make(text: Path, folder: Path, output: str = "a.npy", workers: int = 2) -> tuple[Result, list[str]]:
    said: list[str] = []
    options = Options(workers=workers, block_bytes=20_000)
    tokenizer = read_tokenizer(folder, "gpt2")
    result = pretokenize(TextFile(text), tokenizer, text.with_name(output), options, said.append)
    return result, said


difference = parity.difference_on


def late(*given: Any) -> str | None:
    time.sleep(0.7)
    return difference(*given)


def wrong_at_first(*given: Any) -> str | None:
    """In the thread of the comparison; the one before the work is in the main thread."""
    return difference(*given) if threading.current_thread() is threading.main_thread() else "other"


@pytest.mark.parametrize("compare", [difference, late])
def test_the_result_is_waited_for(
    compare: Callable[..., str | None], text: Path, gpt2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = []
    original = parity.Comparison.settle

    def noted(self: parity.Comparison) -> None:
        original(self)
        settled.append(self.is_done)

    monkeypatch.setattr(parity.Comparison, "settle", noted)
    monkeypatch.setattr(parity, "difference_on", compare)
    make(text, gpt2)
    assert settled == [True]


def test_other_ids_end_the_work_and_the_engines_are_compared_again(
    text: Path, gpt2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    original = making._make

    def noted(job: making.Job, *, at_once: bool) -> dict[str, object]:
        made.append(at_once)
        return original(job, at_once=at_once)

    monkeypatch.setattr(making, "_make", noted)
    monkeypatch.setattr(parity, "difference_on", wrong_at_first)
    result, _ = make(text, gpt2)
    assert made == [True, False]
    monkeypatch.undo()
    assert result.path.read_bytes() == make(text, gpt2, "b.npy")[0].path.read_bytes()


def test_an_error_of_the_comparison_is_one_of_the_command(
    text: Path, gpt2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*given: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(parity, "difference_on", failing)
    with pytest.raises(MemoryError):
        make(text, gpt2)
    assert not text.with_name("a.npy").exists()


@pytest.mark.slow
def test_an_engine_that_does_not_take_the_tokenizer(
    text: Path, tokenizer_folder: Callable[[str], Path], golden: Golden
) -> None:
    """The reference encodes, or the choice is refused."""
    folder = tokenizer_folder("wordpiece")
    result, said = make(text, folder)
    assert result.manifest["engine"]["name"] == "huggingface"
    golden.text("\n".join(said), numbers=False)
    with golden.refused("engine-refused"):
        pretokenize(
            TextFile(text), read_tokenizer(folder, "wordpiece"), text.with_name("c.npy"),
            Options(workers=1, engine="fastokens"),
        )  # fmt: skip


KILLED = """
import os, signal, sys
from pathlib import Path
from experiment_utils import atomic_files
from data_loading.pretokenizer.engines import parity
from tests.data_loading.pretokenizer.test_comparison import late, make

noted = []
def on_point(name):
    noted.append(name)
    if noted.count("a.npy:noted") == 5:
        os.kill(os.getpid(), signal.SIGKILL)

atomic_files.on_point = on_point
parity.difference_on = late
make(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_what_was_made_before_the_verdict_does_not_count(text: Path, gpt2: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(text), str(gpt2)]
    assert subprocess.run(command, cwd=ROOT).returncode == -signal.SIGKILL
    partial = text.with_name(".a.npy.partial")
    assert (partial / "tokens.npy").stat().st_size > 10_000
    assert read_job(partial) is not None
    assert read_progress(partial, np.dtype("<u2"))[0].written.tokens == 0
    assert read_engine(partial) == {}
    result, _ = make(text, gpt2)
    assert result.path.read_bytes() == make(text, gpt2, "b.npy")[0].path.read_bytes()


@pytest.mark.slow
def test_a_disk_that_is_full_before_the_verdict_keeps_nothing(
    text: Path, gpt2: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    append, room = SetWriter.append, 3

    def nearly_full(writer: SetWriter, block: Any) -> int:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, "")
        return append(writer, block)

    monkeypatch.setattr(parity, "difference_on", late)
    monkeypatch.setattr(SetWriter, "append", nearly_full)
    with golden.refused("disk-full"):
        make(text, gpt2)
    assert not text.with_name(".a.npy.partial").exists()


@pytest.mark.slow
def test_an_engine_that_was_proven_is_not_compared_again(
    text: Path, gpt2: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """After a kill; unless it is another version now."""
    whole, _ = make(text, gpt2, "b.npy")
    command = [sys.executable, "-c", KILLED, str(text), str(gpt2)]
    assert subprocess.run(command, cwd=ROOT).returncode == -signal.SIGKILL
    partial = text.with_name(".a.npy.partial")
    write_engine(partial, whole.manifest["engine"])
    facts = read_engine(partial)
    tokenizer = read_tokenizer(gpt2, "gpt2")
    assert chosen_before(facts, tokenizer, "auto") is not None
    assert chosen_before({**facts, "version": "0"}, tokenizer, "auto") is None
    assert chosen_before({**facts, "reference": "huggingface 0"}, tokenizer, "auto") is None
    assert chosen_before(facts, tokenizer, "huggingface") is None
    monkeypatch.setattr(making, "choose_engine", None)
    result, said = make(text, gpt2)
    golden.text("\n".join(said), numbers=False)
    assert result.path.read_bytes() == whole.path.read_bytes()
    assert result.manifest == whole.manifest


def test_a_set_that_counts_names_its_engine(text: Path, gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Path] = []
    monkeypatch.setattr(making, "write_engine", lambda folder, facts: noted.append(facts["name"]))
    make(text, gpt2)
    make(text, gpt2, "b.npy", workers=0)
    assert noted == ["fastokens", "fastokens"]
