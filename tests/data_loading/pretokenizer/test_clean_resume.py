"""With --clean and --dedup too, a job killed anywhere goes on and ends in the same bytes and counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.pretokenizer import journal, writer
from data_loading.pretokenizer.cleaning.duplicates import Duplicates, _Pass
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import Options, pretokenize
from data_loading.text_io import byte_files, content_hash
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.set_files import SetFiles
from experiment_utils import atomic_files
from tests.data_loading.pretokenizer.test_resume import moments
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]
UNITS = ("lines", "documents")


def attempt(folder: Path, unit: str, point: str = "-", count: int = 0) -> str:
    """What the job says, in a process of its own that is killed when it comes to `point` that often."""
    said = folder / "said"
    pid = os.fork()
    if pid == 0:
        try:
            run(folder, unit, point, count, said)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (-signal.SIGKILL if count else 0)
    return said.read_text()


def run(folder: Path, unit: str, point: str, count: int, said: Path) -> None:
    content_hash.PIECE_BYTES, journal.SYNC_TOKENS = 700, 3000
    writer.CHECKSUM_BYTES, byte_files.READ_BYTES = 1000, 333
    seen = []

    def on_point(name: str) -> None:
        seen.extend([name] * (name == point))
        if count and len(seen) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    atomic_files.on_point = on_point
    paths = [str(folder / name) for name in ("a.txt", "b.txt")]
    source = open_inputs(paths, InputOptions(document_separator="-", clean="normalize", dedup=unit))
    with open(said, "w", buffering=1) as out:
        options = Options(workers=0, block_bytes=500)
        pretokenize(source, BytesTokenizer(), folder / "a.npy", options, lambda line: print(line, file=out))


def write_texts(folder: Path) -> Path:
    """Two files of documents, with repeated lines and documents, blanks and decomposed letters."""
    generator = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for name in "ab":
        lines = [
            f"e\u0301t\u00e9  {number} \t" * int(number % 7) for number in generator.integers(0, 300, 600)
        ]
        texts = ["\n".join(lines[start : start + 10]) for start in range(0, 600, 10)]
        (folder / f"{name}.txt").write_text("\n-\n".join([*texts, *texts[::3], "\x00"]))
    return folder


def files_of(output: Path) -> dict[str, Any]:
    files = SetFiles(output)
    manifest = json.loads(files.manifest.read_text())
    for source in manifest["sources"]:
        del source["mtime_ns"]
    return {"ids": files.tokens.read_bytes(), "documents": files.documents.read_bytes(), **manifest}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}

    def found(unit: str) -> dict[str, Any]:
        if unit not in known:
            folder = write_texts(tmp_path_factory.mktemp(unit))
            attempt(folder, unit)
            known[unit] = files_of(folder / "a.npy")
        return known[unit]

    return found


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("bits:before_rename", 1),
        pytest.param("found.json:before_rename", 1, marks=pytest.mark.slow),
        ("found.json:after_rename", 1),
        pytest.param("a.npy:appended", 3, marks=pytest.mark.slow),
        ("a.npy:noted", 9),
    ],
)
def test_killed_at_a_point_it_goes_on(
    unit: str,
    point: str,
    count: int,
    tmp_path: Path,
    undisturbed: Callable[[str], dict[str, Any]],
    golden: Golden,
) -> None:
    write_texts(tmp_path)
    attempt(tmp_path, unit, point, count)
    said = attempt(tmp_path, unit)
    golden.text(said, numbers=False)
    assert files_of(tmp_path / "a.npy") == undisturbed(unit)
    assert not (tmp_path / ".a.npy.partial").exists()
    counts = undisturbed(unit)["sources"][1]
    assert counts["duplicates"][unit] > 10
    assert counts["cleaned"]["documents"] == 1


def test_a_list_cut_short_is_made_again(tmp_path: Path, undisturbed: Callable[[str], dict[str, Any]]) -> None:
    write_texts(tmp_path)
    attempt(tmp_path, "lines", "a.npy:noted", 9)
    bits = tmp_path / ".a.npy.partial" / "duplicates" / "bits"
    bits.write_bytes(bits.read_bytes()[:-1])
    assert "known" not in attempt(tmp_path, "lines")
    assert files_of(tmp_path / "a.npy") == undisturbed("lines")


@pytest.mark.parametrize(
    "change", [{"dedup": "documents"}, {"dedup": None}, {"clean": None}, {"clean": "normalize-code"}]
)
def test_another_choice_is_refused_while_the_set_is_unfinished(
    change: dict[str, Any], tmp_path: Path, golden: Golden
) -> None:
    write_texts(tmp_path)
    attempt(tmp_path, "lines", "a.npy:noted", 9)
    before = (tmp_path / ".a.npy.partial" / "tokens.npy").read_bytes()
    asked = {"document_separator": "-", "clean": "normalize", "dedup": "lines", **change}
    source = open_inputs([str(tmp_path / name) for name in ("a.txt", "b.txt")], InputOptions(**asked))
    with golden.refused("unfinished-of-other"):
        pretokenize(source, BytesTokenizer(), tmp_path / "a.npy")
    assert (tmp_path / ".a.npy.partial" / "tokens.npy").read_bytes() == before
    said: list[str] = []
    pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options(overwrite=True), said.append)
    golden.text("\n".join(said), numbers=False)


def test_what_another_choice_found_is_not_used(tmp_path: Path, golden: Golden) -> None:
    write_texts(tmp_path)
    attempt(tmp_path, "lines", "found.json:after_rename", 1)
    found = attempt(tmp_path, "documents")
    golden.text(found, numbers=False)


def test_beginning_again_uses_nothing(tmp_path: Path, golden: Golden) -> None:
    write_texts(tmp_path)
    attempt(tmp_path, "lines", "found.json:after_rename", 1)
    said: list[str] = []
    asked = InputOptions(document_separator="-", clean="normalize", dedup="lines")
    source = open_inputs([str(tmp_path / name) for name in ("a.txt", "b.txt")], asked)
    pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options(overwrite=True), said.append)
    golden.text("\n".join(said), numbers=False)


def test_an_interruption_of_the_first_pass_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_texts(tmp_path)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(_Pass, "hashes", interrupted)
    source = open_inputs([str(tmp_path / "a.txt")], InputOptions(dedup="lines"))
    with pytest.raises(KeyboardInterrupt):
        pretokenize(source, BytesTokenizer(), tmp_path / "a.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]
    assert Duplicates("lines").first == []


@pytest.mark.parametrize(
    "kills", [pytest.param(6, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.soak)]
)
@pytest.mark.timeout(1200)
def test_killed_at_random_moments(kills: int, tmp_path: Path) -> None:
    """The real command with worker processes, killed in either pass; hashes spill in the first."""
    text = tmp_path / "a.txt"
    generator = np.random.default_rng(0)
    numbers = generator.integers(0, 400_000, 500_000).tolist()
    text.write_text("".join(f"{number}  e\u0301 {'water ' * (number % 5)}\n" for number in numbers))
    script = [sys.executable, str(ROOT / "pretokenize_dataset.py"), str(text), "--tokenizer", "bytes"]
    script += ["--clean", "normalize", "--dedup", "lines", "--dedup-memory", "16MB", "--workers", "2"]
    whole = subprocess.run([*script, "--output", str(tmp_path / "whole.npy")], capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    expected, killed, said = files_of(tmp_path / "whole.npy"), 0, ""
    for number, moment in enumerate(moments()):
        if killed == kills:
            break
        process = subprocess.Popen(script, stderr=subprocess.PIPE, text=True)
        if number % 2:  # in the second pass
            assert process.stderr is not None
            for line in process.stderr:
                said += line
                if line.startswith("tokenizing "):
                    break
        try:
            process.wait(moment / 4 if number % 2 else moment * 2)
        except subprocess.TimeoutExpired:
            process.kill()
            killed += 1
        said += process.communicate()[1]
        if process.returncode == 0:
            assert files_of(tmp_path / "a.npy") == expected
            for _, path in SetFiles(tmp_path / "a.npy").moves:
                path.unlink() if path.is_file() else None
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "a.npy") == expected
    assert killed == kills


@pytest.mark.slow
def test_memory_is_that_of_the_flag(tmp_path: Path) -> None:
    """Three million different lines would take 300 MB at once, and more as Python's own set."""
    text = tmp_path / "a.txt"
    with open(text, "w") as file:
        for start in range(0, 3_000_000, 100_000):
            file.write("".join(f"{number} {number * 7919}\n" for number in range(start, start + 100_000)))
    peaks = {}
    for size in ("16MB", "64MB"):
        script = [sys.executable, "-c", MEASURED, str(text), "--tokenizer", "bytes", "--workers", "0"]
        script += ["--dedup", "lines", "--dedup-memory", size, "--overwrite"]
        done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks[size] = int(done.stdout.split()[-1])
    assert peaks["16MB"] < 16 + 24
    assert peaks["64MB"] < 64 + 24


MEASURED = """
import re, sys, threading, time
from pathlib import Path
import pretokenize_dataset
from data_loading.pretokenizer.cleaning import duplicates

def anon():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

peak, is_done = 0, False
def watch():
    global peak
    while not is_done:
        peak = max(peak, anon())
        time.sleep(0.002)

find = duplicates.Duplicates._find
def measured(*arguments):
    global is_done
    before = anon()
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        find(*arguments)
    finally:
        is_done = True
        thread.join()
    print("peak", peak - before, file=sys.__stdout__)

duplicates.Duplicates._find = measured
sys.stdout = sys.stderr
sys.exit(pretokenize_dataset.main(sys.argv[1:]))
"""
