"""Benchmarks: the harness, child processes, and the texts and digests of the pretokenizer's measurements."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import corpora, harness, tokenizing
from benchmarks.processes import BENCHMARKS, LeftOut, MemoryLook, Turns, memory_limit, run
from benchmarks.tokenizing import DEFAULT, MIX, TOOLS, Taken
from benchmarks.tokenizing_peers import EOT_ID, digest, documents_of
from benchmarks.tokenizing_peers import TOOLS as PROGRAMS


def test_options_have_quick_values_unless_given() -> None:
    def of(*words: str) -> list[Any]:
        found = harness.options("doc", words, rounds=(5, 1), sizes=([1, 2], [3]), folder=Path, peer=bool)
        return [found.rounds, found.sizes, found.folder, found.peer]

    assert of() == [5, [1, 2], None, False]
    assert of("--quick") == [1, [3], None, False]
    assert of("--quick", "--rounds", "7", "--sizes", "8", "9", "--folder", "x") == [
        7,
        [8, 9],
        Path("x"),
        False,
    ]


def test_cases_take_turns_and_a_warm_up_does_not_count() -> None:
    calls: list[str] = []
    cases = {name: lambda name=name: calls.append(name) or len(calls) for name in "abc"}
    found = harness.in_turns(cases, rounds=4, warm_up=1)
    assert [len(taken) for taken in found.values()] == [4, 4, 4]
    rounds = [calls[start : start + 3] for start in range(0, 15, 3)]
    assert all(set(one) == set("abc") for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    assert min(value for taken in found.values() for value in taken) == 4


def test_ratios_are_of_one_round() -> None:
    found = harness.ratios([2.0, 20.0, 3.0], [1.0, 5.0, 1.0])
    assert found == {"median": 3.0, "min": 2.0, "max": 4.0, "n": 3}


@pytest.mark.parametrize(
    ("measured", "limits", "met"), [(2.0, {"at_least": 2}, True), (2.1, {"at_most": 2}, False)]
)
def test_goal_is_met_at_its_limit(measured: float, limits: dict[str, float], met: bool) -> None:
    assert harness.goal("x", measured, **limits)["met"] is met  # type: ignore[arg-type]


def test_quick_results_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    harness.save("x", {"a": 1}, harness.options("doc", ["--quick"]))
    assert list(tmp_path.iterdir()) == []
    harness.save("x", {"a": 1}, harness.options("doc", ["--provisional"]))
    found = json.loads((tmp_path / "x.json").read_text())
    assert (found["a"], found["benchmark"], found["provisional"]) == (1, "x", True)
    assert {"date", "machine", "versions", "load_average"} <= set(found)


def test_command_that_fails_is_an_error_with_its_output() -> None:
    with pytest.raises(RuntimeError, match=r"\b3:\nwhy"):
        run([sys.executable, "-c", "print('why'); raise SystemExit(3)"])
    assert run([sys.executable, "-c", "raise SystemExit(3)"], code=3).output == ""


HOLD = """
import os, subprocess, sys
is_child = len(sys.argv) > 1
held = bytearray(os.urandom(1 << 20)) * (120 if is_child else 60)
file = os.memfd_create("x"); os.write(file, memoryview(held)[:40 << 20])
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
grandchild = ["sh", "-c", f"{sys.executable} {sys.argv[0]} child; true"]
child = None if is_child else subprocess.Popen(grandchild, **pipes)
if child: child.stdout.readline()
print("ready", flush=True); sys.stdin.read()
if child: child.communicate()
"""


def test_memory_of_all_processes_is_seen(tmp_path: Path) -> None:
    (tmp_path / "hold.py").write_text(HOLD)
    look, pipe = MemoryLook(), subprocess.PIPE
    process = subprocess.Popen([sys.executable, "hold.py"], cwd=tmp_path, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    process.stdout.readline()
    look(process.pid)
    process.communicate()
    assert 60 + 120 + 2 * 40 < look.peak / 2**20 < 330


def test_command_is_looked_at_while_it_lives() -> None:
    seen: list[int] = []
    run([sys.executable, "-c", "import time; time.sleep(1)"], look=seen.append, every_s=0.1)
    assert len(set(seen)) == 1


CHILD = """
import sys
from benchmarks.processes import Turn
turn = Turn()
print("noise")
for number in range(3):
    turn.end_step(number=number)
