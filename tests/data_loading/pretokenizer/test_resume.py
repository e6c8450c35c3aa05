"""Killed anywhere and started again, the job goes on and ends in the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.pretokenizer import journal, writer
from data_loading.pretokenizer.blocks import Block, make_blocks
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.sources.stdlib import StdlibSource
from data_loading.text_io import byte_files, content_hash
from data_loading.text_io.chunks import Chunk
from data_loading.text_io.content_hash import ContentHash, file_content_hash
from data_loading.text_io.source import Pieces
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.cutting.cuts import EVERY_CHARACTER, CutRule
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.set_files import SetFiles
from experiment_utils import atomic_files
from tests.golden_text import Golden
from tests.searched import examples

ROOT = Path(__file__).resolve().parents[3]
AT_SPACES = CutRule(before=(0x20,))
DROPPING = CutRule(before=(0x20,), drop_space=True)
WORDS = ("water", "rose ", "\n", "SEP", "\nSEP\n", "é", "  ", "x" * 30, "\r\n")


def text_of(chunks: list[Chunk]) -> list[bytes]:
    """Documents as bytes, the last one open where nothing ended it."""
    found = [b""]
    for chunk in chunks:
        found[-1] += chunk.data
        if chunk.ends_document:
            found.append(b"")
    return found


some_text = st.lists(st.sampled_from(WORDS), min_size=1, max_size=60).map("".join)


class TestSources:
    @settings(max_examples=examples(60))
    @given(
        text=some_text,
        read=st.integers(1, 40),
        separator=st.sampled_from([None, "SEP"]),
        encoding=st.sampled_from(["utf-8", "utf-16", "latin-1"]),
        piece=st.integers(3, 50),
    )
    def test_any_chunk_is_a_place_to_go_on(
        self, text: str, read: int, separator: str | None, encoding: str, piece: int, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.txt"
        path.write_bytes(text.encode(encoding))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(byte_files, "READ_BYTES", read)
            patch.setattr(content_hash, "PIECE_BYTES", piece)
            pieces = Pieces()
            source = TextFile(path, encoding, "strict", separator)
            whole = list(source.chunks(None, pieces))
            expected = source.facts()
            for number, chunk in enumerate(whole):
                again = TextFile(path, encoding, "strict", separator)
                mark = json.loads(json.dumps(chunk.mark))
                assert text_of(list(again.chunks(mark, pieces))) == text_of(whole[number:])
                assert again.facts() == expected
            assert file_content_hash(path) == expected[0]["content_hash"]

    def test_the_standard_library(self, tmp_path: Path) -> None:
        for name in "abc":
            (tmp_path / f"{name}.py").write_text(f"{name} = 1")
        whole = list(StdlibSource(tmp_path).chunks())
        again = StdlibSource(tmp_path)
        assert list(again.chunks(whole[1].mark)) == whole[1:]
        assert again.facts() == StdlibSource(tmp_path).facts()


class TestContentHash:
    @given(data=st.binary(max_size=200), piece=st.integers(1, 40), parts=st.data())
    def test_it_is_the_same_from_any_known_piece_on(
        self, data: bytes, piece: int, parts: st.DataObject
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(content_hash, "PIECE_BYTES", piece)
            found: list[str] = []
            whole = ContentHash(on_piece=found.append)
            whole.update(data)
            known = found[: parts.draw(st.integers(0, len(found)))]
            later = ContentHash(known)
            at = parts.draw(st.integers(0, len(known) * piece))
            later.skip_to(at)
            while at < len(data):
                size = parts.draw(st.integers(1, 50))
                later.update(data[at : at + size])
                at += size
            assert later.hexdigest() == whole.hexdigest()

    def test_another_byte_another_hash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(content_hash, "PIECE_BYTES", 4)
        hashes = set()
        for data in (b"", b"abcd", b"abcde", b"abcdefgh", b"efghabcd", b"abcdefgx"):
            content = ContentHash()
            content.update(data)
            hashes.add(content.hexdigest())
        assert len(hashes) == 6

    def test_digests_outlive_the_process_and_a_torn_line(self, tmp_path: Path) -> None:
        path = tmp_path / "pieces.jsonl"
        pieces = Pieces(path)
        for file in (0, 1):
            content = pieces.content_hash(file)
            content.update(bytes([file]) * (content_hash.PIECE_BYTES + 10))
        with open(path, "ab") as out:
            out.write(b'\n[0, 1, "ab')
        for file in (0, 1):
            again = Pieces(path).content_hash(file)
            assert again.known_bytes == content_hash.PIECE_BYTES
            again.skip_to(content_hash.PIECE_BYTES)
            again.update(bytes([file]) * 10)
            whole = ContentHash()
            whole.update(bytes([file]) * (content_hash.PIECE_BYTES + 10))
            assert again.hexdigest() == whole.hexdigest()


class TestBlocks:
    @given(
        text=some_text,
        read=st.integers(1, 40),
        block=st.integers(1, 60),
        rule=st.sampled_from([AT_SPACES, EVERY_CHARACTER, DROPPING]),
        separator=st.sampled_from([None, "SEP"]),
    )
    def test_what_follows_a_block_begins_at_its_place(
        self, text: str, read: int, block: int, rule: CutRule, separator: str | None, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.txt"
        path.write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(byte_files, "READ_BYTES", read)

            def blocks(mark: Any, skip: int) -> list[Block]:
                chunks = TextFile(path, document_separator=separator).chunks(mark)
                return list(make_blocks(chunks, rule, block, skip=skip))

            whole = blocks(None, 0)
            for number, found in enumerate(whole):
                assert found.after is not None
                again = blocks(found.after.mark, found.after.skip)
                assert [b.chunks and _spelt(b) for b in again] == [_spelt(b) for b in whole[number + 1 :]]


def _spelt(block: Block) -> list[tuple[bytes, int, bool]]:
    return [(chunk.data, chunk.offset, chunk.ends_document) for chunk in block.chunks]


def attempt(text: Path, point: str = "-", count: int = 0, workers: int = 0) -> str:
    """What the job says, in a process of its own that is killed when it comes to `point` that often."""
    with tempfile.TemporaryFile("w+") as said:
        pid = os.fork()
        if pid == 0:
            try:
                run(text, point, count, workers, said)
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (-signal.SIGKILL if count else 0)
        said.seek(0)
        return said.read()


def run(text: Path, point: str, count: int, workers: int, said: TextIO) -> None:
    content_hash.PIECE_BYTES, journal.SYNC_TOKENS, writer.CHECKSUM_BYTES = 700, 3000, 1000
    seen = []

    def on_point(name: str) -> None:
        seen.extend([name] * (name == point))
        if count and len(seen) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    atomic_files.on_point = on_point
    options = Options(workers=workers, block_bytes=500)
    source = TextFile(text, document_separator="-")
    tell = partial(print, file=said, flush=True)
    pretokenize(source, BytesTokenizer(), text.with_suffix(".npy"), options, tell)


def write_text(path: Path) -> Path:
    generator = np.random.default_rng(0)
    lines = [b"water " * generator.integers(0, 30) for _ in range(300)]
    path.write_bytes(b"\n".join(b"-" if i % 20 == 7 else line for i, line in enumerate(lines)))
    return path


def files_of(output: Path) -> dict[str, Any]:
    files = SetFiles(output)
    manifest = json.loads(files.manifest.read_text())
    tokenizer = {path.name: path.read_bytes() for path in files.tokenizer.iterdir()}
    return {
        "tokens": files.tokens.read_bytes(),
        "documents": files.documents.read_bytes(),
        **tokenizer,
        **{k: v for k, v in manifest.items() if k != "sources"},
        "content": [source["content_hash"] for source in manifest["sources"]],
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    text = write_text(tmp_path_factory.mktemp("undisturbed") / "a.txt")
    attempt(text)
    return files_of(text.with_suffix(".npy"))


@pytest.mark.parametrize("point", ["a.npy:appended", "a.npy:noted", "journal.json:before_rename"])
@pytest.mark.parametrize("count", [2, 17])
def test_killed_at_a_point_it_goes_on(
    point: str, count: int, tmp_path: Path, undisturbed: dict[str, Any], golden: Golden
) -> None:
    text = write_text(tmp_path / "a.txt")
    attempt(text, point, 2 if "json" in point else count, workers=2 if count > 2 else 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.npy.lock", ".a.npy.partial", "a.txt"]
    said = attempt(text)
    golden.text(said, numbers=False)
    assert files_of(text.with_suffix(".npy")) == undisturbed
    assert not (tmp_path / ".a.npy.partial").exists()


def test_killed_again_and_again(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    text = write_text(tmp_path / "a.txt")
    tokens = []
    for number in range(5):
        attempt(text, "a.npy:appended" if number % 2 else "a.npy:noted", 5)
        tokens.append(journal.read_progress(tmp_path / ".a.npy.partial", np.dtype("<u2"))[0].written.tokens)
    assert tokens == sorted(set(tokens)), "each attempt adds to what was there"
    attempt(text)
    assert files_of(text.with_suffix(".npy")) == undisturbed


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes as in `run`."""
    monkeypatch.setattr(content_hash, "PIECE_BYTES", 700)
    monkeypatch.setattr(writer, "CHECKSUM_BYTES", 1000)


