"""Tokenizers: the same ids as transformers, the same hash for the same content, broken ones refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer, JsonTokenizer, Tokenizer
from experiment_utils.errors import UserError
from tests.data_loading.conftest import WITH_RULE, WITHOUT_RULE, hostile_text, tokenizer_folder_text
from tests.golden_text import Golden
from tests.searched import examples


def write_vocab_and_merges(folder: Path, definition: dict[str, Any]) -> Path:
    """The two files of GPT-2 that say what a byte-level tokenizer.json says."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(definition["model"]["vocab"]), encoding="utf-8")
    merges = "".join(f"{left} {right}\n" for left, right in definition["model"]["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    return folder


def added_token(index: int, content: str, *, special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": content, "special": special, **flags}


@pytest.fixture(scope="session")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two_files")
    return write_vocab_and_merges(folder, json.loads(tokenizer_folder_text("gpt2")))


def gpt2_of_transformers(folder: Path) -> Any:
    from transformers import GPT2Tokenizer

    return GPT2Tokenizer.from_pretrained(folder)


def expected_ids(theirs: Any, text: str) -> list[int]:
    """Ids of transformers with a literal special token read as text."""
    theirs.backend_tokenizer.encode_special_tokens = True
    return theirs.backend_tokenizer.encode(text, add_special_tokens=False).ids


class TestBytes:
    def test_ids_are_the_bytes_of_utf8(self) -> None:
        tokenizer = BytesTokenizer()
        ids = tokenizer.encode("é\r\n\0")
        assert ids.dtype == np.uint32
        assert ids.tolist() == [0xC3, 0xA9, 0x0D, 0x0A, 0x00]
        assert (tokenizer.vocab_size, tokenizer.eot_id) == (257, 256)

    @given(hostile_text)
    def test_decoding_gives_the_text_back(self, text: str) -> None:
        tokenizer = BytesTokenizer()
        assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_end_of_text_is_seen_when_decoding_and_broken_characters_do_not_fail(self) -> None:
        assert BytesTokenizer().decode([0x61, 256, 0xC3, 256]) == "a<|endoftext|>\ufffd<|endoftext|>"

    def test_a_saved_one_is_read_back(self, tmp_path: Path) -> None:
        BytesTokenizer().save(tmp_path / "t")
        assert isinstance(read_tokenizer(tmp_path / "t", "bytes"), BytesTokenizer)


class TestTwoFilesOfGpt2:
    def test_the_tokenizer_built_is_the_one_of_transformers(self, two_files: Path) -> None:
        built = read_tokenizer(two_files, "gpt2")
        theirs = json.loads(gpt2_of_transformers(two_files).backend_tokenizer.to_str())
        assert isinstance(built, JsonTokenizer)
        for part in ("normalizer", "pre_tokenizer", "model", "added_tokens", "decoder"):
            assert built.definition[part] == theirs[part], part

    @settings(max_examples=examples(50))
    @given(text=hostile_text)
    def test_ids_are_those_of_transformers(self, text: str, two_files: Path) -> None:
        assert read_tokenizer(two_files, "g").encode(text).tolist() == expected_ids(_theirs(two_files), text)

    def test_a_literal_end_of_text_is_ordinary_text(self, two_files: Path) -> None:
        tokenizer = read_tokenizer(two_files, "gpt2")
        ids = tokenizer.encode("a<|endoftext|>b")
        assert tokenizer.eot_id not in ids.tolist()
        assert tokenizer.decode(ids) == "a<|endoftext|>b"
        assert tokenizer.decode([tokenizer.eot_id or 0]) == "<|endoftext|>"

    def test_add_prefix_space_of_the_config_counts(self, two_files: Path, tmp_path: Path) -> None:
        definition = json.loads(tokenizer_folder_text("gpt2"))
        folder = write_vocab_and_merges(tmp_path / "t", definition)
        (folder / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": True}))
        built = read_tokenizer(folder, "gpt2")
        assert built.encode("the").tolist() == expected_ids(gpt2_of_transformers(folder), "the")
        assert built.encode("the").tolist() != read_tokenizer(two_files, "gpt2").encode("the").tolist()

    def test_real_gpt2_on_real_text(self, shared_data: Path) -> None:
        theirs = gpt2_of_transformers(shared_data / "gpt2")
        ours = read_tokenizer(shared_data / "gpt2", "gpt2")
        text = (shared_data / "wikitext2_valid.txt").read_text(encoding="utf-8")[:200_000]
        assert ours.encode(text).tolist() == expected_ids(theirs, text)
        assert (ours.vocab_size, ours.eot_id) == (50257, 50256)


def _theirs(folder: Path, known: dict[Path, Any] = {}) -> Any:  # noqa: B006 (a cache)
    if folder not in known:
        known[folder] = gpt2_of_transformers(folder)
    return known[folder]


class TestContentHash:
    def test_is_of_the_content_not_of_the_layout(
        self, two_files: Path, tmp_path: Path, tokenizer_folder: Callable[[str], Path]
    ) -> None:
        as_json = read_tokenizer(tokenizer_folder("gpt2"), "a")
        assert as_json.content_hash == read_tokenizer(two_files, "b").content_hash
        old = json.loads(tokenizer_folder_text("gpt2"))
        old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
        del old["model"]["type"], old["model"]["byte_fallback"], old["pre_tokenizer"]["use_regex"]
        truncation = {"max_length": 5, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}
        old |= {"truncation": truncation, "decoder": None, "post_processor": None}
        old["added_tokens"][0]["normalized"] = True  # says nothing of a token that is read as text
        (tmp_path / "tokenizer.json").write_text(json.dumps(old))
        assert read_tokenizer(tmp_path, "c").content_hash == as_json.content_hash

    def test_differs_between_all_families(self, tokenizer_folder: Callable[[str], Path]) -> None:
        families = WITH_RULE + WITHOUT_RULE
        hashes = {read_tokenizer(tokenizer_folder(family), family).content_hash for family in families}
        hashes.add(BytesTokenizer().content_hash)
        assert len(hashes) == len(families) + 1

    @pytest.mark.parametrize("change", ["merges", "vocab", "added", "eot", "prefix"])
    def test_changes_with_whatever_changes_ids(self, change: str, tmp_path: Path) -> None:
        definition = json.loads(tokenizer_folder_text("gpt2"))
        tmp_path.joinpath("tokenizer.json").write_text(json.dumps(definition))
        before = read_tokenizer(tmp_path, "x").content_hash
        vocab = definition["model"]["vocab"]
        if change == "merges":
            definition["model"]["merges"][:2] = definition["model"]["merges"][1::-1]
        elif change == "vocab":
            vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
        elif change == "added":
            definition["added_tokens"].append(added_token(len(vocab), "<x>", special=False))
        elif change == "eot":
            (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "a"}))
        else:
            definition["pre_tokenizer"]["add_prefix_space"] = True
        tmp_path.joinpath("tokenizer.json").write_text(json.dumps(definition))
        assert read_tokenizer(tmp_path, "x").content_hash != before

    def test_the_constant_of_bytes_never_changes(self) -> None:
        known = "39307ea688406daeb3fce13cb05b74041b2bde8fc49d4c26530985ff4ae11e27"
        assert BytesTokenizer().content_hash == known


class TestEndOfText:
    def definition(self, *names: str) -> dict[str, Any]:
        definition = json.loads(tokenizer_folder_text("gpt2"))
        vocab = definition["model"]["vocab"]
        vocab["water"] = vocab.pop("<|endoftext|>")
        definition["added_tokens"] = [added_token(700 + i, name) for i, name in enumerate(names)]
        return definition

    @pytest.mark.parametrize(
        ("names", "config", "expected"),
        [
            (["</s>", "<|endoftext|>"], {}, 701),
            (["</s>"], {}, 700),
            (["<a>", "</s>"], {"eos_token": "<a>"}, 700),
            (["<a>", "</s>"], {"eos_token": {"content": "<a>", "lstrip": False}}, 700),
            (["<a>", "</s>"], {"eos_token": "<not there>"}, 701),
            (["<a>"], {}, None),
        ],
    )
    def test_comes_from_the_config_or_the_usual_names(
        self, names: list[str], config: dict[str, Any], expected: int | None, tmp_path: Path
    ) -> None:
        (tmp_path / "tokenizer.json").write_text(json.dumps(self.definition(*names)))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        assert read_tokenizer(tmp_path, "x").eot_id == expected

    def test_special_tokens_map_counts_as_well(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text(json.dumps(self.definition("<a>", "</s>")))
        (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<a>"}))
        assert read_tokenizer(tmp_path, "x").eot_id == 700

    def test_ids_with_a_hole_count_for_the_vocabulary_size(self, tmp_path: Path) -> None:
        definition = self.definition()
        definition["model"]["vocab"]["zz"] = 800
        (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
        assert read_tokenizer(tmp_path, "x").vocab_size == 801


class TestByteLevelAsNormalizer:
    def definition(self) -> dict[str, Any]:
        definition = json.loads(tokenizer_folder_text("gpt2"))
        return {
            **definition,
            "normalizer": {"type": "ByteLevel"},
            "decoder": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            },
            "pre_tokenizer": {"type": "WhitespaceSplit"},
        }

    def test_drops_nothing_and_is_taken(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text(json.dumps(self.definition()))
        tokenizer = read_tokenizer(tmp_path, "x")
        assert tokenizer.decode(tokenizer.encode("naïve 文字 the word\n")) == "naïve 文字 the word\n"
        assert "ByteLevel" in tokenizer.cut_rule.why_none

    def test_is_refused_where_bytes_would_be_dropped(self, tmp_path: Path, golden: Golden) -> None:
        definition = self.definition()
        del definition["model"]["vocab"]["ô"]
        (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
        with golden.refused("tokenizer-loses-bytes"):
            read_tokenizer(tmp_path, "x")


Change = Callable[[dict[str, Any]], Any]


def top(**values: Any) -> Change:
    return lambda definition: definition.update(values)


def model(**values: Any) -> Change:
    return lambda definition: definition["model"].update(values)


def alone(**values: Any) -> Change:
    """A definition that is nothing but this model."""
    return lambda definition: (definition.clear(), definition.update(model=values, added_tokens=[]))


def entries(**ids: Any) -> Change:
    return lambda definition: definition["model"]["vocab"].update(ids)


def added(token: Any) -> Change:
    return lambda definition: definition["added_tokens"].append(token)


def letters(definition: dict[str, Any]) -> None:
    definition.update(pre_tokenizer=None, added_tokens=[])
    definition["model"].update(vocab={"a": 0, "b": 1, "c": 2}, merges=[])


def half_a_fallback(definition: dict[str, Any]) -> None:
    letters(definition)
    definition["model"]["byte_fallback"] = True
    definition["model"]["vocab"] |= {f"<0x{byte:02X}>": 3 + byte for byte in range(255)}


def empty_once_normalized(definition: dict[str, Any]) -> None:
    """The library ends in a panic at the first text."""
    definition["normalizer"] = {"type": "StripAccents"}
    added({**added_token(900, "\u0301"), "normalized": True})(definition)


def in_both_ways(step: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"step": step, "sequence": {"type": "Sequence", "normalizers": [{"type": "NFC"}, step]}}


WORDS, SCORES = {"a": 0, "b": 1}, [["a", -1.0], ["b", -2.0]]
REFUSED: dict[str, dict[str, Change]] = {
    "tokenizer-model-unknown": {"other": lambda d: (d.clear(), d.update(a=1))},
    "tokenizer-empty": {
        f"{len(vocab)} ids": lambda d, v=vocab: (model(vocab=v, merges=[])(d), top(added_tokens=[])(d))
        for vocab in ({}, {"a": 0})
    },
    "tokenizer-loses-bytes": {"one": lambda d: d["model"]["vocab"].pop("ô")},
    "tokenizer-loses-characters": {"letters": letters, "half a fallback": half_a_fallback},
    "tokenizer-unknown-missing": {"UNK": model(unk_token="[UNK]")},
    "tokenizer-without-unknown": {
        "WordLevel": alone(type="WordLevel", vocab=WORDS, unk_token="[UNK]"),
        "WordPiece": alone(type="WordPiece", vocab=WORDS, unk_token="[UNK]"),
        **{f"Unigram {n}": alone(type="Unigram", vocab=SCORES, unk_id=n) for n in (None, 2, -1, "x")},
        "Unigram with bytes": alone(type="Unigram", vocab=SCORES, unk_id=None, byte_fallback=True),
        "WordLevel of a list": alone(type="WordLevel", vocab=WORDS, unk_token=["a"]),
    },
    "tokenizer-vocabulary-invalid": {
        **{f"{index!r}": entries(zz=index) for index in (-1, 0.5, True, "1", None, 1 << 32)},
        "numbers": alone(type="WordLevel", vocab=[1, 2]),
        "a number": alone(type="BPE", vocab=3, merges=[]),
    },
    "tokenizer-added-empty": {"normalized": empty_once_normalized},
    "tokenizer-added-id": {
        f"{content}={index}": added(added_token(index, content))
        for content, index in (("<x>", 702), ("<x>", 5), ("a", 700))
    },
    "tokenizer-added-invalid": {
        json.dumps(tokens): top(added_tokens=tokens)
        for tokens in ([{}], ["x"], "x", [{"content": "x"}], [{"content": 5, "id": 3}], {"a": 1})
    },
    "tokenizer-random": {"dropout": model(dropout=0.1)},
    "tokenizer-merge-invalid": {
        json.dumps(merge): model(merges=[merge])
        for merge in (["no", "such"], "ab", "a b c", ["a", "b", "c"], ["a"], ["a", 1], 5, None, {})
    },
}
NOT_LOADED: dict[str, Change] = {
    "prefix": model(continuing_subword_prefix=3),
    "suffix": model(end_of_word_suffix=[1]),
    "unk_token": model(unk_token=["x"]),
    "byte_fallback": model(byte_fallback="yes"),
    "WordPiece": alone(type="WordPiece", vocab={"a": 0, "[UNK]": 1}, unk_token="[UNK]"),
    "flags": top(added_tokens=[{"content": "x", "id": 5000}]),
    **{
        name: top(**{name: {"type": "Nope"}})
        for name in ("post_processor", "decoder", "truncation", "padding")
    },
    **{
        f"{name} {json.dumps(part)}": top(**{name: part})
        for name in ("normalizer", "pre_tokenizer")
        for part in (5, "x", [], {}, {"type": "NoSuchThing"}, {"type": "Sequence"})
    },
    **{
        f"{name} of {json.dumps(table)}": top(normalizer=step)
        for table in ("", "!!", "AAAA", "/////w==", None, 5)
        for name, step in in_both_ways({"type": "Precompiled", "precompiled_charsmap": table}).items()
    },
}


class TestRefused:
    def read(self, folder: Path, change: Change) -> None:
        definition = json.loads(tokenizer_folder_text("gpt2"))
        change(definition)
        (folder / "tokenizer.json").write_text(json.dumps(definition))
        read_tokenizer(folder, "mine")

    @pytest.mark.parametrize(
        ("code", "change"),
        [pytest.param(code, change, id=name) for code in REFUSED for name, change in REFUSED[code].items()],
    )
    def test_a_definition(self, code: str, change: Change, tmp_path: Path, golden: Golden) -> None:
        with golden.refused(code):
            self.read(tmp_path, change)

    @pytest.mark.parametrize("name", NOT_LOADED)
    def test_a_definition_that_the_library_cannot_load(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(UserError) as refused:
            self.read(tmp_path, NOT_LOADED[name])
        assert refused.value.code == "tokenizer-damaged"

    @pytest.mark.parametrize("depth", [200, 100_000])
    def test_a_file_that_is_nested_too_deeply(self, depth: int, tmp_path: Path) -> None:
        whole = tokenizer_folder_text("gpt2")
        text = whole[:-1] + ', "more": ' + "[" * depth + "]" * depth + "}"
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(UserError) as refused:
            read_tokenizer(tmp_path, "mine")
        assert refused.value.code == "tokenizer-damaged"

    def test_files_that_are_not_whole(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("tokenizer-files-missing"):
            read_tokenizer(tmp_path, "mine")
        (tmp_path / "vocab.json").write_text("{}")
        with golden.refused("tokenizer-files-missing"):
            read_tokenizer(tmp_path, "mine")
        for text in (tokenizer_folder_text("gpt2")[:5000], "[1]"):
            (tmp_path / "tokenizer.json").write_text(text)
            with golden.refused("tokenizer-damaged"):
                read_tokenizer(tmp_path, "mine")

    @pytest.mark.parametrize(
        ("vocab", "code"), [("{}", "tokenizer-empty"), ('{"a": 0}', "tokenizer-loses-bytes")]
    )
    def test_empty_files_of_gpt2(self, vocab: str, code: str, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "vocab.json").write_text(vocab)
        (tmp_path / "merges.txt").write_text("#version: 0.2\n")
        with golden.refused(code):
            read_tokenizer(tmp_path, "mine")

    def test_what_the_tokenizers_library_refuses(self, tmp_path: Path, golden: Golden) -> None:
        """The vocabulary is given to it only when it is needed."""
        definition = json.loads(tokenizer_folder_text("gpt2"))
        definition["model"]["merges"] = [["a", "b"], "a b"]
        definition["model"]["vocab"]["ab"] = 900
        (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
        tokenizer = read_tokenizer(tmp_path, "mine")
        with golden.refused("tokenizer-damaged"):
            tokenizer.encode("a")

    @pytest.mark.parametrize("kept", [0.2, 0.6])
    def test_a_merges_file_cut_at_the_end_of_a_line(
        self, kept: float, tmp_path: Path, golden: Golden
    ) -> None:
        definition = json.loads(tokenizer_folder_text("gpt2"))
        merges = definition["model"]["merges"]
        definition["model"]["merges"] = merges[: int(len(merges) * kept)]
        folder = write_vocab_and_merges(tmp_path, definition)
        with golden.refused("tokenizer-merge-invalid"):
            read_tokenizer(folder, "mine")

    def test_a_merges_file_cut_inside_a_line(self, tmp_path: Path, golden: Golden) -> None:
        folder = write_vocab_and_merges(tmp_path, json.loads(tokenizer_folder_text("gpt2")))
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        (folder / "merges.txt").write_text("\n".join([*lines[:-1], lines[-1].split()[0]]), encoding="utf-8")
        with golden.refused("tokenizer-merge-invalid"):
            read_tokenizer(folder, "mine")

    @pytest.mark.parametrize(
        ("file", "content", "known"),
        [
            ("tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer"}, False),
            ("tokenizer_config.json", {"tokenizer_class": "CLIPTokenizerFast"}, False),
            ("tokenizer_config.json", {"tokenizer_class": "BlenderbotTokenizer"}, False),  # prepends a space
            ("config.json", {"model_type": "blenderbot"}, False),
            (
                "tokenizer_config.json",
                {"tokenizer_class": "RobertaTokenizerFast", "eos_token": "<|endoftext|>"},
                True,
            ),
            ("tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer"}, True),
            ("config.json", {"model_type": "qwen2"}, False),
            ("config.json", {"model_type": "clip"}, False),
            ("config.json", {"model_type": "gpt2"}, True),
            ("config.json", {"model_type": "phi", "tokenizer_class": "CodeGenTokenizer"}, True),
            ("config.json", {}, True),
            # classes whose end of text is another
            ("tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer"}, False),
            ("tokenizer_config.json", {"tokenizer_class": "LEDTokenizerFast"}, False),
            ("tokenizer_config.json", {"tokenizer_class": "DebertaTokenizer"}, False),
            # an end of text that is not in vocab.json
            ("tokenizer_config.json", {"eos_token": {"content": "<eos>"}}, False),
            ("special_tokens_map.json", {"eos_token": {"content": "<eos>"}}, False),
        ],
    )
    def test_what_two_files_cannot_say(
        self, file: str, content: dict[str, Any], known: bool, tmp_path: Path, golden: Golden
    ) -> None:
        folder = write_vocab_and_merges(tmp_path, json.loads(tokenizer_folder_text("gpt2")))
        assert read_tokenizer(folder, "mine").cut_rule.exists
        (folder / file).write_text(json.dumps(content))
        if known:
            assert read_tokenizer(folder, "mine").cut_rule.exists
        else:
            with golden.refused("tokenizer-needs-json"):
                read_tokenizer(folder, "mine")

    def test_added_tokens_that_two_files_cannot_say(self, tmp_path: Path, golden: Golden) -> None:
        folder = write_vocab_and_merges(tmp_path, json.loads(tokenizer_folder_text("gpt2")))
        (folder / "added_tokens.json").write_text('{"<x>": 900}')
        with golden.refused("tokenizer-needs-json"):
            read_tokenizer(folder, "mine")


@pytest.mark.parametrize("family", ["gpt2", "unigram", "wordpiece"])
def test_a_saved_tokenizer_is_the_same_tokenizer(
    family: str, tmp_path: Path, tokenizer_folder: Callable[[str], Path]
) -> None:
    tokenizer = read_tokenizer(tokenizer_folder(family), family)
    tokenizer.save(tmp_path / "copy")
    check_same(tokenizer, read_tokenizer(tmp_path / "copy", family))


def test_two_files_saved_keep_their_own_form_and_get_a_tokenizer_json(
    two_files: Path, tmp_path: Path
) -> None:
    tokenizer = read_tokenizer(two_files, "gpt2")
    tokenizer.save(tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {
        "vocab.json",
        "merges.txt",
        "tokenizer.json",
    }
    check_same(tokenizer, read_tokenizer(tmp_path / "copy", "gpt2"))


def check_same(first: Tokenizer, second: Tokenizer) -> None:
    assert first.content_hash == second.content_hash
    assert (first.vocab_size, first.eot_id) == (second.vocab_size, second.eot_id)
    text = "The word é 文字\r\n</s>"
    assert first.encode(text).tolist() == second.encode(text).tolist()


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    definition = json.loads(tokenizer_folder_text("gpt2"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    before = read_tokenizer(tmp_path, "x").vocab_size
    definition["added_tokens"].append(added_token(before, "<y>"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    assert read_tokenizer(tmp_path, "x").vocab_size == before + 1
