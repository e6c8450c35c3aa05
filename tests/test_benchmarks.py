"""What can be wrong in silence in the benchmark of the pretokenizer: digests, samples, sums, commands."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import corpora
from benchmarks.tokenizing import _split
from benchmarks.tokenizing import parser as options_parser
from benchmarks.tokenizing_parts import figures, packages, report
from benchmarks.tokenizing_parts.tools import DEFAULT, GIGATOKEN, PEERS, TOOLS, Tool
from benchmarks.tokenizing_parts.whole_command import Measured, run
from benchmarks.tokenizing_peers.peer import EOT_ID, digest, documents_of

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_each_tool_has_a_command_whose_script_is_there(tool: Tool, tmp_path: Path) -> None:
    python = Path("python-of-the-peers")
    command = tool.command(python, tmp_path / "mix-1MB", tmp_path / "out", tmp_path / "gpt2", 2)
    script = Path(command[1])
    assert script.is_file()
    assert all(isinstance(part, str) for part in command)
    assert any(part.startswith(str(tmp_path / "mix-1MB")) for part in command)
    assert Path(tool.digest_command(python, tmp_path)[1]).is_file()
    if not tool.is_ours:
        compile(script.read_text(), str(script), "exec")


def test_ours_is_a_command_that_works(tmp_path: Path) -> None:
    text = "one two\n<|endoftext|>\nthree\n"
    (tmp_path / "mix.txt").write_text(text)
    tool = next(tool for tool in TOOLS if tool.name == DEFAULT)
    command = tool.command(Path(sys.executable), tmp_path / "mix", tmp_path, Path("bytes"), 1)
    subprocess.run(command, check=True, capture_output=True)
    assert json.loads((tmp_path / "tokens.npy.json").read_text())["documents"] == 2


@given(
    documents=st.lists(st.lists(st.integers(0, EOT_ID - 1), min_size=1, max_size=5), max_size=6),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    dtype=st.sampled_from(["<u2", "<i4", "<i8"]),
)
def test_a_digest_does_not_depend_on_order_pieces_and_dtype(
    documents: list[list[int]], cuts: list[int], dtype: str
) -> None:
    def written(given: list[list[int]]) -> np.ndarray:
        return np.array([token for ids in given for token in (*ids, EOT_ID)], dtype)

    pieces = np.split(written(documents[::-1]), sorted(cut for cut in cuts if cut <= 40))
    found = digest(pieces)
    assert found == digest([written(documents).astype("<u4")])
    assert found["documents"] == len(documents)
    assert found["tokens"] == sum(map(len, documents))


def test_another_id_or_another_border_is_another_digest() -> None:
    def of(*ids: int) -> str:
        return str(digest([np.array(ids, "<u2")])["digest"])

    assert len({of(1, 2, EOT_ID), of(1, 3, EOT_ID), of(1, EOT_ID, 2, EOT_ID), of(2, 1, EOT_ID)}) == 4
    assert of(1, EOT_ID, 1, EOT_ID) != of(1, EOT_ID)


def test_texts_out_of_a_package(tmp_path: Path) -> None:
    page = b"<p>One &amp; two</p><script>no()</script><p>three"
    files = {
        "./usr/share/doc/a.html": page,
        "./usr/share/man/man1/b.1.gz": gzip.compress(b".TH B"),
        "./usr/lib/c.so": b"binary",
        "./usr/share/doc/d.txt": b"\xff not UTF-8",
        "./usr/src/e.tar.xz": _tar({"linux/kernel/f.c": b"int f;", "linux/asic_reg/g.h": b"#define"}, "w:xz"),
    }
    data = _tar(files, "w:xz")
    deb = tmp_path / "x.deb"
    deb.write_bytes(b"!<arch>\n" + _member("debian-binary", b"2.0") + _member("data.tar.xz", data))
    found = dict(packages.texts(deb))
    assert list(found) == ["./usr/share/doc/a.html", "./usr/share/man/man1/b.1.gz", "linux/kernel/f.c"]
    assert found["./usr/share/doc/a.html"].split() == ["One", "&", "two", "three"]
    assert found["./usr/share/man/man1/b.1.gz"] == ".TH B"


def _tar(files: dict[str, bytes], mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            facts = tarfile.TarInfo(name)
            facts.size = len(data)
            archive.addfile(facts, io.BytesIO(data))
    return buffer.getvalue()


def _member(name: str, data: bytes) -> bytes:
    return (
        f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        + data
        + b"\n" * (len(data) % 2)
    )


def test_what_was_there_before_is_left_out() -> None:
    seen: set[bytes] = set()
    long = "a line of many characters, long enough\n"
    assert corpora._fresh(long + "short\n", seen, whole=False) == long + "short\n"
    assert corpora._fresh(long + "short\nnew\n", seen, whole=False) == "short\nnew\n"
    assert corpora._fresh(corpora.SEPARATOR, seen, whole=True) == ""
    assert (corpora._fresh("int x;", seen, whole=True), corpora._fresh("int x;", seen, whole=True)) == (
        "int x;",
        "",
    )


def test_both_forms_of_a_prefix_hold_the_same_documents(tmp_path: Path) -> None:
    texts = [f"document {number}\r\nand its end\n" for number in range(50)]
    (tmp_path / "mix.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    path = corpora.prefix(tmp_path, "mix", 10**6)
    assert list(documents_of(path.with_suffix(".txt"))) == texts
    assert report.text_bytes(path) == sum(map(len, texts))
    _split(path.with_suffix(".jsonl"), tmp_path / "parts", 3)
    parts = sorted((tmp_path / "parts").iterdir())
    assert b"".join(part.read_bytes() for part in parts) == path.with_suffix(".jsonl").read_bytes()
    assert all(part.stat().st_size for part in parts)


def test_memory_of_all_processes_is_seen(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "is_child = len(sys.argv) > 1\n"
        "held = bytearray(os.urandom(1 << 20)) * (120 if is_child else 60)\n"
        "file = os.memfd_create('x'); os.write(file, memoryview(held)[:40 << 20])\n"
        "if is_child: print('ready', flush=True); sys.stdin.read(); sys.exit()\n"
        "pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}\n"
        "grandchild = ['sh', '-c', f'{sys.executable} {sys.argv[0]} child; true']\n"
        "child = subprocess.Popen(grandchild, **pipes)\n"
        "child.stdout.readline(); time.sleep(1.5); child.communicate()\n"
    )
    (tmp_path / "hold.py").write_text(code)
    found = run([sys.executable, "hold.py"], tmp_path)
    assert 60 < found.parent_peak_bytes / 2**20 < 110
    assert 120 < found.worker_peak_bytes / 2**20 < 170
    assert 60 + 120 + 2 * 40 < found.peak_bytes / 2**20 < 330
    assert found.wall_s > 1.4


def test_a_command_that_fails_is_an_error_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exited with 3:\nwhy"):
        run([sys.executable, "-c", "print('why'); raise SystemExit(3)"], tmp_path)


def test_a_result_is_what_the_page_is_written_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text"
    text.with_suffix(".jsonl").write_text('{"text": "a"}\n')
    text.with_suffix(".txt").write_text("a" * 4_000_000)
    kinds = dict.fromkeys(corpora.PACKAGES, text)
    bare = {"wall_s": 1.0, "cpu_s": 2.0, "tokens": 1, "bytes": 4_000_000}
    rounds = []
    for factor in (1, 2, 3):
        each = {tool.name: Measured(2.0 * factor, 4.0, 10, 5, 5, "") for tool in TOOLS}
        each["tiktoken, process pool"] = Measured(8.0 * factor, 4.0, 10, 5, 5, "")
        measured = {
            name: {**each, "bare fastokens": bare, "bare gigatoken": bare} for name in (*kinds, "mix")
        }
        rounds.append({**measured, "bytes": dict.fromkeys((*kinds, "mix"), 4_000_000)})
    facts = {"bytes_by_kind": {"english": 1}, "text_bytes": 1, "distinct_words_share": 0.1}
    found = report.result(
        options_parser().parse_args([]),
        {"suite": "x", "packages": {}, "corpora": dict.fromkeys((*kinds, "mix"), facts)},
        Path(sys.executable),
        dict.fromkeys(("all", "part", "prefix"), text),
        kinds,
        {tool.name: Measured(1.0, 1.0, 1, 1, 1, "") for tool in TOOLS},
        rounds,
        {
            "ours_equals_the_reference_on_the_prefix": True,
            "tools": {
                tool.name: {"same_ids": tool.name != "datatrove", "tokens": 1, "tokens_of_ours": 2}
                for tool in TOOLS
            },
        },
    )
    row = next(row for row in found["rows"] if row["tool"].startswith("tiktoken") and row["corpus"] == "mix")
    assert row[f"{DEFAULT} / this"]["median"] == 4.0  # of one round, though the rounds differ
    assert row[f"{DEFAULT} / this, both without their start"] == 5.0  # (16 - 1) / (4 - 1)
    met = {goal["what"]: goal["met"] for goal in found["goals"]}
    assert met[f"{DEFAULT} / tiktoken, process pool, mix"]
    assert not met[f"{GIGATOKEN} / tiktoken, process pool, mix"]
    said = {
        "date": "2000-01-01",
        "machine": {"cpu": "x", "cores": 2},
        "versions": {"torch": "2", "python": "3"},
    }
    monkeypatch.setattr(figures, "read", lambda name: json.loads(json.dumps({**found, **said})))
    page = figures.speed()
    assert "| mix | tiktoken, process pool | 4 | 0.2 | 4.0 | 0 | 4.0 (5.0) | 4.0 (5.0) | yes |" in page
    assert "but for datatrove (1 tokens for 2" in page


def test_the_scripts_of_peers_are_all_used() -> None:
    used = {tool.script for tool in TOOLS if tool.script}
    assert {path.name for path in PEERS.glob("*.py")} == used | {"peer.py", "ours.py"}
