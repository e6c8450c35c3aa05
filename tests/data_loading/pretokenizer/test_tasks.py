"""Sets that several tasks make together: what one job would make, whatever is killed, missing or changed."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pretokenize_dataset
from data_loading import content_hash
from data_loading.audit import audit
from data_loading.formats import formats_of
from data_loading.formats.export import export
from data_loading.pretokenizer import byte_files, division, file_share, journal
from data_loading.pretokenizer.block_range import BlockRange, parse_block_range, without_block_range
from data_loading.pretokenizer.engines import make_engine
from data_loading.pretokenizer.find_inputs import InputOptions, as_one, open_inputs
from data_loading.pretokenizer.forecast import forecast
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.merge import merge
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.share import share_of
from data_loading.pretokenizer.source import Source
from data_loading.pretokenizer.stdlib_source import StdlibSource
from data_loading.pretokenizer.task import pretokenize_share
from data_loading.pretokenizer.texts import TextFile
from data_loading.set_files import SetFiles
from data_loading.token_set import open_token_set
from data_loading.tokenizer import BytesTokenizer, Tokenizer
from data_loading.tokenizer_files import read_tokenizer
from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError
from tests.data_loading.conftest import without_memory_lines
from tests.data_loading.pretokenizer.test_shard_sets import bytes_of, starts_of, tokens_of
from tests.forked import killed_at
from tests.golden_text import Golden
from tests.searched import examples

ROOT = Path(__file__).resolve().parents[3]
BYTES = BytesTokenizer()
OPTIONS = Options(shard_tokens=40, block_bytes=30, val_fraction=0.3, workers=0, engine="auto")


@contextmanager
def tiny(piece: int, read: int = 16) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_hash, "PIECE_BYTES", piece)
        for name in ("fsync", "fdatasync"):  # no power is cut here
            patch.setattr(os, name, lambda _: None)
        for module in (byte_files, file_share, division):
            patch.setattr(module, "READ_BYTES", read)
        yield


def sources(*files: Path, **options: Any) -> Inputs:
    opened = open_inputs([str(file) for file in files], InputOptions(**options))
    return opened if isinstance(opened, Inputs) else Inputs([opened])


def task(
    opened: Source, output: Path, number: int, tasks: int, tokenizer: Tokenizer = BYTES, **options: Any
) -> Result:
    how = Options(**{**vars(OPTIONS), "engine": "auto", **options})
    return pretokenize_share(opened, tokenizer, output, BlockRange(number, tasks), how)


def said(manifest: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on how the tokens lie in shards."""
    names = ("tokenizer", "dtype", "tokens", "documents", "sources", "options", "fingerprint", "val")
    return {name: manifest[name] for name in (*names, "shard_tokens")}


def assert_same(merged: Path, whole: Path) -> None:
    found, expected = open_token_set(merged), open_token_set(whole)
    assert tokens_of(found) == tokens_of(expected)
    assert starts_of(found) == starts_of(expected)
    assert found.manifest is not None
    assert expected.manifest is not None
    assert said(found.manifest) == said(expected.manifest)
    assert not SetFiles(merged).tasks.exists()
    hidden = [path.name for path in merged.parent.iterdir() if path.name.startswith(".")]
    assert hidden == []


WORDS = ("water", "rose ", "\n", "==", "\n==\n", "\n==\r\n", "é", "  ", "x" * 30, "\r\n", "日本", " mark")
some_text = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map("".join)


@st.composite
def some_files(draw: st.DrawFn) -> list[tuple[str, bytes]]:
    files = []
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["txt", "txt", "jsonl", "gz", "parquet"]))
        texts = draw(st.lists(some_text, min_size=1, max_size=6))
        if kind == "jsonl":
            lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
            content = ("\n" * draw(st.integers(1, 2))).join(lines).encode()
        elif kind == "parquet":
            content = parquet([*texts, None, *texts], draw(st.integers(1, 4)))
        else:
            content = "".join(texts).encode()
            content = gzip.compress(content, mtime=0) if kind == "gz" else content
        files.append((f"{number}.{'txt.gz' if kind == 'gz' else kind}", content))
    return files


