"""Tokenizers: the same ids as transformers, the same hash for the same content, broken ones refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from data_loading.tokenizer import BytesTokenizer, JsonTokenizer, Tokenizer
from data_loading.tokenizer_files import read_tokenizer
from experiment_utils.errors import UserError
from tests.data_loading.conftest import WITH_RULE, WITHOUT_RULE, hostile_text, tokenizer_folder_text
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

    def test_is_refused_where_bytes_would_be_dropped(self, tmp_path: Path) -> None:
        definition = self.definition()
        del definition["model"]["vocab"]["ô"]
        (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
        with pytest.raises(UserError, match="no token for 1 of the byte values"):
            read_tokenizer(tmp_path, "x")


class TestRefused:
    def refusal(self, folder: Path) -> str:
        with pytest.raises(UserError) as caught:
            read_tokenizer(folder, "mine")
        return str(caught.value)

    def changed(self, folder: Path, change: Callable[[dict[str, Any]], None]) -> str:
        definition = json.loads(tokenizer_folder_text("gpt2"))
        change(definition)
        (folder / "tokenizer.json").write_text(json.dumps(definition))
        return self.refusal(folder)

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        assert "neither tokenizer.json nor vocab.json with merges.txt" in self.refusal(tmp_path)

    def test_one_of_two_files(self, tmp_path: Path) -> None:
        (tmp_path / "vocab.json").write_text("{}")
        assert "there is vocab.json" in self.refusal(tmp_path)

    def test_truncated_json(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text(tokenizer_folder_text("gpt2")[:5000])
        assert "truncated or no JSON" in self.refusal(tmp_path)

    def test_another_json(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text("[1]")
        assert "expected an object" in self.refusal(tmp_path)
        (tmp_path / "tokenizer.json").write_text('{"a": 1}')
        assert "no model of a known kind" in self.refusal(tmp_path)

    @pytest.mark.parametrize("vocab", [{}, {"a": 0}])
    def test_an_empty_vocabulary_or_one_id(self, vocab: dict[str, int], tmp_path: Path) -> None:
        def change(definition: dict[str, Any]) -> None:
            definition["model"] |= {"vocab": vocab, "merges": []}
            definition["added_tokens"] = []

        assert f"empty tokenizer: it has {len(vocab)} ids" in self.changed(tmp_path, change)

    @pytest.mark.parametrize("vocab", ["{}", '{"a": 0}'])
    def test_empty_files_of_gpt2(self, vocab: str, tmp_path: Path) -> None:
        (tmp_path / "vocab.json").write_text(vocab)
        (tmp_path / "merges.txt").write_text("#version: 0.2\n")
        message = self.refusal(tmp_path)
        assert "empty tokenizer" in message or "no token for" in message

    def test_a_vocabulary_that_would_drop_bytes(self, tmp_path: Path) -> None:
        def change(definition: dict[str, Any]) -> None:
            del definition["model"]["vocab"]["ô"]

        assert "no token for 1 of the byte values of UTF-8 (such as 0xf4)" in self.changed(tmp_path, change)

    def test_a_vocabulary_of_characters_that_would_drop_all_others(self, tmp_path: Path) -> None:
        def letters(definition: dict[str, Any]) -> None:
            definition["pre_tokenizer"] = None
            definition["model"].update(vocab={"a": 0, "b": 1, "c": 2}, merges=[])
            definition["added_tokens"] = []

        message = self.changed(tmp_path, letters)
        assert "knows 3 characters and would drop all others from the text without a word" in message

        def half_a_fallback(definition: dict[str, Any]) -> None:
            letters(definition)
            definition["model"]["byte_fallback"] = True
            definition["model"]["vocab"] |= {f"<0x{byte:02X}>": 3 + byte for byte in range(255)}

        assert "would drop all others" in self.changed(tmp_path, half_a_fallback)

    def test_an_unk_token_that_is_not_there(self, tmp_path: Path) -> None:
        message = self.changed(tmp_path, lambda d: d["model"].update(unk_token="[UNK]"))
        assert "its unk_token '[UNK]' is not in its vocabulary" in message

    @pytest.mark.parametrize("kind", ["WordLevel", "WordPiece", "Unigram"])
    def test_a_model_without_a_token_for_the_unknown(self, kind: str, tmp_path: Path) -> None:
        vocab = [["a", -1.0], ["b", -2.0]] if kind == "Unigram" else {"a": 0, "b": 1}
        model = {"type": kind, "vocab": vocab, "unk_token": "[UNK]", "unk_id": None}
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": []}))
        assert f"this {kind} tokenizer has no token for what it does not know" in self.refusal(tmp_path)

    @pytest.mark.parametrize(
        "model",
        [
            {"type": "Unigram", "vocab": [["a", -1.0], ["b", -1.0]], "unk_id": None, "byte_fallback": True},
            {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": ["a"]},
            {"type": "WordLevel", "vocab": [1, 2]},
            {"type": "BPE", "vocab": 3, "merges": []},
        ],
    )
    def test_a_model_of_another_shape(self, model: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": []}))
        assert "tokenizer.json: " in self.refusal(tmp_path)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("continuing_subword_prefix", 3),
            ("end_of_word_suffix", [1]),
            ("unk_token", ["x"]),
            ("byte_fallback", "yes"),
        ],
    )
    def test_a_setting_of_another_kind(self, name: str, value: Any, tmp_path: Path) -> None:
        message = self.changed(tmp_path, lambda d: d["model"].update({name: value}))
        assert f"{tmp_path / 'tokenizer.json'} cannot be loaded" in message
        assert "fetch it again, or pip install --upgrade tokenizers" in message

    @pytest.mark.parametrize("name", ["post_processor", "decoder", "truncation", "padding"])
    def test_a_part_that_is_not_used_but_has_to_be_loaded(self, name: str, tmp_path: Path) -> None:
        message = self.changed(tmp_path, lambda d: d.update({name: {"type": "Nope"}}))
        assert f"{tmp_path / 'tokenizer.json'} cannot be loaded" in message

    @pytest.mark.parametrize("index", [-1, 0.5, True, "1", None, 1 << 32])
    def test_an_id_that_is_none(self, index: Any, tmp_path: Path) -> None:
        message = self.changed(tmp_path, lambda d: d["model"]["vocab"].update(zz=index))
        assert f'its vocabulary has ["zz", {json.dumps(index)}], expected texts with whole numbers' in message

    @pytest.mark.parametrize("unknown", [2, -1, "x"])
    def test_an_unk_id_that_is_not_there(self, unknown: Any, tmp_path: Path) -> None:
        model = {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]], "unk_id": unknown}
        (tmp_path / "tokenizer.json").write_text(
            json.dumps({"version": "1.0", "model": model, "added_tokens": []})
        )
        assert "tokenizer.json" in self.refusal(tmp_path)

    def test_a_word_piece_model_without_its_settings(self, tmp_path: Path) -> None:
        model = {"type": "WordPiece", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": []}))
        assert "tokenizer.json cannot be loaded (missing field" in self.refusal(tmp_path)

    def test_an_added_token_that_normalizing_leaves_nothing_of(self, tmp_path: Path) -> None:
        """The library ends in a panic at the first text."""

        def change(definition: dict[str, Any]) -> None:
            definition["normalizer"] = {"type": "StripAccents"}
            definition["added_tokens"].append({**added_token(900, "\u0301"), "normalized": True})

        assert "is empty once it is normalized" in self.changed(tmp_path, change)

    @pytest.mark.parametrize(("content", "index"), [("<x>", 702), ("<x>", 5), ("a", 700)])
    def test_an_added_token_with_another_id_than_the_library_gives(
        self, content: str, index: int, tmp_path: Path
    ) -> None:
        token = added_token(index, content)
        message = self.changed(tmp_path, lambda d: d["added_tokens"].append(token))
        assert f"its added token {content!r} has the id {index}, and the package tokenizers" in message

    def test_an_added_token_without_its_flags(self, tmp_path: Path) -> None:
        added = [{"content": "x", "id": 5000}]
        assert "cannot be loaded" in self.changed(tmp_path, lambda d: d.update(added_tokens=added))

    @pytest.mark.parametrize("depth", [200, 100_000])
    def test_a_file_that_is_nested_too_deeply(self, depth: int, tmp_path: Path) -> None:
        whole = tokenizer_folder_text("gpt2")
        text = whole[:-1] + ', "more": ' + "[" * depth + "]" * depth + "}"
        (tmp_path / "tokenizer.json").write_text(text)
        assert f"{tmp_path / 'tokenizer.json'} " in self.refusal(tmp_path)

    def test_dropout(self, tmp_path: Path) -> None:
        assert "ids are random" in self.changed(tmp_path, lambda d: d["model"].update(dropout=0.1))

    def test_a_merge_of_an_unknown_token(self, tmp_path: Path) -> None:
        message = self.changed(tmp_path, lambda d: d["model"]["merges"].append(["no", "such"]))
        assert "needs the token" in message
        assert "truncated, or from different tokenizers" in message

    @pytest.mark.parametrize("merge", ["ab", "a b c", ["a", "b", "c"], ["a"], ["a", 1], 5, None, {}])
    def test_a_merge_that_is_none(self, merge: Any, tmp_path: Path) -> None:
        message = self.changed(tmp_path, lambda d: d["model"].update(merges=[merge]))
        assert f"merge 1 is {json.dumps(merge)}, expected two tokens" in message

    @pytest.mark.parametrize(
        "added", [[{}], ["x"], "x", [{"content": "x"}], [{"content": 5, "id": 3}], {"a": 1}]
    )
    def test_an_added_token_that_is_none(self, added: Any, tmp_path: Path) -> None:
        message = self.changed(tmp_path, lambda d: d.update(added_tokens=added))
        assert "added token 1 is " in message
        assert "expected an object with content" in message

    @pytest.mark.parametrize("part", [5, "x", [], {}, {"type": "NoSuchThing"}, {"type": "Sequence"}])
    @pytest.mark.parametrize("name", ["normalizer", "pre_tokenizer"])
    def test_a_step_that_is_none(self, name: str, part: Any, tmp_path: Path) -> None:
        assert f"its {name} cannot be loaded" in self.changed(tmp_path, lambda d: d.update({name: part}))

    @pytest.mark.parametrize("table", ["", "!!", "AAAA", "/////w==", None, 5])
    def test_a_table_of_characters_that_is_none(self, table: Any, tmp_path: Path) -> None:
        step = {"type": "Precompiled", "precompiled_charsmap": table}
        for normalizer in (step, {"type": "Sequence", "normalizers": [{"type": "NFC"}, step]}):
            message = self.changed(tmp_path, lambda d, n=normalizer: d.update(normalizer=n))
            assert "its normalizer cannot be loaded" in message

    def test_what_the_tokenizers_library_refuses(self, tmp_path: Path) -> None:
        """The vocabulary is given to it only when it is needed."""
        definition = json.loads(tokenizer_folder_text("gpt2"))
        definition["model"]["merges"] = [["a", "b"], "a b"]
        definition["model"]["vocab"]["ab"] = 900
        (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
        tokenizer = read_tokenizer(tmp_path, "mine")
        with pytest.raises(UserError, match=r"tokenizer\.json cannot be loaded .*fetch it again"):
            tokenizer.encode("a")

    @pytest.mark.parametrize("kept", [0.2, 0.6])
    def test_a_merges_file_cut_at_the_end_of_a_line(self, kept: float, tmp_path: Path) -> None:
        definition = json.loads(tokenizer_folder_text("gpt2"))
        merges = definition["model"]["merges"]
        definition["model"]["merges"] = merges[: int(len(merges) * kept)]
        assert "cannot make" in self.refusal(write_vocab_and_merges(tmp_path, definition))

    def test_a_merges_file_cut_inside_a_line(self, tmp_path: Path) -> None:
        folder = write_vocab_and_merges(tmp_path, json.loads(tokenizer_folder_text("gpt2")))
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        (folder / "merges.txt").write_text("\n".join([*lines[:-1], lines[-1].split()[0]]), encoding="utf-8")
        assert f"merges.txt, line {len(lines)}: expected two tokens" in self.refusal(folder)

    @pytest.mark.parametrize(
        ("file", "told", "known"),
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
        ],
    )
    def test_two_files_of_another_class(
        self, file: str, told: dict[str, str], known: bool, tmp_path: Path
    ) -> None:
        folder = write_vocab_and_merges(tmp_path, json.loads(tokenizer_folder_text("gpt2")))
        assert read_tokenizer(folder, "mine").cut_rule.exists
        (folder / file).write_text(json.dumps(told))
        if known:
            assert read_tokenizer(folder, "mine").cut_rule.exists
        else:
            message = self.refusal(folder)
            assert next(iter(told.values())) in message
            assert "otherwise than GPT-2" in message
            assert f"AutoTokenizer.from_pretrained('{folder}').save_pretrained" in message

    @pytest.mark.parametrize(
        ("told", "end"),
        [
            ({"tokenizer_class": "RobertaTokenizer"}, "</s>"),
            ({"tokenizer_class": "LEDTokenizerFast"}, "</s>"),
            ({"tokenizer_class": "DebertaTokenizer"}, "[SEP]"),
        ],
    )
    def test_two_files_of_a_class_with_another_end_of_text(
        self, told: dict[str, str], end: str, tmp_path: Path
    ) -> None:
        folder = write_vocab_and_merges(tmp_path, json.loads(tokenizer_folder_text("gpt2")))
        (folder / "tokenizer_config.json").write_text(json.dumps(told))
        message = self.refusal(folder)
        assert f"whose end of text is '{end}', and no file there says so" in message
        assert f"AutoTokenizer.from_pretrained('{folder}').save_pretrained" in message

    @pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
    def test_two_files_and_an_end_of_text_that_is_not_there(self, file: str, tmp_path: Path) -> None:
        folder = write_vocab_and_merges(tmp_path, json.loads(tokenizer_folder_text("gpt2")))
        (folder / file).write_text(json.dumps({"eos_token": {"content": "<eos>"}}))
        message = self.refusal(folder)
        assert f"{file}: its eos_token '<eos>' is not in vocab.json" in message
        assert "save_pretrained" in message

    def test_added_tokens_that_two_files_cannot_say(self, tmp_path: Path) -> None:
        folder = write_vocab_and_merges(tmp_path, json.loads(tokenizer_folder_text("gpt2")))
        (folder / "added_tokens.json").write_text('{"<x>": 900}')
        assert "save_pretrained" in self.refusal(folder)


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
