"""Sets of tiktoken's encodings: its ids, whatever the engine, cuts, workers, kills and special tokens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conf.schema import Dataset
from conf.schema import Tokenizer as Spec
from data_loading.audit.check_set import check_set
from data_loading.audit.inspection import inspect
from data_loading.find.prepare import prepare_data
from data_loading.pretokenizer.engines.base import Engine
from data_loading.pretokenizer.engines.registry import REMOVED, choose_engine, make_engine
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.journal import write_engine
from data_loading.pretokenizer.make_set import CONTINUES
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.cutting.split_patterns import (
    KNOWN_PATTERNS,
    TIKTOKEN_CL100K_PATTERN,
    TIKTOKEN_R50K_PATTERN,
)
from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec
from data_loading.tokenizers.special_tokens import CHOICES, choose, parsing
from data_loading.tokenizers.tiktoken import TiktokenTokenizer, ranks_text
from tests.data_loading.conftest import hostile_text, training_text
from tests.data_loading.tiktoken_plugin import PATTERN, SPECIAL
from tests.data_loading.tokenizers.cutting.test_cuts import encoded_apart, safe_cuts
from tests.golden_text import Golden
from tests.searched import examples

ROOT = Path(__file__).resolve().parents[3]
SPACE, LINE_FEED = 0x20, 0x0A
text_with_special = st.lists(st.one_of(st.sampled_from([*SPECIAL]), hostile_text), max_size=5).map("".join)


@cache
def named(name: str, special_tokens: str = "text") -> TiktokenTokenizer:
    found = choose(load_tokenizer(tokenizer_spec(name)), special_tokens)
    assert isinstance(found, TiktokenTokenizer)
    return found


@cache
def engine_of(engine: str, name: str) -> Engine:
    return make_engine(engine, named(name))


def silent(line: str) -> None:
    pass


class TestCuts:
    @pytest.mark.parametrize("how", CHOICES)
    @pytest.mark.parametrize("name", PATTERN)
    @settings(max_examples=examples(40))
    @given(text=text_with_special)
    @example(
        text="a b 'S  the word\n\n <tool> x!\n/ the\r\n<tool>  a </s> b<|endoftext|> a  \n!\n !\n\n  '\n's "
    )
    def test_encoding_apart_at_every_safe_cut_gives_the_ids_of_the_whole(
        self, text: str, name: str, how: str, tiktoken_here: Path
    ) -> None:
        tokenizer = named(name, how)
        data = text.encode()
        cuts = list(safe_cuts(data, tokenizer.cut_rule))
        assert encoded_apart(tokenizer, data, cuts) == tokenizer.encode(text).tolist()

    def test_a_line_feed_is_a_border_for_the_patterns_of_gpt2_only(self, tiktoken_here: Path) -> None:
        for name in PATTERN:
            with_line_feed = (SPACE, LINE_FEED) if name in ("tiny_r50k", "tiny_gpt2") else (SPACE,)
            assert named(name).cut_rule.before == with_line_feed

    def test_no_rule_where_a_cut_would_change_ids(self, tiktoken_here: Path, golden: Golden) -> None:
        assert named("spaced").cut_rule.exists, "as text its special tokens are cut like all else"
        golden.text(parsing(named("spaced")).cut_rule.why_none)
        assert parsing(named("lined")).cut_rule.before == (SPACE,)

    def test_the_patterns_are_those_of_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("tiktoken")
        from tiktoken_ext import openai_public

        monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
        monkeypatch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda *_, **__: {})
        made = {name: make()["pat_str"] for name, make in openai_public.ENCODING_CONSTRUCTORS.items()}
        known = {TIKTOKEN_R50K_PATTERN, TIKTOKEN_CL100K_PATTERN, *KNOWN_PATTERNS}
        assert set(made.values()) <= known
        assert {made[name] for name in ("gpt2", "r50k_base", "p50k_base")} == {TIKTOKEN_R50K_PATTERN}


class TestSpecialTokens:
    @settings(max_examples=examples(15))
    @given(text=text_with_special, block=st.integers(1, 60))
    def test_parsed_they_are_the_ids_that_tiktoken_gives(
        self, text: str, block: int, tiktoken_here: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        import tiktoken

        text = text or "x"
        path = tmp_path_factory.mktemp("x") / "a.txt"
        path.write_bytes(text.encode())
        pretokenize(
            TextFile(path), named("lined", "parse"), path.with_suffix(".npy"), Options(block_bytes=block)
        )
        expected = tiktoken.get_encoding("lined").encode(text, allowed_special="all")
        assert np.load(path.with_suffix(".npy")).tolist() == [*expected, 800]

    def test_the_set_says_which_and_deep_verification_reads_it_so(
        self, tiktoken_here: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "a.txt").write_text("One <|endoftext|> two and <tool> three. " * 500)
        for how, count in (("text", 1), ("parse", 501)):
            output = tmp_path / f"{how}.npy"
            made = pretokenize(TextFile(tmp_path / "a.txt"), choose(named("tiny_o200k"), how), output)
            assert made.manifest["options"]["special_tokens"] == how
            assert np.load(output).tolist().count(800) == count
            findings = check_set(output, deep=True)
            assert [str(found) for found in findings if not found.ok] == []
            assert {"whole documents", "token sample"} <= {found.what for found in findings}

    def test_refused_where_it_would_not_be_exact_or_there_are_none(
        self, tiktoken_here: Path, golden: Golden
    ) -> None:
        with golden.refused("special-tokens-ambiguous"):
            parsing(named("prefixes"))
        with golden.refused("special-tokens-none"):
            parsing(named("no_end"))


class TestEngine:
    @pytest.mark.parametrize("engine", ["fastokens", "huggingface"])
    @pytest.mark.parametrize("name", PATTERN)
    @settings(max_examples=examples(25))
    @given(texts=st.lists(hostile_text, max_size=5))
    @example(
        texts=[
            "a b\n  ",
            "The \u180e word\r\n\t\u3000",
            " \n ",
            "x's 'S'\u017f",
            "1234567\n\x0b",
        ]
    )
    def test_ids_and_lengths_are_those_of_tiktoken(
        self, texts: list[str], name: str, engine: str, tiktoken_here: Path
    ) -> None:
        import tiktoken

        encoding = tiktoken.get_encoding(name)
        expected = [encoding.encode_ordinary(text) for text in texts]
        ids, lengths = engine_of(engine, name).encode_batch([text.encode() for text in texts])
        assert (ids.dtype, lengths.dtype) == (np.uint32, np.int64)
        assert lengths.tolist() == [len(part) for part in expected]
        assert ids.tolist() == [number for part in expected for number in part]

    @pytest.mark.parametrize("engine", ["fastokens", "huggingface"])
    @settings(max_examples=examples(40))
    @given(text=st.text("ab! \n\r\t\u3000", max_size=12))
    @example(text="a\n  ")
    @example(text="a b\r\n \n\t")
    def test_whitespace_at_the_end_is_one_piece_for_cl100k(
        self, text: str, engine: str, tiktoken_here: Path
    ) -> None:
        import tiktoken

        ranks = {bytes([byte]): byte for byte in range(256)} | {b"\n ": 256, b"\n  ": 257, b"\n\t": 258}
        encoding = tiktoken.Encoding(
            "x", pat_str=TIKTOKEN_CL100K_PATTERN, mergeable_ranks=ranks, special_tokens={}
        )
        made = TiktokenTokenizer("x", TIKTOKEN_CL100K_PATTERN, {}, ranks_text(ranks))
        found = make_engine(engine, made).encode_batch([text.encode()])[0]
        assert found.tolist() == encoding.encode_ordinary(text)

    @pytest.mark.parametrize("letter", ["a", "é", "中"])
    def test_a_long_run_without_a_space_is_encoded_whole(
        self, letter: str, tiktoken_here: Path, tmp_path: Path
    ) -> None:
        text = "The " + letter * 100_000
        (tmp_path / "a.txt").write_text(text, encoding="utf-8")
        tokenizer = named("tiny_o200k")
        pretokenize(TextFile(tmp_path / "a.txt"), tokenizer, tmp_path / "a.npy", Options(block_bytes=64))
        assert np.array_equal(np.load(tmp_path / "a.npy")[:-1], tokenizer.encode(text))

    def test_the_fast_engine_is_chosen_and_compared(self, tiktoken_here: Path) -> None:
        choice = choose_engine(named("tiny_cl100k"), [b"x" * 1000], silent)
        assert (choice.facts["name"], choice.facts["compared_bytes"]) == ("fastokens", 1000)


KILLED = """
import os, signal, sys
from pathlib import Path
from experiment_utils import atomic_files
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.journal import write_engine
from data_loading.pretokenizer.make_set import CONTINUES
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.read_files import read_tokenizer

