"""Of lines or documents that are there twice the first stays, in any memory, wherever a job is killed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pretokenize_dataset
from data_loading.pretokenizer.cleaning import dedup_units as units
from data_loading.pretokenizer.cleaning import duplicates
from data_loading.pretokenizer.cleaning import seen_hashes as first_seen
from data_loading.pretokenizer.cleaning.seen_hashes import FirstSeen
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import Options, pretokenize
from data_loading.pretokenizer.sources import saved_datasets as hugging_face
from data_loading.text_io import byte_files
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.data_loading.text_io.test_text_file import documents
from tests.golden_text import Golden
from tests.searched import examples

ROOT = Path(__file__).resolve().parents[4]
SEPARATOR = "<end>"


def records(hashes: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array([(*found, number) for number, found in enumerate(hashes)], "<u8").reshape(-1, 3)


def repeated(hashes: Sequence[tuple[int, int]]) -> list[bool]:
    """The oracle."""
    seen: set[tuple[int, int]] = set()
    return [found in seen or seen.add(found) is not None for found in hashes]


class TestFirstSeen:
    @settings(max_examples=examples(40))
    @given(
        hashes=st.lists(
            st.tuples(
                st.sampled_from([0, 1, 1 << 56, 255 << 56, (1 << 64) - 1]), st.sampled_from([0, 1, 1 << 63])
            ),
            max_size=60,
        ),
        batch=st.integers(1, 20),
        capacity=st.integers(2, 30),
    )
    def test_in_any_memory(
        self,
        hashes: list[tuple[int, int]],
        batch: int,
        capacity: int,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        folder = tmp_path_factory.mktemp("hashes")
        found = FirstSeen(folder, capacity * 96)
        rows = records(hashes)
        found.find(rows[start : start + batch] for start in range(0, len(rows), batch))
        out = BytesIO()
        found.write_bits(len(hashes), out)
        bits = np.unpackbits(np.frombuffer(out.getvalue(), np.uint8), bitorder="little")[: len(hashes)]
        assert bits.astype(bool).tolist() == repeated(hashes)
        assert found.repeated == sum(repeated(hashes))
        assert list(folder.iterdir()) == [], "what is worked off is removed"
        assert (found.spilt_bytes > 0) == (len(hashes) >= capacity), "nothing is written while all fit"

    def test_many_equal_ones_and_many_different_ones(self, tmp_path: Path) -> None:
        """Ten times as many as fit; those that are equal do not come back again and again."""
        generator = np.random.default_rng(0)
        values = generator.integers(0, 1 << 63, (20_000, 2), dtype=np.uint64)
        values[generator.random(20_000) < 0.5] = (7, 7)
        hashes = [tuple(row) for row in values.tolist()]
        found = FirstSeen(tmp_path, 2_000 * 96)
        found.find(iter([records(hashes)]))
        assert found.repeated == sum(repeated(hashes))
        assert found.spilt_bytes < 2 * 24 * 20_000


LINES = [
    b"a",
    b"b",
    b"ab",
    b"a\rb",
    b"a\r",
    b"",
    b"  ",
    b"\r",
    b"long line " * 3,
    "é".encode(),
    b"\xff",
    b"a\r\r",
    b" a",
]
some_documents = st.lists(
    st.lists(st.sampled_from(LINES), max_size=8).map(b"\n".join), min_size=1, max_size=5
)  # fmt: skip


def without_repeated_lines(texts: Sequence[bytes]) -> tuple[list[bytes], int]:
    """The oracle: (documents, dropped lines)."""
    seen: set[bytes] = set()
    found, dropped = [], 0
    for text in texts:
        kept = b""
        for line in re.findall(rb"[^\n]*\n|[^\n]+", text):
            key = line.removesuffix(b"\n").removesuffix(b"\r")
            if key.strip(b" \t\r\v\f") and key in seen:
                dropped += 1
                continue
            seen.add(key)
            kept += line
        found.append(kept)
    return [text for text in found if text], dropped


def opened(paths: Path | Sequence[Path], unit: str, **options: Any) -> Inputs:
    paths = [paths] if isinstance(paths, Path) else paths
    options = {"document_separator": SEPARATOR, **options}
    source = open_inputs([str(path) for path in paths], InputOptions(dedup=unit, **options))
    assert isinstance(source, Inputs)
    return source


@pytest.mark.parametrize("unit", ["lines", "documents"])
@settings(max_examples=examples(40))
@given(
    files=st.lists(some_documents, min_size=1, max_size=3), read=st.integers(1, 40), piece=st.integers(1, 30)
)
def test_in_any_chunks_and_from_any_mark(
    unit: str,
    files: list[list[bytes]],
    read: int,
    piece: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("dedup")
    paths = [folder / f"{number}.txt" for number in range(len(files))]
    for path, texts in zip(paths, files, strict=True):
        path.write_bytes(f"\n{SEPARATOR}\n".encode().join(texts) or b" ")
    plain = open_inputs([str(path) for path in paths], InputOptions(document_separator=SEPARATOR))
    raw = documents(list(plain.chunks()))
    if unit == "lines":
        expected, dropped = without_repeated_lines(raw)
    else:
        expected, dropped = list(dict.fromkeys(raw)), len(raw) - len(set(raw))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_files, "READ_BYTES", read)
        patch.setattr(units, "PIECE_BYTES", piece)
        patch.setattr(duplicates, "_BATCH_UNITS", 3)
        patch.setattr(duplicates, "_WINDOW_BYTES", 1)
        source = opened(paths, unit)
        source.prepare(folder / "hidden", lambda line: None)
        whole = list(source.chunks())
        assert documents(whole) == expected
        facts = source.facts()
        assert sum(fact["duplicates"][unit] for fact in facts) == dropped
        assert sum(fact["duplicates"]["bytes"] for fact in facts) == sum(map(len, raw)) - sum(
            map(len, expected)
        )
        assert sum(fact["documents"] for fact in facts) == len(expected)
        for number, chunk in enumerate(whole):
            again, said = opened(paths, unit), list[str]()
            again.prepare(folder / "hidden", said.append)
            assert said
            assert list(again.chunks(json.loads(json.dumps(chunk.mark)))) == whole[number:]
            assert again.facts() == facts


class TestSets:
    def test_cleaned_first_then_compared(self, tmp_path: Path, golden: Golden) -> None:
        path = tmp_path / "a.txt"
        path.write_text("one  two\nx\none two \ncafe\u0301\ncafé\n")
        source = opened(path, "lines", clean="normalize", document_separator=None)
        said: list[str] = []
        result = pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options(), said.append)
        assert bytes(np.load(tmp_path / "a.npy")[:-1].astype(np.uint8)).decode() == "one two\nx\ncafé\n"
        assert {key: result.manifest["options"][key] for key in ("clean", "dedup")} == {
            "clean": "normalize", "dedup": "lines",
        }  # fmt: skip
        assert result.manifest["sources"][0]["duplicates"] == {"lines": 2, "bytes": 14}
        golden.text("\n".join(said), numbers=False)
        assert not (tmp_path / ".a.npy.partial").exists()
        assert not pretokenize(source, BytesTokenizer(), tmp_path / "a.npy").made
        more = Options(overwrite=True)
        same = opened(path, "lines", clean="normalize", document_separator=None, dedup_memory_bytes=16 << 20)
        again = pretokenize(same, BytesTokenizer(), tmp_path / "a.npy", more)
        assert again.manifest["fingerprint"] == result.manifest["fingerprint"], "memory changes nothing"

    @pytest.mark.parametrize("unit", ["lines", "documents"])
    def test_a_finished_set_with_another_choice_is_refused(
        self, unit: str, tmp_path: Path, golden: Golden
    ) -> None:
        (tmp_path / "a.txt").write_text("a\nb\na\n")
        pretokenize(opened(tmp_path / "a.txt", unit), BytesTokenizer(), tmp_path / "a.npy")
        other = {"lines": "documents", "documents": "lines"}[unit]
        with golden.refused("output-differs"):
            pretokenize(opened(tmp_path / "a.txt", other), BytesTokenizer(), tmp_path / "a.npy")

    def test_held_out_text_has_its_own(self, tmp_path: Path) -> None:
        for name, text in (("a", "same\nsame\nother\n"), ("b", "same\nx\nx\n")):
            (tmp_path / f"{name}.txt").write_text(text)
        given = [f"{tmp_path}/a.txt", "--val", f"{tmp_path}/b.txt", "--output", f"{tmp_path}/s"]
        assert pretokenize_dataset.main([*given, "--dedup", "lines", "--tokenizer", "bytes"]) == 0
        found = [
            bytes(np.load(tmp_path / f"s_{name}.npy")[:-1].astype(np.uint8))
            for name in ("train", "validation")
        ]
        assert found == [b"same\nother\n", b"same\nx\n"]

    def test_up_to_a_limit(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text(f"\n{SEPARATOR}\n".join("abacadae"))
        source = opened(tmp_path / "a.txt", "documents", max_documents=3)
        said: list[str] = []
        manifest = pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options(), said.append).manifest
        assert manifest["documents"] == 3
        assert manifest["sources"][0]["duplicates"] == {"documents": 1, "bytes": 2}
        golden.text("\n".join(said), numbers=False)

    def test_a_tokenizer_is_trained_on_the_text_with_them(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("water\nrose\nwater\n" * 50)
        given = [f"{tmp_path}/a.txt", "--dedup", "lines", "--train-tokenizer", "260"]
        assert pretokenize_dataset.main([*given, "--engine", "huggingface", "--workers", "0"]) == 0
        assert json.loads((tmp_path / "a.npy.json").read_text())["options"]["dedup"] == "lines"

    def test_skipped_lines_count_once(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": "a"}\nbroken\n{"text": "a"}\n')
        source = opened(tmp_path / "a.jsonl", "documents", document_separator=None, skip_bad=1)
        list(source.with_duplicates.chunks())  # as --train-tokenizer reads it before
        fact = pretokenize(source, BytesTokenizer(), tmp_path / "a.npy").manifest["sources"][0]
        assert (fact["skipped"], fact["documents"], fact["duplicates"]["documents"]) == (1, 1, 1)


class TestRefusals:
    @pytest.mark.parametrize(
        "flags",
        [
            ["--dedup", "words"],
            ["--dedup-memory", "1GB"],
            ["--dedup", "lines", "--dedup-memory", "1MB"],
            ["--dedup", "lines", "--dedup-memory", "much"],
        ],
        ids=" ".join,
    )
    def test_flags(
        self, flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
    ) -> None:
        (tmp_path / "a.txt").write_text("a")
        assert pretokenize_dataset.main([str(tmp_path / "a.txt"), "--tokenizer", "bytes", *flags]) == 2
        golden.text(capsys.readouterr().err)

    @pytest.mark.parametrize("flag", ["--dedup lines", "--max-tokens 2"])
    def test_standard_input(self, flag: str, tmp_path: Path, golden: Golden) -> None:
        command = [sys.executable, str(ROOT / "pretokenize_dataset.py"), "-", *flag.split()]
        done = subprocess.run(
            [*command, "--output", str(tmp_path / "a.npy"), "--tokenizer", "bytes"],
            input="text", capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2
        golden.text(done.stderr)
        assert list(tmp_path.iterdir()) == []

    def test_a_dataset_of_the_hub_is_read_twice_and_told_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        pytest.importorskip("datasets")
        asked = []

        def rows(*name: Any) -> list[dict[str, str]]:
            asked.append(name)
            return [{"text": text} for text in ("a", "b", "a")]

        monkeypatch.setattr(hugging_face, "HUB", hugging_face.Hub(lambda name: "r1", rows))
        source = open_inputs(["hf://org/name"], InputOptions(dedup="documents"))
        said: list[str] = []
        result = pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options(), said.append)
        assert result.manifest["documents"] == 2
        golden.text(said[0], numbers=False)

    def test_a_disk_too_small_for_the_hashes_before_anything_is_done(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(300_000)))
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
        monkeypatch.setattr(FirstSeen, "find", lambda *_: pytest.fail("begun"))
        source = opened(tmp_path / "a.txt", "lines", dedup_memory_bytes=16 << 20)
        with golden.refused("dedup-disk-space"):
            pretokenize(source, BytesTokenizer(), tmp_path / "a.npy")
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]

    def test_a_disk_that_turns_out_too_small(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        """The start of a text says little of the lines behind it."""
        lines = "x" * 100_000 + "\n"
        (tmp_path / "a.txt").write_text(lines * 80 + "".join(f"{number}\n" for number in range(900_000)))
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
        source = opened(tmp_path / "a.txt", "lines", dedup_memory_bytes=16 << 20)
        monkeypatch.setattr(duplicates._Pass, "check_estimate", lambda *_: None)
        with golden.refused("dedup-disk-space"):
            pretokenize(source, BytesTokenizer(), tmp_path / "a.npy")
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]

    def test_short_documents_are_more_than_an_estimate_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        (tmp_path / "a.jsonl").write_text("".join(f'{{"text":"{number}"}}\n' for number in range(200_000)))
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
        monkeypatch.setattr(first_seen, "_append", lambda *_: pytest.fail("written"))
        options = InputOptions(dedup="documents", dedup_memory_bytes=16 << 20)
        source = open_inputs([str(tmp_path / "a.jsonl")], options)
        with golden.refused("dedup-disk-space"):
            pretokenize(source, BytesTokenizer(), tmp_path / "a.npy")
        assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]

    @pytest.mark.privileged
    def test_a_disk_that_is_full_in_fact(self, tmp_path: Path, small_disk: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(900_000)))
        source = opened(tmp_path / "a.txt", "lines", dedup_memory_bytes=16 << 20)
        with golden.refused("dedup-disk-space"):
            pretokenize(source, BytesTokenizer(), small_disk / "a.npy")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(duplicates._Pass, "_check_room", lambda *_: None)
            with golden.refused("disk-full"):
                pretokenize(source, BytesTokenizer(), small_disk / "a.npy")
        assert list(small_disk.iterdir()) == []

    def test_the_same_text_held_out(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
    ) -> None:
        for name in "ab":
            (tmp_path / f"{name}.txt").write_text("text\n")
        given = [f"{tmp_path}/a.txt", "--val", f"{tmp_path}/b.txt", "--output", f"{tmp_path}/s"]
        flags = ["--clean", "normalize", "--dedup", "lines", "--tokenizer", "bytes"]
        assert pretokenize_dataset.main([*given, *flags]) == 2
        golden.text(capsys.readouterr().err)
        assert len(list(tmp_path.iterdir())) == 2, "before anything is made"

    def test_a_text_that_grows_in_between(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("a\nb\n")
        source = opened(tmp_path / "a.txt", "lines")
        source.prepare(tmp_path / "hidden", lambda line: None)
        with open(tmp_path / "a.txt", "a") as file:
            file.write("c\n" * 20)
        with golden.refused("changed-while-read"):
            list(source.chunks())