def made_in_part(text: Path, count: int = 9) -> Path:
    attempt(write_text(text), "a.npy:noted", count)
    return text.with_name(".a.npy.partial")


def finish(text: Path, **options: Any) -> list[str]:
    said: list[str] = []
    source = TextFile(text, document_separator="-")
    pretokenize(source, BytesTokenizer(), text.with_suffix(".npy"), Options(**options), said.append)
    return said


@pytest.mark.usefixtures("small_pieces")
def test_nothing_is_encoded_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from data_loading.pretokenizer.blocks import BlockEncoder

    text = tmp_path / "a.txt"
    partial = made_in_part(text)
    done, _ = journal.read_progress(partial, np.dtype("<u2"))
    encoded = []
    encode = BlockEncoder.encode

    def counting(self: BlockEncoder, block: Block) -> Any:
        found = encode(self, block)
        encoded.append(len(found.ids))
        return found

    monkeypatch.setattr(BlockEncoder, "encode", counting)
    finish(text, block_bytes=500)
    assert sum(encoded) + done.written.tokens == len(np.load(tmp_path / "a.npy"))
    assert done.written.tokens > 3000


class TestDamage:
    def test_a_torn_line(self, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
        partial = made_in_part(tmp_path / "a.txt")
        newest = max(partial.glob("blocks.*.jsonl"), key=lambda path: int(path.name.split(".")[1]))
        newest.write_bytes(newest.read_bytes()[:-20])
        attempt(tmp_path / "a.txt")
        assert files_of(tmp_path / "a.npy") == undisturbed

    @pytest.mark.parametrize("name", ["tokens.npy", "docs.npy"])
    @pytest.mark.parametrize("how", ["zeros", "short"])
    def test_data_that_never_reached_the_disk(
        self, name: str, how: str, tmp_path: Path, undisturbed: dict[str, Any]
    ) -> None:
        """As a power cut leaves it: lines tell of data that are not there."""
        partial = made_in_part(tmp_path / "a.txt", 14)
        state = json.loads((partial / "journal.json").read_text())["written"]
        synced = {"tokens.npy": 128 + 2 * state["tokens"], "docs.npy": 128 + 8 * state["documents"]}[name]
        data = (partial / name).read_bytes()
        assert len(data) > synced
        lost = b"" if how == "short" else bytes(len(data) - synced)
        (partial / name).write_bytes(data[:synced] + lost)
        attempt(tmp_path / "a.txt")
        assert files_of(tmp_path / "a.npy") == undisturbed

    def test_without_its_state_it_begins_again(
        self, tmp_path: Path, undisturbed: dict[str, Any], golden: Golden
    ) -> None:
        partial = made_in_part(tmp_path / "a.txt")
        (partial / "journal.json").write_text("{")
        golden.text(attempt(tmp_path / "a.txt"), numbers=False)
        assert files_of(tmp_path / "a.npy") == undisturbed


@pytest.mark.usefixtures("small_pieces")
class TestAnotherJob:
    @pytest.mark.parametrize("what", ["text", "option", "tokenizer"])
    def test_is_refused_with_the_choice(
        self, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        text = tmp_path / "a.txt"
        partial = made_in_part(text)
        before = (partial / "tokens.npy").read_bytes()
        separator: str | None = "-"
        if what == "text":
            os.utime(text, (1, 1))
        elif what == "option":
            separator = None
        else:
            monkeypatch.setattr(BytesTokenizer, "content_hash", "another")
        with golden.refused("unfinished-of-other"):
            pretokenize(
                TextFile(text, document_separator=separator), BytesTokenizer(), tmp_path / "a.npy", Options()
            )
        assert (partial / "tokens.npy").read_bytes() == before
        said: list[str] = []
        pretokenize(
            TextFile(text, document_separator=separator), BytesTokenizer(), tmp_path / "a.npy",
            Options(overwrite=True), said.append,
        )  # fmt: skip
        golden.text("\n".join(said), "again", numbers=False)

    def test_a_text_at_fault_leaves_nothing_in_the_way(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_bytes(b"good words " * 500 + b"\xff")
        with golden.refused("undecodable"):
            finish(tmp_path / "a.txt", block_bytes=500)
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_lines_go_when_their_data_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SYNC_TOKENS", 10)
    synced: list[int] = []
    notes = journal.Journal(tmp_path, "job", journal.Progress(), [], lambda: synced.append(1))
    for tokens in range(4, 100, 4):
        progress = journal.Progress(writer.Written(tokens), done_bytes=tokens)
        notes.note(progress, ["a"] * (tokens // 20), crc=0)
        time.sleep(0.01)
    notes.close()
    state = json.loads((tmp_path / "journal.json").read_text())
    assert len(synced) == state["generation"] + 1 > 3
    assert state["written"]["tokens"] >= 50
    assert state["checksums"] == ["a"] * (state["written"]["tokens"] // 20)
    lines = [
        json.loads(line) for path in tmp_path.glob("blocks.*") for line in path.read_text().split("\n")[:-1]
    ]
    assert min((line["done_bytes"] for line in lines), default=100) > state["done_bytes"] - 20
    assert len(state["checksums"]) + sum(len(line["checksums"]) for line in lines) >= 4
    assert len(list(tmp_path.glob("blocks.*"))) <= 2


def save_kills(text_bytes: int, kills: int, sets: int, seconds: float) -> None:
    from benchmarks.harness import save

    result = {
        "what": f"the command on {text_bytes / 1e6:.0f} MB with two workers, started again after each",
        "kills": kills,
        "sets": sets,
        "differences": 0,
        "minutes": round(seconds / 60, 1),
    }
    save("soak_tokenizing", result)


def moments() -> Iterator[float]:
    generator = np.random.default_rng(1)
    while True:
        yield generator.uniform(0.2, 1.2)


@pytest.mark.parametrize(
    "kills",
    [pytest.param(20, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.soak)],
)
@pytest.mark.timeout(1200)
def test_killed_at_random_moments(
    kills: int, tmp_path: Path, tokenizer_folder: Callable[[str], Path]
) -> None:
    """A real tokenizer and threads, killed with SIGKILL at any moment. Fifty kills write
    their counts to benchmarks/results/soak_tokenizing.json.
    """
    from tests.data_loading.conftest import training_text

    folder = tokenizer_folder("gpt2")
    text = tmp_path / "a.txt"
    text.write_text("".join(training_text()) * (60 if kills == 20 else 1000))
    script = [sys.executable, str(ROOT / "pretokenize_dataset.py"), str(text), "--tokenizer", str(folder)]
    script += ["--workers", "2"]
    reference = tmp_path / "whole.npy"
    assert subprocess.run([*script, "--output", str(reference)], capture_output=True).returncode == 0
    killed, sets, started = 0, 1, time.time()
    for moment in moments():
        if killed == kills:
            break
        process = subprocess.Popen(script, stderr=subprocess.PIPE, text=True)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.kill()
            killed += 1
        process.communicate()
        if process.returncode == 0:
            assert (tmp_path / "a.npy").read_bytes() == reference.read_bytes()
            sets += 1
            for path in SetFiles(tmp_path / "a.npy").moves:
                path[1].unlink() if path[1].is_file() else None
    assert subprocess.run(script, capture_output=True).returncode == 0
    assert (tmp_path / "a.npy").read_bytes() == reference.read_bytes()
    assert (tmp_path / "a.docs.npy").read_bytes() == (tmp_path / "whole.docs.npy").read_bytes()
    assert killed == kills
    if kills == 50:
        save_kills(text.stat().st_size, killed, sets, time.time() - started)
    assert atomic_files.on_point is None
    assert writer.CHECKSUM_BYTES == 64 << 20
