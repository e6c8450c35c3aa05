"""Sets that tasks make: the ids of one process, whatever is killed, missing or damaged."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pretokenize_dataset
from data_loading.audit.check_set import check_set
from data_loading.dataset.streaming_dataset import StreamingDataset
from data_loading.export_formats import formats_of
from data_loading.export_formats.export import export
from data_loading.pretokenizer import journal
from data_loading.pretokenizer.distributed.merge import merge, merge_if_done
from data_loading.pretokenizer.distributed.task import pretokenize_task
from data_loading.pretokenizer.distributed.task_plan import SetTask
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.make_set import CONTINUES
from data_loading.pretokenizer.options import Options
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer, Tokenizer
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import open_token_set
from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError
from tests.data_loading.conftest import without_memory_lines
from tests.data_loading.pretokenizer.test_shard_sets import bytes_of, starts_of, tokens_of
from tests.forked import killed_at
from tests.golden_text import Golden
from tests.searched import examples

ROOT = Path(__file__).resolve().parents[4]
BYTES = BytesTokenizer()
OPTIONS = Options(shard_tokens=40, block_bytes=30, val_fraction=0.3, workers=0)
MANIFEST_OF_ONE = (
    "format", "version", "tokenizer", "dtype", "tokens", "documents", "sources", "options", "fingerprint",
    "val", "shard_tokens", "earlier", "checksums", "writer_version",
)  # fmt: skip
"""Keys of a manifest that do not depend on how the tokens lie in shards."""


def sources(*files: Path, **options: Any) -> Inputs:
    return open_inputs([str(file) for file in files], InputOptions(**options))


def task(
    opened: Inputs, output: Path, number: int, tasks: int, tokenizer: Tokenizer = BYTES, **options: Any
) -> Result:
    how = Options(**{**vars(OPTIONS), **options})
    return pretokenize_task(opened, tokenizer, output, SetTask(number, tasks), how)


def assert_same(merged: Path, whole: Path) -> None:
    found, expected = open_token_set(merged), open_token_set(whole)
    assert tokens_of(found) == tokens_of(expected)
    assert starts_of(found) == starts_of(expected)
    assert found.manifest is not None
    assert expected.manifest is not None
    for name in MANIFEST_OF_ONE:
        assert found.manifest[name] == expected.manifest[name], name
    assert found.manifest.keys() - {"engines"} == expected.manifest.keys()
    assert [path.name for path in merged.parent.iterdir() if path.name.startswith(".")] == []


WORDS = ("water", "rose ", "\n", "==", "\n==\n", "\n==\r\n", "é", "  ", "x" * 30, "\r\n", "日本", " mark")
some_text = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map("".join)


@st.composite
def some_files(draw: st.DrawFn) -> list[tuple[str, bytes]]:
    files = []
    for number in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(["txt", "txt", "jsonl", "gz", "parquet"]))
        texts = draw(st.lists(some_text, min_size=1, max_size=4))
        if kind == "jsonl":
            content = "\n".join(json.dumps({"text": text}) for text in texts).encode()
        elif kind == "parquet":
            content = parquet([*texts, None])
        else:
            content = "".join(texts).encode()
            content = gzip.compress(content, mtime=0) if kind == "gz" else content
        files.append((f"{number}.{'txt.gz' if kind == 'gz' else kind}", content))
    return files


def parquet(texts: list[str | None]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), out)
    return out.getvalue()


class TestMerged:
    @settings(max_examples=examples(20))
    @given(files=some_files(), separator=st.sampled_from([None, "=="]), data=st.data())
    def test_is_what_one_process_makes(
        self,
        files: list[tuple[str, bytes]],
        separator: str | None,
        data: st.DataObject,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        folder = tmp_path_factory.mktemp("sets")
        for name, content in files:
            (folder / name).write_bytes(content)
        paths = [folder / name for name, _ in files]
        given_ = {"document_separator": separator} if any(".txt" in name for name, _ in files) else {}
        tasks = data.draw(st.integers(1, len(files)))
        with pytest.MonkeyPatch.context() as patch:
            for name in ("fsync", "fdatasync"):  # no power is cut here
                patch.setattr(os, name, lambda _: None)
            try:
                for number in data.draw(st.permutations(range(tasks))):
                    task(sources(*paths, **given_), folder / "mix", number, tasks)
                merge(folder / "mix")
                pretokenize(sources(*paths, **given_), BYTES, folder / "whole", OPTIONS)
            except UserError as error:
                assert error.codes[0] in ("no-text", "too-few-tokens")  # noqa: PT017
                return
            assert_same(folder / "mix", folder / "whole")
            assert not pretokenize(sources(*paths, **given_), BYTES, folder / "mix", OPTIONS).made
            assert not task(sources(*paths, **given_), folder / "mix", 0, tasks).made

    @pytest.mark.parametrize("family", ["gpt2", pytest.param("unigram", marks=pytest.mark.slow)])
    def test_with_an_engine(
        self, family: str, tmp_path: Path, tokenizer_folder: Callable[[str], Path]
    ) -> None:
        tokenizer = read_tokenizer(tokenizer_folder(family), family)
        paths = [tmp_path / f"{n}.txt" for n in range(4)]
        for number, path in enumerate(paths):
            path.write_text(f"The water rose {number} times. " * (20 * number + 5))
        for number in range(2):
            task(sources(*paths), tmp_path / "mix", number, 2, tokenizer)
        merge(tmp_path / "mix")
        pretokenize(sources(*paths), tokenizer, tmp_path / "whole", OPTIONS)
        assert_same(tmp_path / "mix", tmp_path / "whole")

    def test_it_is_a_set_like_any_other(self, tmp_path: Path) -> None:
        text = "".join(f"{n} water\n==\n" for n in range(150))
        paths = [tmp_path / f"{name}.txt" for name in "abcd"]
        for number, path in enumerate(paths):
            path.write_text(text[: 1000 + 300 * number])
        for number in range(3):
            task(sources(*paths[:3], document_separator="=="), tmp_path / "mix", number, 3, shard_tokens=150)
        inodes = {path.stat().st_ino for path in SetFiles(tmp_path / "mix").tasks.rglob("shard*.npy")}
        merged = merge(tmp_path / "mix")
        lengths = [shard["tokens"] for shard in merged.manifest["shards"]]
        assert {150} < set(lengths[:-1]), "a shard inside the set is shorter"
        assert {path.stat().st_ino for path in (tmp_path / "mix").glob("shard*.npy")} == inodes
        before = bytes_of(tmp_path / "mix")
        assert all(found.ok for found in check_set(tmp_path / "mix", deep=True))
        whole = open_token_set(tmp_path / "mix")
        assert whole.held_out is not None
        for split, begin in (("train", 0), ("val", whole.held_out[0].start)):
            windows = StreamingDataset(tmp_path / "mix", split, 8, order="sequential")
            read = [int(one) for window in range(len(windows)) for one in windows[window]["input_ids"]]
            assert len(read) > 160, "over several shards"
            assert read == tokens_of(whole)[begin : begin + len(read)]
        export(formats_of("megatron,nanogpt"), [tmp_path / "mix"], BYTES)
        assert all(found.ok is not False for found in check_set(tmp_path / "mix"))
        pretokenize(sources(paths[3], document_separator="=="), BYTES, tmp_path / "mix", Options(append=True))
        pretokenize(sources(*paths, document_separator="=="), BYTES, tmp_path / "whole.npy")
        after = bytes_of(tmp_path / "mix")
        assert {name: after[name] for name in before if name != "manifest.json"} == {
            name: data for name, data in before.items() if name != "manifest.json"
        }
        assert tokens_of(open_token_set(tmp_path / "mix")) == tokens_of(
            open_token_set(tmp_path / "whole.npy")
        )
        assert len(whole.tokens) < len(open_token_set(tmp_path / "mix").tokens)

    def test_bad_lines_count_over_all_tasks(self, tmp_path: Path, golden: Golden) -> None:
        paths = [tmp_path / f"{n}.jsonl" for n in range(3)]
        for path in paths:
            path.write_text("\n".join([json.dumps({"text": "water rose"}), "no json"] * 2))
        for number in range(3):
            task(sources(*paths, skip_bad=3), tmp_path / "mix", number, 3)
        with golden.refused("too-many-bad-lines"):
            merge(tmp_path / "mix")
        merge(tmp_path / "mix", skip_bad=6)
        pretokenize(sources(*paths, skip_bad=6), BYTES, tmp_path / "whole", OPTIONS)
        assert_same(tmp_path / "mix", tmp_path / "whole")

    def test_bytes_of_all_tasks_that_were_compared_are_counted(
        self, texts: list[Path], tmp_path: Path, tokenizer_folder: Callable[[str], Path]
    ) -> None:
        tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
        made = [task(sources(*texts), tmp_path / "mix", number, 2, tokenizer) for number in range(2)]
        each = [result.manifest["engine"]["compared_bytes"] for result in made]
        assert merge(tmp_path / "mix").manifest["engine"]["compared_bytes"] == sum(each)

    def test_each_engine_is_recorded(self, tmp_path: Path, tokenizer_folder: Callable[[str], Path]) -> None:
        paths = [tmp_path / f"{n}.txt" for n in range(2)]
        for path in paths:
            path.write_text("The water rose. " * 30)
        tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
        for number, engine in enumerate(("fastokens", "huggingface")):
            task(sources(*paths), tmp_path / "mix", number, 2, tokenizer, engine=engine)
        manifest = merge(tmp_path / "mix").manifest
        assert [facts["name"] for facts in manifest["engines"]] == ["fastokens", "huggingface"]
        assert manifest["engine"] == manifest["engines"][0]


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name} water rose\n" * 40)
    return [tmp_path / f"{name}.txt" for name in "abc"]


class TestRefusals:
    def test_missing_tasks(self, texts: list[Path], tmp_path: Path, golden: Golden) -> None:
        task(sources(*texts), tmp_path / "my mix", 1, 3)
        assert merge_if_done(tmp_path / "my mix") is None
        with golden.refused("tasks-missing"):
            merge(tmp_path / "my mix")

    def test_no_tasks_at_all(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("tasks-none"):
            merge(tmp_path / "mix")
        with golden.refused("output-not-folder"):
            merge(tmp_path / "mix.npy")

    def test_an_input_that_changed_between_tasks(
        self, texts: list[Path], tmp_path: Path, golden: Golden
    ) -> None:
        task(sources(*texts), tmp_path / "mix", 0, 3)
        with open(texts[2], "a") as file:
            file.write("more")
        with golden.refused("tasks-differ", numbers=False):
            task(sources(*texts), tmp_path / "mix", 1, 3)

    def test_a_task_that_was_damaged(self, texts: list[Path], tmp_path: Path, golden: Golden) -> None:
        for number in range(3):
            task(sources(*texts), tmp_path / "mix", number, 3)
        shard = SetTask(1, 3).files(tmp_path / "mix").tokens / "shard_00001.npy"
        shard.write_bytes(shard.read_bytes()[:-2])
        with golden.refused("task-damaged"):
            merge(tmp_path / "mix")
        shutil.rmtree(shard.parent)
        task(sources(*texts), tmp_path / "mix", 1, 3)
        assert merge(tmp_path / "mix").made

    def test_another_set_of_that_name(self, texts: list[Path], tmp_path: Path, golden: Golden) -> None:
        pretokenize(sources(texts[0]), BYTES, tmp_path / "mix", OPTIONS)
        with golden.refused("output-differs", name="before"):
            task(sources(*texts), tmp_path / "mix", 0, 1)
        shutil.move(tmp_path / "mix", tmp_path / "aside")
        task(sources(*texts), tmp_path / "mix", 0, 1)
        shutil.move(tmp_path / "aside", tmp_path / "mix")
        with golden.refused("output-differs", name="after"):
            merge(tmp_path / "mix")
        assert SetFiles(tmp_path / "mix").tasks.is_dir()

    def test_tasks_left_by_a_set_that_was_made_in_one_process(
        self, texts: list[Path], tmp_path: Path, golden: Golden
    ) -> None:
        task(sources(*texts), tmp_path / "mix", 0, 3)
        lines: list[str] = []
        pretokenize(sources(*texts), BYTES, tmp_path / "mix", OPTIONS, log=lines.append)
        golden.lines("\n".join(lines), "rm -r")
        with golden.refused("output-differs"):
            merge(tmp_path / "mix")
        assert SetFiles(tmp_path / "mix").tasks.is_dir()

    def test_a_task_without_text(self, texts: list[Path], tmp_path: Path, golden: Golden) -> None:
        texts[1].write_text("==\n==\n")
        with golden.refused("no-text"):
            task(sources(*texts, document_separator="=="), tmp_path / "mix", 1, 3)

    def test_an_unfinished_set_of_the_same_name_is_not_lost(
        self, texts: list[Path], tmp_path: Path, golden: Golden
    ) -> None:
        task(sources(*texts), tmp_path / "mix", 0, 1)
        partial = SetFiles(tmp_path / "mix").partial
        partial.mkdir()
        atomic_files.write_json(partial / "journal.json", {"version": 2, "job": "hours of work"})
        with golden.refused("unfinished-of-other"):
            merge(tmp_path / "mix")
        shutil.rmtree(partial)
        assert merge(tmp_path / "mix").made


def attempt(folder: Path, point: str, count: int, tasks: str, then: str = "-") -> None:
    """Do these tasks, and with `m` merge them, in a process killed at the `count`th time of the point.

    count: 0: in this process, to the end.
    """

    def work() -> None:
        with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal, "SYNC_TOKENS", 150)
            for number in map(int, tasks):
                task(sources(*map(Path, ("a.txt", "b.txt", "c.txt"))), Path("mix"), number, 3)
            if "m" in then:
                merge_if_done(Path("mix"))

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
            pytest.param("00001-of-00003:before_commit", 1, marks=pytest.mark.slow),
            pytest.param("00001-of-00003:moved_shard_00001.npy", 1, marks=pytest.mark.slow),
        ],
    )
    def test_a_task_resumes(self, point: str, count: int, texts: list[Path], tmp_path: Path) -> None:
        attempt(tmp_path, "-", 0, "02", "m")
        attempt(tmp_path, point, count, "1", "m")
        assert not (tmp_path / "mix").exists()
        lines: list[str] = []
        pretokenize_task(sources(*texts), BYTES, tmp_path / "mix", SetTask(1, 3), OPTIONS, lines.append)
        if "noted" in point:
            assert any(line.startswith(CONTINUES) for line in lines)
        self.check(texts, tmp_path)

    @pytest.mark.parametrize(
        "point",
        [
            *("linked_shard_00020.npy", "moved_manifest.json"),
            *(
                pytest.param(name, marks=pytest.mark.slow)
                for name in (
                    *("linked_shard_00000.npy", "before_commit", "after_commit"),
                    *("moved_shard_00003.npy", "moved_tokenizer", "tasks_used"),
                )
            ),
        ],
    )
    def test_a_merge_resumes(self, point: str, texts: list[Path], tmp_path: Path) -> None:
        attempt(tmp_path, f"mix:{point}", 1, "012", "m")
        if point.startswith(("after", "moved", "tasks")):
            open_token_set(tmp_path / "mix")  # a reader can come first
        self.check(texts, tmp_path)

    @staticmethod
    def check(texts: list[Path], folder: Path) -> None:
        """Merging (again) gives the set, twice gives nothing new."""
        merge(folder / "mix")
        assert not merge(folder / "mix").made
        pretokenize(sources(*texts), BYTES, folder / "whole", OPTIONS)
        assert_same(folder / "mix", folder / "whole")
        assert all(found.ok is not False for found in check_set(folder / "mix"))

    def test_a_second_process_on_a_task_is_refused(self, texts: list[Path], tmp_path: Path) -> None:
        task(sources(*texts), tmp_path / "mix", 2, 3)
        own = SetTask(1, 3).files(tmp_path / "mix")
        with lock_file.lock(own.lock, "it"):
            with pytest.raises(lock_file.LockHeld):
                task(sources(*texts), tmp_path / "mix", 1, 3)
            task(sources(*texts), tmp_path / "mix", 0, 3)

    def test_of_two_that_merge_one_does(self, texts: list[Path], tmp_path: Path) -> None:
        for number in range(3):
            task(sources(*texts), tmp_path / "mix", number, 3)
        with lock_file.lock(SetFiles(tmp_path / "mix").lock, "it"):
            assert merge_if_done(tmp_path / "mix") is None
        found = merge_if_done(tmp_path / "mix")
        assert found is not None
        assert found.made


class TestCommand:
    SHARED = (
        "a.txt",
        "b.txt",
        "c.txt",
        "--tokenizer",
        "bytes",
        "--output",
        "mix",
        "--tokens-per-shard",
        "200",
    )

    def test_as_typed(
        self,
        texts: list[Path],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        golden: Golden,
    ) -> None:
        monkeypatch.chdir(tmp_path)

        def typed(*arguments: str, code: int = 0) -> str:
            assert pretokenize_dataset.main([*arguments]) == code
            said = capsys.readouterr()
            return said.out if code == 0 else said.err

        golden.text(without_memory_lines(typed(*self.SHARED, "--block-range", "0/2")), numbers=False)
        golden.text(typed("merge", "mix", code=2))
        golden.text(without_memory_lines(typed(*self.SHARED, "--block-range", "0/2")), numbers=False)
        last = typed(*self.SHARED, "--block-range=1/2", "--format", "megatron")
        golden.text(without_memory_lines(last), numbers=False)
        facts = json.loads(typed("merge", "mix", "--json", "--format", "megatron"))
        assert [facts["made"], facts["tokens"]] == [False, 1563]
        assert [exported["format"] for exported in facts["exports"]] == ["megatron"]
        assert json.loads(typed(*self.SHARED, "--block-range", "1/2", "--json"))["is_merged"]
        typed("merge", "mix", "--overwrite", code=2)
        typed("verify", "mix")
        typed("verify", "mix.megatron")

    def test_processes_at_the_same_time_make_one_set(self, texts: list[Path], tmp_path: Path) -> None:
        command = [
            sys.executable,
            str(ROOT / "pretokenize_dataset.py"),
            *self.SHARED,
            "--val-fraction",
            "0.3",
        ]
        started = [
            subprocess.Popen([*command, "--block-range", f"{n}/3"], cwd=tmp_path, stderr=subprocess.DEVNULL)
            for n in range(3)
        ]
        assert [process.wait() for process in started] == [0, 0, 0]
        merge_if_done(tmp_path / "mix")  # the last two can have ended at the same moment
        pretokenize(sources(*texts), BYTES, tmp_path / "whole", Options(shard_tokens=200, val_fraction=0.3))
        assert_same(tmp_path / "mix", tmp_path / "whole")

    @pytest.mark.parametrize(
        "flags", [["--val", "b.txt"], ["--train-tokenizer", "300"], ["--overwrite"], ["--dry-run"]]
    )
    def test_flags_that_tasks_do_not_take(
        self,
        flags: list[str],
        texts: list[Path],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        golden: Golden,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert pretokenize_dataset.main([*self.SHARED, "--block-range", "0/2", *flags]) == 2
        golden.text(without_memory_lines(capsys.readouterr().err), numbers=False)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "c.txt"]

    def test_standard_input_is_refused(self, tmp_path: Path, golden: Golden) -> None:
        done = subprocess.run(
            [
                *(sys.executable, "pretokenize_dataset.py", "-", "--tokenizer", "bytes"),
                *("--output", str(tmp_path / "mix"), "--tokens-per-shard", "5", "--block-range", "0/1"),
            ],
            input="water", cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2
        golden.text(without_memory_lines(done.stderr), numbers=False)