text, seen = Path(sys.argv[1]), 0
def on_point(name):
    global seen
    seen += name == "a.npy:noted"
    if seen == 6:
        os.kill(os.getpid(), signal.SIGKILL)
atomic_files.on_point = on_point
tokenizer = read_tokenizer(text.with_name("saved"), "another name")
options = Options(block_bytes=5_000, workers=int(sys.argv[2]))
pretokenize(TextFile(text), tokenizer, text.with_suffix(".npy"), options)
"""
"""Tokenizes a text, and is killed after its sixth block."""


class TestSets:
    @pytest.fixture
    def text(self, tmp_path: Path) -> Path:
        path = tmp_path / "a.txt"
        path.write_text("".join(training_text()) * 4, encoding="utf-8")
        return path

    @pytest.mark.parametrize("name", ["tiny_cl100k", "tiny_r50k"])
    def test_blocks_and_workers_change_no_byte(self, name: str, tiktoken_here: Path, text: Path) -> None:
        tokenizer, made = named(name), []
        for workers, block_bytes in ((0, None), (2, 5_000), (1, 1_000)):
            output = text.with_name(f"{workers}.npy")
            options = Options(workers=workers, block_bytes=block_bytes)
            pretokenize(TextFile(text), tokenizer, output, options)
            made.append(output.read_bytes())
        expected = [*tokenizer.encode(text.read_bytes().decode()).tolist(), 800]
        assert np.load(text.with_name("0.npy")).tolist() == expected
        assert made[0] == made[1] == made[2]

    def test_killed_it_goes_on_to_the_same_bytes(self, tiktoken_here: Path, text: Path) -> None:
        tokenizer, output = named("tiny_o200k"), text.with_suffix(".npy")
        tokenizer.save(text.with_name("saved"))
        for workers in (0, 2):
            done = subprocess.run(
                [sys.executable, "-c", KILLED, str(text), str(workers)],
                cwd=ROOT,
                capture_output=True,
                text=True,
            )
            assert done.returncode == -signal.SIGKILL, done.stderr
        said: list[str] = []
        # As where an earlier version began it, which had an engine of tiktoken.
        write_engine(text.with_name(".a.npy.partial"), {"name": "tiktoken", "version": "0.14.0"})
        pretokenize(TextFile(text), tokenizer, output, Options(block_bytes=5_000, workers=0), said.append)
        assert any(line.startswith(CONTINUES) for line in said)
        undisturbed = text.with_name("b.npy")
        pretokenize(TextFile(text), tokenizer, undisturbed)
        assert output.read_bytes() == undisturbed.read_bytes()
        for name in ("ranks.tiktoken", "tiktoken.json"):
            copies = [text.with_name(f"{stem}.tokenizer") / name for stem in "ab"]
            assert copies[0].read_bytes() == copies[1].read_bytes()

    @pytest.mark.parametrize("engine", REMOVED)
    def test_a_set_of_a_removed_engine_is_read_and_up_to_date(
        self, engine: str, tiktoken_here: Path, text: Path
    ) -> None:
        tokenizer, output = named("tiny_r50k"), text.with_suffix(".npy")
        made = pretokenize(TextFile(text), tokenizer, output).manifest
        manifest = output.with_name("a.npy.json")
        manifest.write_text(json.dumps({**made, "engine": {"name": engine, "version": "0.14.0"}}))
        again = pretokenize(TextFile(text), tokenizer, output)
        assert (again.made, again.manifest["fingerprint"]) == (False, made["fingerprint"])
        assert [str(finding) for finding in check_set(output, deep=True) if finding.ok is False] == []

    def test_the_copy_in_the_set_is_all_that_reading_it_needs(
        self, tiktoken_here: Path, text: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        output = text.with_suffix(".npy")
        pretokenize(TextFile(text), named("tiny_r50k"), output)
        monkeypatch.setitem(sys.modules, "tiktoken", None)
        found = inspect(output)
        assert (found.tokenizer, found.vocab_size) == ("tiktoken:tiny_r50k", 804)
        assert found.first_text is not None
        assert text.read_text().startswith(found.first_text.removesuffix("...")[:100])
        assert [str(finding) for finding in check_set(output) if finding.ok is False] == []
        (text.with_name("a.tokenizer") / "ranks.tiktoken").write_text("YQ== 1\n")
        assert [finding.what for finding in check_set(output) if finding.ok is False] == ["tokenizer"]

    def test_a_run_takes_the_copy_and_needs_no_package(
        self, tiktoken_here: Path, text: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        pretokenize(TextFile(text), named("tiny_r50k"), text.with_suffix(".npy"))
        dataset = Dataset(source="text", path=str(text))
        asked = Spec(name="custom", repo="tiktoken:tiny_r50k")
        with monkeypatch.context() as patch:  # as where its ranks would have to be fetched
            patch.setattr("tiktoken.get_encoding", lambda name: pytest.fail("not needed"))
            with_package = prepare_data(dataset, asked, tokenize=False)
        monkeypatch.setitem(sys.modules, "tiktoken", None)
        without = prepare_data(dataset, asked, tokenize=False)
        assert with_package.fingerprint == without.fingerprint
        assert (without.tokenizer_name, without.vocab_size, without.eot_id) == (
            "tiktoken:tiny_r50k",
            804,
            800,
        )
        with golden.refused("package-missing"):
            prepare_data(dataset, Spec(name="custom", repo="tiktoken:tiny_o200k"), tokenize=False)

    def test_another_encoding_than_that_of_the_set_is_refused(
        self, tiktoken_here: Path, text: Path, golden: Golden
    ) -> None:
        pretokenize(TextFile(text), named("tiny_r50k"), text.with_suffix(".npy"))
        dataset = Dataset(source="text", path=str(text))
        with golden.refused("tokenizer-differs", numbers=False):
            prepare_data(dataset, Spec(name="custom", repo="tiktoken:tiny_cl100k"), tokenize=False)

    @pytest.mark.slow
    def test_from_the_command_line_to_a_run(self, tiktoken_folder: Path, text: Path, tmp_path: Path) -> None:
        command = partial(run, tmp_path, tiktoken_folder)
        tokenized = command("pretokenize_dataset.py", "a.txt", "--tokenizer", "tiny_o200k", "--workers", "2")
        words = tokenized.splitlines()[-1].split()
        following = ["experiments.py", *words[words.index("run") + 1 :]]
        assert {"tokenizer=custom", "tokenizer.repo=tiktoken:tiny_o200k"} <= set(following)
        assert "tiktoken:tiny_o200k" in command(*following, "plan=true", "training.max_tokens=2K")
        again = command("pretokenize_dataset.py", "a.txt", "--tokenizer", "./a.tokenizer", "--json")
        assert json.loads(again)["made"] is False, "by content, not by name"
        # Where neither the encoding nor its ranks are known, the set's own copy is taken.
        elsewhere = run(tmp_path, tmp_path / "nothing", *following, "plan=true", "training.max_tokens=2K")
        assert "tiktoken:tiny_o200k" in elsewhere
        planned = command(
            "pretokenize_dataset.py", "a.txt", "--tokenizer", "tiny_r50k", "--output", "b.npy", "--dry-run"
        )
        assert "tiktoken:tiny_r50k" in planned


def run(folder: Path, on_path: Path, script: str, *arguments: str) -> str:
    """What a command prints. on_path: where its tiktoken finds encodings."""
    environment = os.environ | {
        "PYTHONPATH": f"{on_path}:{ROOT}",
        "TIKTOKEN_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
