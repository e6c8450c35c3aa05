"""Encodings of tiktoken: found by name, kept in a set, read back without network or package."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conf.schema import Tokenizer as Spec
from data_loading.tokenizers.load import KNOWN, load_tokenizer, name_of, tokenizer_spec
from data_loading.tokenizers.read_files import holds_tokenizer, read_tokenizer
from data_loading.tokenizers.tiktoken import RANKS_FILE, TIKTOKEN_FILE, TiktokenTokenizer, ranks_text
from data_loading.tokenizers.tiktoken_names import load_encoding
from tests.data_loading.conftest import hostile_text
from tests.data_loading.tiktoken_plugin import PATTERN, SPECIAL, forget, ranks, ranks_of
from tests.golden_text import Golden
from tests.searched import examples


def named(name: str) -> TiktokenTokenizer:
    found = load_tokenizer(tokenizer_spec(name))
    assert isinstance(found, TiktokenTokenizer)
    return found


class TestNames:
    def test_with_and_without_the_prefix(self, tiktoken_here: Path) -> None:
        assert tokenizer_spec("tiny_r50k") == tokenizer_spec("tiktoken:tiny_r50k")
        assert tokenizer_spec("cl100k_base") == Spec(name="tiktoken:cl100k_base", repo="tiktoken:cl100k_base")
        assert named("tiny_r50k").name == "tiktoken:tiny_r50k"
        custom = load_tokenizer(Spec(name="custom", repo="tiktoken:tiny_r50k"))
        assert custom.name == "tiktoken:tiny_r50k"

    def test_gpt2_stays_the_one_of_hugging_face(self, tiktoken_here: Path) -> None:
        assert tokenizer_spec("gpt2").repo == "openai-community/gpt2"
        assert tokenizer_spec("tiktoken:gpt2").repo == "tiktoken:gpt2"

    def test_sets_of_a_command_and_of_a_run_have_one_name(self, tiktoken_here: Path) -> None:
        for name in ("bytes", "gpt2", "tiny_r50k", "org/name"):
            spec = tokenizer_spec(name)
            assert name_of(spec) == spec.name
            if name not in KNOWN:
                assert name_of(Spec(name="custom", repo=spec.repo)) == spec.name
        assert name_of(Spec(name="custom", path="x", repo="org/name")) == "custom"

    def test_a_folder_of_that_name_comes_first(
        self, tiktoken_here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "tiny_r50k").mkdir()
        monkeypatch.chdir(tmp_path)
        assert tokenizer_spec("tiny_r50k").path == "tiny_r50k"

    def test_an_unknown_one_is_refused_with_the_choices(self, tiktoken_here: Path, golden: Golden) -> None:
        with golden.refused("tokenizer-not-found"):
            tokenizer_spec("tiktoken:tiny")
        with golden.refused("tokenizer-not-found"):
            load_encoding("tiktoken:tiny")

    def test_without_the_package_it_is_named_with_its_command(
        self, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setitem(sys.modules, "tiktoken", None)
        for name in ("cl100k_base", "tiktoken:whatever"):
            with golden.refused("package-missing"):
                load_tokenizer(tokenizer_spec(name))
        with golden.refused("tokenizer-folder-missing"):
            tokenizer_spec("tiny_r50k")

    def test_a_broken_plugin_is_told(
        self, tiktoken_here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        (tmp_path / "other" / "tiktoken_ext").mkdir(parents=True)
        (tmp_path / "other" / "tiktoken_ext" / "broken_plugin.py").write_text("")
        monkeypatch.syspath_prepend(str(tmp_path / "other"))
        forget()
        with golden.refused("tiktoken-plugin-broken"):
            tokenizer_spec("tiktoken:tiny_r50k")


class TestRanksFromElsewhere:
    def test_offline_it_is_said_what_to_do(self, tiktoken_here: Path, golden: Golden) -> None:
        with golden.refused("tokenizer-not-found"):
            load_encoding("tiktoken:far_away")

    def test_what_was_fetched_elsewhere_is_found_in_the_cache(
        self, tiktoken_here: Path, tmp_path: Path
    ) -> None:
        cached = tmp_path / "cache" / hashlib.sha1(b"http://127.0.0.1:9/far.ranks").hexdigest()
        cached.parent.mkdir()
        cached.write_text(ranks_text(ranks()))
        assert load_encoding("tiktoken:far_away").content_hash == named("tiny_r50k").content_hash

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("few_bytes", "tokenizer-loses-bytes"),
            ("same_id", "tiktoken-id-twice"),
            ("not_there", "tiktoken-encoding-broken"),
        ],
    )
    def test_what_cannot_encode_is_refused(
        self, name: str, code: str, tiktoken_here: Path, golden: Golden
    ) -> None:
        with golden.refused(code):
            load_encoding(f"tiktoken:{name}")


class TestTokenizer:
    @pytest.mark.parametrize("name", PATTERN)
    @settings(max_examples=examples(25))
    @given(text=hostile_text)
    @example(text="a\n  ")
    @example(text=" \r\n \n\t")
    def test_ids_are_those_of_tiktoken_and_decode_to_the_text(
        self, name: str, text: str, tiktoken_here: Path
    ) -> None:
        import tiktoken

        tokenizer = named(name)
        ids = tokenizer.encode(text)
        assert ids.dtype == np.uint32
        assert ids.tolist() == tiktoken.get_encoding(name).encode_ordinary(text)
        assert tokenizer.decode(ids) == text

    def test_a_token_that_no_merges_make_is_taken_whole(self, tiktoken_here: Path) -> None:
        import tiktoken

        made = replace(named("tiny_r50k"), ranks=ranks_text(ranks() | {b"zqzqz": 780, b"qzqzq": 790}))
        encoding = tiktoken.Encoding(
            "made", pat_str=made.pattern, mergeable_ranks=ranks() | {b"zqzqz": 780, b"qzqzq": 790},
            special_tokens={},
        )  # fmt: skip
        for text in ("zqzqz", "qzqzq", "azqzqz qzqzqzqzqzq", "zqzqzq"):
            assert made.encode(text).tolist() == encoding.encode_ordinary(text)

    @settings(max_examples=examples(40))
    @given(
        tokens=st.lists(st.text("ab", min_size=2, max_size=6), unique=True, max_size=25),
        text=st.text("ab ", max_size=40),
    )
    @example(tokens=["ab", "ba", "aba"], text="baba ababab")
    @example(tokens=["aba", "ab", "ba", "bab"], text="baba ababab babab")
    def test_any_ranks_give_the_ids_of_tiktoken(
        self, tokens: list[str], text: str, tiktoken_here: Path
    ) -> None:
        """Also where a token has a lower rank than its parts, or none of its divisions is reached."""
        import tiktoken

        some = {bytes([byte]): byte for byte in range(256)}
        some |= {token.encode(): 256 + 2 * number for number, token in enumerate(tokens)}
        pattern = named("tiny_r50k").pattern
        encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=some, special_tokens={})
        made = TiktokenTokenizer("x", pattern, {}, ranks_text(some))
        assert made.encode(text).tolist() == encoding.encode_ordinary(text)

    def test_an_unknown_pattern_decodes_and_refuses_to_encode(
        self, tiktoken_here: Path, golden: Golden
    ) -> None:
        tokenizer = named("unknown_pattern")
        assert tokenizer.decode([ranks()[b"a"]]) == "a"
        with golden.refused("tiktoken-pattern-unknown"):
            tokenizer.encode("a")

    def test_sizes_holes_and_end_of_text(self, tiktoken_here: Path) -> None:
        tokenizer = named("tiny_r50k")
        assert tokenizer.vocab_size == max(SPECIAL.values()) + 1 == 804
        assert tokenizer.unused_ids == 804 - len(ranks()) - len(SPECIAL)
        assert tokenizer.eot_id == 800
        assert named("no_end").eot_id is None
        assert tokenizer.decode([801, 800, ranks()[b"a"], ranks()[b"\xff"]]) == "\ufffd<|endoftext|>a\ufffd"

    def test_the_hash_is_that_of_earlier_versions(self) -> None:
        some = ranks_text({bytes([byte]): byte for byte in range(256)} | {b"ab": 256})
        made = TiktokenTokenizer("x", "p", {"<|endoftext|>": 300}, some)
        assert made.content_hash == "c24ca4981e330ac9bb947799bbf8ed520102d2d8248710041fe5687c98cb29a5"

    def test_the_hash_tells_content_not_names(self, tiktoken_here: Path) -> None:
        tokenizer = named("tiny_r50k")
        assert replace(tokenizer, name="other").content_hash == tokenizer.content_hash
        assert replace(tokenizer, parses_special=True).content_hash == tokenizer.content_hash
        others = [
            replace(tokenizer, pattern="x"),
            replace(tokenizer, special_tokens={"<|endoftext|>": 801}),
            replace(tokenizer, ranks=tokenizer.ranks.replace(" 500\n", " 799\n")),
        ]
        hashes = {other.content_hash for other in (tokenizer, *others)}
        assert len(hashes) == 4

    def test_the_ranks_of_gpt2_give_the_ids_of_gpt2(self, shared_data: Path, tmp_path: Path) -> None:
        pytest.importorskip("tiktoken")
        from data_loading.tokenizers.cutting.split_patterns import TIKTOKEN_R50K_PATTERN

        folder = shared_data / "gpt2"
        vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        special = {"<|endoftext|>": vocab["<|endoftext|>"]}
        made = TiktokenTokenizer("made", TIKTOKEN_R50K_PATTERN, special, ranks_text(ranks_of(vocab)))
        made.save(tmp_path / "t")
        found, theirs = read_tokenizer(tmp_path / "t", "made"), read_tokenizer(folder, "gpt2")
        assert (found.vocab_size, found.eot_id) == (theirs.vocab_size, theirs.eot_id)
        for name in ("wikitext2_valid.txt", "tinyshakespeare.txt"):
            text = (shared_data / name).read_text(encoding="utf-8")[:300_000]
            assert np.array_equal(found.encode(text), theirs.encode(text)), name


class TestSaved:
    @pytest.fixture
    def folder(self, tiktoken_here: Path, tmp_path: Path) -> Path:
        named("tiny_cl100k").save(tmp_path / "saved")
        return tmp_path / "saved"

    def test_it_is_read_back_the_same(self, folder: Path) -> None:
        there, back = named("tiny_cl100k"), read_tokenizer(folder, "tiktoken:tiny_cl100k")
        assert holds_tokenizer(folder)
        assert back == there
        assert back.content_hash == there.content_hash
        assert np.array_equal(back.encode("The water rose.\n"), there.encode("The water rose.\n"))
        assert load_tokenizer(tokenizer_spec(str(folder))).content_hash == there.content_hash

    def test_its_ranks_are_a_file_of_tiktoken(self, folder: Path) -> None:
        from tiktoken.load import load_tiktoken_bpe

        assert load_tiktoken_bpe(str(folder / RANKS_FILE)) == ranks()

    def test_without_the_package_it_encodes_and_decodes(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ids = named("tiny_cl100k").encode("The water rose.")
        monkeypatch.setitem(sys.modules, "tiktoken", None)
        back = read_tokenizer(folder, "x")
        assert (back.decode(ids), back.vocab_size, back.eot_id) == ("The water rose.", 804, 800)
        assert np.array_equal(back.encode("The water rose."), ids)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda f: cut(f / RANKS_FILE, 3000),
            lambda f: cut(f / RANKS_FILE, whole_lines=200),
            lambda f: (f / RANKS_FILE).write_text(""),
            lambda f: (f / RANKS_FILE).write_bytes(b"\xff\xfe"),
            lambda f: (f / RANKS_FILE).unlink(),
            lambda f: cut(f / TIKTOKEN_FILE, 40),
            lambda f: (f / TIKTOKEN_FILE).write_text("[]"),
            lambda f: edit(f / TIKTOKEN_FILE, "803", "802"),
        ],
        ids=["mid-line", "line-end", "empty", "bytes", "missing", "json-cut", "json-list", "json-edited"],
    )
    def test_damage_is_told(self, damage: Callable[[Path], None], folder: Path, golden: Golden) -> None:
        damage(folder)
        with golden.refused("tokenizer-damaged", numbers=False):
            read_tokenizer(folder, "x")


def cut(path: Path, size: int | None = None, whole_lines: int | None = None) -> None:
    content = path.read_bytes()
    if whole_lines is not None:
        content = b"".join(content.splitlines(keepends=True)[:whole_lines])
    path.write_bytes(content[:size])


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