raise SystemExit("done")
"""


def test_process_steps_on_request(root: Path) -> None:
    turns = Turns([sys.executable, "-c", CHILD])
    assert [turns.first["number"], turns.step()["number"], turns.step()["number"]] == [0, 1, 2]
    with pytest.raises(LeftOut, match=r"\b1: done"):
        turns.step()
    assert "noise" in turns.log()
    turns.end()


def test_killed_process_is_left_out() -> None:
    turns = Turns([sys.executable, "-c", CHILD])
    turns.process.kill()
    turns.process.wait()
    with pytest.raises(LeftOut, match="-9"):
        turns.step()
    turns.end()


def test_no_limit_is_no_cgroup() -> None:
    with memory_limit(None) as before:
        assert before == []


@pytest.mark.privileged
def test_command_under_a_limit_cannot_hold_more() -> None:
    command = [sys.executable, "-c", "import sys; print(len(bytearray(b'x') * (int(sys.argv[1]) << 20)))"]
    try:
        with memory_limit(100 << 20) as before:
            run([*before, *command, "20"])
            run([*before, *command, "300"], code=-9)
    except LeftOut as error:
        pytest.skip(str(error))


def test_tools_have_programs_and_ours_is_a_command_that_works(tmp_path: Path) -> None:
    used = {tool.program for tool in TOOLS.values()}
    assert used == {name for name in PROGRAMS if not name.startswith("bare")}
    (tmp_path / "mix.txt").write_text("one two\n<|endoftext|>\nthree\n")
    run(TOOLS[DEFAULT].command(Path(sys.executable), tmp_path / "mix", tmp_path, Path("bytes"), 1))
    assert json.loads((tmp_path / "tokens.npy.json").read_text())["documents"] == 2
    script = BENCHMARKS / "tokenizing_peers.py"
    assert run([sys.executable, script, "ours", "--digest", tmp_path], errors=False).json["tokens"] > 0


@given(
    documents=st.lists(st.lists(st.integers(0, EOT_ID - 1), min_size=1, max_size=5), max_size=6),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    dtype=st.sampled_from(["<u2", "<i4", "<i8"]),
)
def test_digest_does_not_depend_on_order_pieces_and_dtype(
    documents: list[list[int]], cuts: list[int], dtype: str
) -> None:
    def written(given: list[list[int]]) -> np.ndarray:
        return np.array([token for ids in given for token in (*ids, EOT_ID)], dtype)

    found = digest(np.split(written(documents[::-1]), sorted(cuts)))
    assert found == digest([written(documents).astype("<u4")])
    assert (found["documents"], found["tokens"]) == (len(documents), sum(map(len, documents)))


def test_another_id_or_border_is_another_digest() -> None:
    def of(*ids: int) -> str:
        return str(digest([np.array(ids, "<u2")])["digest"])

    assert len({of(1, 2, EOT_ID), of(1, 3, EOT_ID), of(1, EOT_ID, 2, EOT_ID), of(2, 1, EOT_ID)}) == 4


def test_texts_out_of_a_package(tmp_path: Path) -> None:
    files = {
        "./usr/share/doc/a.html": b"<p>One &amp; two</p><script>no()</script><p>three",
        "./usr/share/man/man1/b.1.gz": gzip.compress(b".TH B"),
        "./usr/lib/c.so": b"binary",
        "./usr/share/doc/d.txt": b"\xff not UTF-8",
        "./usr/src/e.tar.xz": _tar({"linux/kernel/f.c": b"int f;", "linux/asic_reg/g.h": b"#define"}),
    }
    deb = tmp_path / "x.deb"
    deb.write_bytes(b"!<arch>\n" + _member("debian-binary", b"2.0") + _member("data.tar.xz", _tar(files)))
    found = dict(corpora.texts(deb))
    assert list(found) == ["./usr/share/doc/a.html", "./usr/share/man/man1/b.1.gz", "linux/kernel/f.c"]
    assert found["./usr/share/doc/a.html"].split() == ["One", "&", "two", "three"]
    assert found["./usr/share/man/man1/b.1.gz"] == ".TH B"


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, data in files.items():
            facts = tarfile.TarInfo(name)
            facts.size = len(data)
            archive.addfile(facts, io.BytesIO(data))
    return buffer.getvalue()


def _member(name: str, data: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
    return header + data + b"\n" * (len(data) % 2)


def test_repeated_text_is_left_out() -> None:
    seen: set[bytes] = set()
    long = "a line of many characters, long enough\n"
    assert corpora._fresh(long + "short\n", seen, whole=False) == long + "short\n"
    assert corpora._fresh(long + "short\nnew\n", seen, whole=False) == "short\nnew\n"
    assert corpora._fresh(corpora.SEPARATOR, seen, whole=True) == ""
    assert [corpora._fresh("int x;", seen, whole=True) for _ in range(2)] == ["int x;", ""]


def test_both_forms_of_a_prefix_hold_the_same_documents(tmp_path: Path) -> None:
    texts = [f"document {number}\r\nand its end\n" for number in range(50)]
    (tmp_path / "mix.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    path = corpora.prefix(tmp_path, "mix", 10**6)
    assert list(documents_of(path.with_suffix(".txt"))) == texts
    assert tokenizing.text_bytes(path) == sum(map(len, texts))
    tokenizing.split(path.with_suffix(".jsonl"), tmp_path / "parts", 3)
    parts = sorted((tmp_path / "parts").iterdir())
    assert b"".join(part.read_bytes() for part in parts) == path.with_suffix(".jsonl").read_bytes()
    assert all(part.stat().st_size for part in parts)


def test_ratios_and_goals_of_the_pretokenizer() -> None:
    factors, tiktoken = (1, 2, 3), "tiktoken, process pool"
    found = {
        (MIX, name): [Taken(factor * seconds, 4.0, 10, 4_000_000) for factor in factors]
        for name, seconds in ((DEFAULT, 2.0), (tiktoken, 22.0))
    }
    starts = {name: Taken(1.0, 1.0, 1, 1) for _, name in found}
    rows = tokenizing.rows_of(found, starts)
    row = next(row for row in rows if row["tool"] == tiktoken)
    assert row[f"{DEFAULT} / this"]["median"] == 11.0  # of one round, though the rounds differ
    assert row[f"{DEFAULT} / this, both without their start"] == 14.33  # (44 - 1) / (4 - 1)
    met = {goal["what"]: goal["met"] for goal in tokenizing.goals(rows, 0.9)}
    assert met[f"{DEFAULT} / {tiktoken}, mix"]