def parquet(texts: list[str | None], group: int) -> bytes:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), out, row_group_size=group)
    return out.getvalue()


def check_division(
    folder: Path, files: list[tuple[str, bytes]], tasks: int, piece: int, tokenizer: Tokenizer, **given: Any
) -> None:
    """The merged set of tasks, done in any order, is that of one job."""
    for name, content in files:
        (folder / name).write_bytes(content)
    paths = [folder / name for name, _ in files]
    how = Options(**vars(OPTIONS))
    with tiny(piece):
        try:
            pretokenize(sources(*paths, **given), tokenizer, folder / "whole", how)
        except UserError as error:
            assert error.code in ("no-text", "too-few-tokens")  # noqa: PT017
            return
        for number in reversed(range(tasks)):
            assert task(sources(*paths, **given), folder / "mix", number, tasks, tokenizer).made
        merge(folder / "mix")
        assert_same(folder / "mix", folder / "whole")
        assert not pretokenize(sources(*paths, **given), tokenizer, folder / "mix", how).made


@dataclass(frozen=True)
class Division:
    """Inputs, and among how many tasks they are divided at which borders."""

    files: list[tuple[str, bytes]]
    tasks: int
    piece: int
    separator: str | None

    def check(self, folder: Path) -> None:
        has_text = any(".txt" in name for name, _ in self.files)
        options = {"document_separator": self.separator} if has_text else {}
        check_division(folder, self.files, self.tasks, self.piece, BYTES, **options)


divisions = st.builds(
    Division,
    files=some_files(),
    tasks=st.integers(1, 7),
    piece=st.integers(5, 90),
    separator=st.sampled_from([None, "==", "=="]),
)


class OfNoLength(TextFile):
    """As the hub's datasets are."""

    @property
    def total_bytes(self) -> int | None:
        return None


def slow(*values: Any) -> list[Any]:
    return [pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.slow) for v in values]


class TestMerged:
    @settings(max_examples=examples(20))
    @given(division=divisions)
    def test_is_what_one_job_makes(
        self, division: Division, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        division.check(tmp_path_factory.mktemp("sets"))

    @pytest.mark.soak
    @settings(max_examples=400)
    @given(division=divisions)
    def test_always(self, division: Division, tmp_path_factory: pytest.TempPathFactory) -> None:
        division.check(tmp_path_factory.mktemp("sets"))

    @pytest.mark.parametrize("family", ["gpt2", "llama2", *slow("wordpiece", "rstrip", "unigram", "qwen2")])
    @settings(max_examples=examples(8))
    @given(
        texts=st.lists(some_text, min_size=1, max_size=12), tasks=st.integers(2, 5), piece=st.integers(9, 60)
    )
    def test_with_every_kind_of_cut(
        self,
        family: str,
        texts: list[str],
        tasks: int,
        piece: int,
        tokenizer_folder: Callable[[str], Path],
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        tokenizer = read_tokenizer(tokenizer_folder(family), family)
        folder = tmp_path_factory.mktemp("sets")
        files = [("a.txt", "".join(texts).encode()), ("b.txt", " ".join(texts).encode())]
        check_division(folder, files, tasks, piece, tokenizer)

    @pytest.mark.parametrize("errors", ["replace", "ignore"])
    def test_bytes_that_are_no_text(self, errors: str, tmp_path: Path) -> None:
        files = [("a.txt", b"one two\xff\xfe\xc3" * 9), ("b.txt", b"\xff\xff\xff\xff rose \xe6\x97 high" * 6)]
        check_division(tmp_path, files, 5, 8, BYTES, errors=errors)

    def test_many_tasks_share_one_document(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("The water rose, and the mark stayed high.\n" * 40)
        with tiny(64):
            made = [task(sources(tmp_path / "a.txt"), tmp_path / "mix", number, 6) for number in range(6)]
            merged = merge(tmp_path / "mix")
            assert all(result.manifest["tokens"] > 100 for result in made)
            assert [result.manifest["documents"] for result in made] == [1, 0, 0, 0, 0, 0]
            assert merged.manifest["documents"] == 1
            assert all(found.ok for found in audit(tmp_path / "mix", deep=True))
            lengths = {shard["tokens"] for shard in merged.manifest["shards"]}
            assert len(lengths) > 1

    def test_it_is_a_set_like_any_other(self, tmp_path: Path) -> None:
        text = "".join(f"{n} water\n==\n" for n in range(150))
        (tmp_path / "a.txt").write_text(text)
        (tmp_path / "b.txt").write_text(text + "more")
        with tiny(128):
            for number in range(3):
                task(sources(tmp_path / "a.txt", document_separator="=="), tmp_path / "mix", number, 3)
            merge(tmp_path / "mix")
            before = bytes_of(tmp_path / "mix")
            assert all(found.ok is not False for found in audit(tmp_path / "mix"))
            b = sources(tmp_path / "b.txt", document_separator="==")
            export(formats_of("megatron,nanogpt"), [tmp_path / "mix"], BYTES)
            assert all(found.ok is not False for found in audit(tmp_path / "mix"))
            grown = pretokenize(b, BYTES, tmp_path / "mix", Options(append=True))
            a_and_b = sources(tmp_path / "a.txt", tmp_path / "b.txt", document_separator="==")
            pretokenize(a_and_b, BYTES, tmp_path / "whole.npy")
            assert len(grown.manifest["val"]["ranges"]) == 2
            after = bytes_of(tmp_path / "mix")
            assert {name: after[name] for name in before if name != "manifest.json"} == {
                name: data for name, data in before.items() if name != "manifest.json"
            }
            assert tokens_of(open_token_set(tmp_path / "mix")) == tokens_of(
                open_token_set(tmp_path / "whole.npy")
            )
            assert starts_of(open_token_set(tmp_path / "mix")) == starts_of(
                open_token_set(tmp_path / "whole.npy")
            )

    def test_what_is_only_read_as_a_whole(self, tmp_path: Path) -> None:
        """Python's own sources, another encoding, what has no known length: each lies in one share."""
        (tmp_path / "lib").mkdir()
        for name in "abc":
            (tmp_path / "lib" / f"{name}.py").write_text(f"{name} = 1\n" * 9)
        (tmp_path / "a.txt").write_text("water rose\n" * 20, encoding="utf-16")

        def opened() -> Inputs:
            text = TextFile(tmp_path / "a.txt", "utf-16")
            return Inputs([StdlibSource(tmp_path / "lib"), text, OfNoLength(tmp_path / "a.txt", "utf-16")])

        with tiny(40):
            made = [task(opened(), tmp_path / "mix", number, 5) for number in range(5)]
            merge(tmp_path / "mix")
            pretokenize(opened(), BYTES, tmp_path / "whole", OPTIONS)
            assert_same(tmp_path / "mix", tmp_path / "whole")
        assert [len(result.manifest["sources"]) for result in made if result.manifest["sources"]] in (
            [1, 2],
            [1, 1, 1],
            [2, 1],
        )

    def test_rows_keep_their_numbers(self, tmp_path: Path) -> None:
        (tmp_path / "a.parquet").write_bytes(parquet([f"mark {n}" for n in range(40)], 5))
        with tiny(100):
            shares = [
                share_of(sources(tmp_path / "a.parquet"), BYTES.cut_rule, BlockRange(n, 3)) for n in range(3)
            ]
            chunks = [chunk for share in shares for chunk in share.chunks()]
        assert all(len(share.parts) == 1 for share in shares)
        assert [chunk.source.rpartition(" ")[2] for chunk in chunks] == [str(n) for n in range(40)]

    def test_the_forecast_of_a_share_is_of_its_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("water rose and fell\n" * 50)
        (tmp_path / "b.jsonl").write_text('{"text": "water rose"}\n' * 60)
        (tmp_path / "c.parquet").write_bytes(parquet(["mark stayed"] * 40, 5))
        paths = [tmp_path / name for name in ("a.txt", "b.jsonl", "c.parquet")]
        with tiny(300):
            for number in range(7):
                share = share_of(sources(*paths), BYTES.cut_rule, BlockRange(number, 7))
                found = forecast(share, BYTES, make_engine("bytes", BYTES))
                made = task(sources(*paths), tmp_path / "mix", number, 7)
                assert found.tokens == pytest.approx(made.manifest["tokens"], abs=1.5)

    def test_nothing_is_copied(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("water rose\n" * 30)
        with tiny(50):
            for number in range(2):
                task(sources(tmp_path / "a.txt"), tmp_path / "mix", number, 2)
            inodes = {path.stat().st_ino for path in SetFiles(tmp_path / "mix").tasks.rglob("shard*.npy")}
            merge(tmp_path / "mix")
        assert {path.stat().st_ino for path in (tmp_path / "mix").glob("shard*.npy")} == inodes

    def test_bad_lines_count_over_all_tasks(self, tmp_path: Path, golden: Golden) -> None:
        lines = [json.dumps({"text": "water"}), "no json"] * 6
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        with tiny(40):
            with golden.refused("bad-line"):
                task(sources(tmp_path / "a.jsonl", skip_bad=0), tmp_path / "mix", 2, 3)
            for number in range(3):
                task(sources(tmp_path / "a.jsonl", skip_bad=3), tmp_path / "mix", number, 3)
            with golden.refused("too-many-bad-lines"):
                merge(tmp_path / "mix")
            merge(tmp_path / "mix", skip_bad=6)
            pretokenize(sources(tmp_path / "a.jsonl", skip_bad=6), BYTES, tmp_path / "whole", OPTIONS)
        assert_same(tmp_path / "mix", tmp_path / "whole")

    def test_each_distinct_engine_is_told(
        self, tmp_path: Path, tokenizer_folder: Callable[[str], Path]
    ) -> None:
        (tmp_path / "a.txt").write_text("The water rose. " * 30)
        (tmp_path / "b.txt").write_text("The water fell. " * 20)
        tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
        for number, engine in enumerate(("fastokens", "huggingface")):
            opened = sources(tmp_path / "a.txt", tmp_path / "b.txt")
            task(opened, tmp_path / "mix", number, 2, tokenizer, engine=engine)
        manifest = merge(tmp_path / "mix").manifest
        assert [facts["name"] for facts in manifest["engines"]] == ["fastokens", "huggingface"]
        assert manifest["engine"] == manifest["engines"][0]


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name} water rose\n" * 40)
    return [tmp_path / "a.txt", tmp_path / "b.txt"]


class TestRefusals:
    def test_missing_tasks_with_their_commands(
        self, texts: list[Path], tmp_path: Path, golden: Golden
    ) -> None:
        command = ("a.txt", "--output", "my mix")
        for number in (0, 2):
            task(sources(*texts), tmp_path / "my mix", number, 4, command=command)
        own = BlockRange(3, 4).files(tmp_path / "my mix")
        own.partial.mkdir()
        (own.partial / "manifest.json").write_text("{}")  # killed before its commit
        with golden.refused("tasks-missing", numbers=False):
            merge(tmp_path / "my mix")
        with lock_file.lock(own.lock, "it"), golden.refused("tasks-missing", numbers=False):
            merge(tmp_path / "my mix")

    def test_no_tasks_at_all(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("tasks-none"):
            merge(tmp_path / "mix")
        with golden.refused("output-not-folder"):
            merge(tmp_path / "mix.npy")

    def test_tasks_of_several_divisions(self, texts: list[Path], tmp_path: Path, golden: Golden) -> None:
        task(sources(*texts), tmp_path / "mix", 0, 1)
        task(sources(*texts), tmp_path / "mix", 0, 2)
        with golden.refused("tasks-several-divisions"):
            merge(tmp_path / "mix")

    def test_tasks_that_were_not_made_alike(
        self, texts: list[Path], tmp_path: Path, tokenizer_folder: Callable[[str], Path], golden: Golden
    ) -> None:
        gpt2 = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
        task(sources(*texts), tmp_path / "mix", 0, 2)
        for wrong, tokenizer, options in (
            (sources(*texts), gpt2, {}),
            (sources(*texts), BYTES, {"shard_tokens": 50}),
            (sources(*texts), BYTES, {"val_fraction": None}),
            (sources(*texts, errors="replace"), BYTES, {}),
            (sources(texts[0]), BYTES, {}),
            (sources(*texts[::-1]), BYTES, {}),
        ):
            task(wrong, tmp_path / "mix", 1, 2, tokenizer, **{"overwrite": True, **options})
            with golden.refused("tasks-differ", numbers=False):
                merge(tmp_path / "mix")
            assert SetFiles(tmp_path / "mix").tasks.is_dir()
        task(sources(*texts), tmp_path / "mix", 1, 2, overwrite=True)
        merge(tmp_path / "mix")

    def test_an_input_that_changed_between_tasks(
        self, texts: list[Path], tmp_path: Path, golden: Golden
    ) -> None:
        task(sources(*texts), tmp_path / "mix", 0, 2)
        with open(texts[1], "a") as file:
            file.write("more")
        task(sources(*texts), tmp_path / "mix", 1, 2)
        with golden.refused("tasks-differ", numbers=False):
            merge(tmp_path / "mix")
        with golden.refused("task-differs", numbers=False):
            task(sources(*texts), tmp_path / "mix", 0, 2)

    def test_a_shard_that_was_changed(self, texts: list[Path], tmp_path: Path, golden: Golden) -> None:
        for number in range(2):
            task(sources(*texts), tmp_path / "mix", number, 2)
        shard = BlockRange(1, 2).files(tmp_path / "mix").tokens / "shard_00001.npy"
        shard.write_bytes(shard.read_bytes()[:-2])
        with golden.refused("npy-size"):
            merge(tmp_path / "mix")
        shutil.copy(shard.with_name("shard_00003.npy"), shard)
        (shard.with_name("shard_00000.docs.npy")).write_bytes(
            shard.with_name("shard_00001.docs.npy").read_bytes()
        )
        with golden.refused("task-changed"):
            merge(tmp_path / "mix")

    def test_another_set_of_that_name(self, texts: list[Path], tmp_path: Path, golden: Golden) -> None:
        pretokenize(sources(texts[0]), BYTES, tmp_path / "mix", OPTIONS)
        with golden.refused("output-differs"):
            task(sources(*texts), tmp_path / "mix", 0, 1)
        task(sources(*texts), tmp_path / "mix", 0, 1, overwrite=True)
        with golden.refused("output-differs"):
            merge(tmp_path / "mix")
        merge(tmp_path / "mix", overwrite=True)
        pretokenize(sources(*texts), BYTES, tmp_path / "whole", OPTIONS)
        assert_same(tmp_path / "mix", tmp_path / "whole")

    def test_what_tasks_cannot_do(self, texts: list[Path], tmp_path: Path, golden: Golden) -> None:
        mix = tmp_path / "mix"
        with golden.refused("task-with-limit"):
            task(sources(*texts, max_tokens=5), mix, 0, 2)
        with golden.refused("task-needs-shards"):
            task(sources(*texts), mix, 0, 2, shard_tokens=None)
        once = as_one([TextFile(path) for path in texts], InputOptions(dedup="lines"))
        with golden.refused("task-with-dedup"):
            task(once, mix, 0, 2)
        with golden.refused("task-and-append"):
            task(sources(*texts), mix, 0, 2, append=True)

    def test_cleaned_text(self, tmp_path: Path) -> None:
        """A file that is cleaned is done by one task, whole."""
        for name in "ab":
            (tmp_path / f"{name}.txt").write_text("the  water \x01 rose\n" * 30)

        def opened() -> Source:
            parts = [TextFile(tmp_path / f"{name}.txt") for name in "ab"]
            return as_one(parts, InputOptions(clean="normalize"))

        with tiny(40):
            for number in range(3):
                task(opened(), tmp_path / "mix", number, 3)
            merge(tmp_path / "mix")
            pretokenize(opened(), BYTES, tmp_path / "whole", OPTIONS)
            assert_same(tmp_path / "mix", tmp_path / "whole")

    def test_no_text_in_any_share(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("==\n==\n")
        for number in range(2):
            assert task(
                sources(tmp_path / "a.txt", document_separator="=="), tmp_path / "mix", number, 2
            ).made
        with golden.refused("no-text"):
            merge(tmp_path / "mix")

    @pytest.mark.parametrize(
        ("given_", "code"),
        [
            ("3", "block-range-invalid"),
            ("0/0", "block-range-invalid"),
            ("-1/3", "block-range-invalid"),
            ("3/3", "block-range-outside"),
        ],
    )
    def test_no_block_range(self, given_: str, code: str, golden: Golden) -> None:
        with golden.refused(code):
            parse_block_range(given_)


def attempt(folder: Path, point: str, count: int, tasks: str, then: str = "-") -> None:
    """Do these tasks, and with `m` merge them, in a process that is killed when it comes to the point so
    often. count: 0: in this one, to the end.
    """

    def work() -> None:
        with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch, tiny(100):
            patch.setattr(journal, "SYNC_TOKENS", 150)
            for number in map(int, tasks):
                task(sources(Path("a.txt"), Path("b.txt")), Path("mix"), number, 3)
            if "m" in then:
                merge(Path("mix"))

    if count:
        assert killed_at(point, work, count)
    else:
        work()


class TestKilled:
    @pytest.mark.parametrize(
        ("point", "count"),
        [
            ("00001-of-00003:noted", 7),
            ("00001-of-00003:after_commit", 1),
            *slow(
                ("00001-of-00003:appended", 9),
                ("00001-of-00003:before_commit", 1),
                ("00001-of-00003:moved_shard_00001.npy", 1),
            ),
        ],
    )
    def test_a_task_goes_on(
        self, point: str, count: int, texts: list[Path], tmp_path: Path, golden: Golden
    ) -> None:
        attempt(tmp_path, "-", 0, "02")
        attempt(tmp_path, point, count, "1")
        if "commit" not in point and "moved" not in point:
            lines: list[str] = []
            with tiny(100):
                how = Options(**{**vars(OPTIONS), "command": ()})
                pretokenize_share(
                    sources(*texts), BYTES, tmp_path / "mix", BlockRange(1, 3), how, lines.append
                )
            golden.text("\n".join(lines), numbers=False)
        elif point.startswith("00001-of-00003:before"):
            attempt(tmp_path, "-", 0, "1")
        self.check(texts, tmp_path)

    @pytest.mark.parametrize(
        "point",
        [
            "linked_shard_00020.npy",
            "moved_manifest.json",
            *slow(
                *("linked_shard_00000.npy", "before_commit", "after_commit"),
                *("moved_shard_00003.npy", "moved_tokenizer", "tasks_used"),
            ),
        ],
    )
    def test_a_merge_goes_on(self, point: str, texts: list[Path], tmp_path: Path) -> None:
        attempt(tmp_path, f"mix:{point}", 1, "012", "m")
        if point.startswith(("after", "moved", "tasks")):
            with tiny(100):
                open_token_set(tmp_path / "mix")  # a reader may come first
        self.check(texts, tmp_path)

    @staticmethod
    def check(texts: list[Path], folder: Path) -> None:
        """Merging (again) gives the set, twice gives nothing new."""
        with tiny(100):
            merge(folder / "mix")
            assert not merge(folder / "mix").made
            pretokenize(sources(*texts), BYTES, folder / "whole", OPTIONS)
            assert_same(folder / "mix", folder / "whole")
            assert all(found.ok is not False for found in audit(folder / "mix"))

    def test_another_input_decides_what_an_unfinished_task_does(
        self, texts: list[Path], tmp_path: Path, golden: Golden
    ) -> None:
        attempt(tmp_path, "00000-of-00003:noted", 5, "0")
        with open(texts[1], "a") as file:
            file.write("more")
        with tiny(100), golden.refused("unfinished-of-other"):
            task(sources(*texts), tmp_path / "mix", 0, 3)

    def test_the_second_process_on_a_task_is_told(self, texts: list[Path], tmp_path: Path) -> None:
        own = BlockRange(1, 3).files(tmp_path / "mix")
        own.tokens.parent.mkdir()
        with lock_file.lock(own.lock, "it"):
            with pytest.raises(lock_file.LockHeld):
                task(sources(*texts), tmp_path / "mix", 1, 3)
            task(sources(*texts), tmp_path / "mix", 0, 3)

    def test_an_unfinished_job_of_the_same_name_is_not_lost(
        self, texts: list[Path], tmp_path: Path, golden: Golden
    ) -> None:
        task(sources(*texts), tmp_path / "mix", 0, 1)
        partial = SetFiles(tmp_path / "mix").partial
        partial.mkdir()
        atomic_files.write_json(partial / "journal.json", {"version": 2, "job": "hours of work"})
        with golden.refused("unfinished-of-other"):
            merge(tmp_path / "mix")
        merge(tmp_path / "mix", overwrite=True)


class TestCommand:
    def test_as_typed(
        self,
        texts: list[Path],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        golden: Golden,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        shared = ["a.txt", "b.txt", "--tokenizer", "bytes", "--output", "mix", "--tokens-per-shard", "200"]
        assert pretokenize_dataset.main([*shared, "--block-range", "0/2"]) == 0
        golden.text(without_memory_lines(capsys.readouterr().out), numbers=False)
        assert pretokenize_dataset.main(["merge", "mix"]) == 2
        told = capsys.readouterr().err
        line = next(line for line in told.splitlines() if "1/2" in line)
        golden.text(line)
        assert pretokenize_dataset.main([*shared, "--block-range", "0/2"]) == 0
        golden.text(without_memory_lines(capsys.readouterr().out), numbers=False)
        assert pretokenize_dataset.main([*shared, "--block-range=1/2"]) == 0
        assert pretokenize_dataset.main(["merge", "mix", "--json", "--format", "megatron"]) == 0
        facts = json.loads(capsys.readouterr().out.partition("next, ")[2].partition("\n")[2])
        assert pretokenize_dataset.main(["merge", "mix"]) == 0
        golden.text(without_memory_lines(capsys.readouterr().out), numbers=False)
        assert facts["made"]
        assert [exported["format"] for exported in facts["exports"]] == ["megatron"]
        assert pretokenize_dataset.main([*shared, "--block-range", "1/2"]) == 0
        golden.text(without_memory_lines(capsys.readouterr().out), numbers=False)
        assert pretokenize_dataset.main(["verify", "mix"]) == 0
        assert pretokenize_dataset.main(["verify", "mix.megatron"]) == 0

    @pytest.mark.parametrize(
        "flags",
        [["--val", "b.txt"], ["--train-tokenizer", "300"], ["--format", "megatron"], ["--dry-run"]],
    )
    def test_flags_that_do_not_go_with_it(
        self,
        flags: list[str],
        texts: list[Path],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        golden: Golden,
    ) -> None:
        shared = [str(texts[0]), "--output", str(tmp_path / "mix"), "--tokens-per-shard", "200"]
        assert pretokenize_dataset.main([*shared, "--block-range", "0/2", *flags]) == 2
        golden.text(without_memory_lines(capsys.readouterr().err), numbers=False)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]

    def test_standard_input_is_refused(self, tmp_path: Path, golden: Golden) -> None:
        done = subprocess.run(
            [
                *(sys.executable, "pretokenize_dataset.py", "-", "--tokenizer", "bytes"),
                *("--output", str(tmp_path / "mix"), "--tokens-per-shard", "5", "--block-range", "0/2"),
            ],
            input="water", cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2
        golden.text(without_memory_lines(done.stderr), numbers=False)

    def test_the_flag_is_taken_out_of_a_command(self) -> None:
        assert without_block_range(["a", "--block-range", "3/4", "--json"]) == ["a", "--json"]
        assert without_block_range(["a", "--block-range=3/4", "b"]) == ["a", "b"]
        assert without_block_range(["--bl", "3/4", "b"]) == ["b"]
