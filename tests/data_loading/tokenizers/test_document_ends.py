"""Ids before and after documents: those of the tokenizer, or those that are chosen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pretokenize_dataset
from conf import schema
from data_loading.audit.check_set import check_set
from data_loading.find.prepare import prepare_data
from data_loading.pretokenizer.distributed.merge import merge
from data_loading.pretokenizer.distributed.task import pretokenize_task
from data_loading.pretokenizer.distributed.task_plan import SetTask
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.writer import SetWriter
from data_loading.tokenizers.document_ends import AUTO, NONE, choose_ends, notes_on_ends
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer, JsonTokenizer, Tokenizer
from tests.golden_text import Golden
from tests.searched import examples

Folder = Callable[[str], Path]
BYTES = BytesTokenizer()
END = BYTES.eot_id
some_documents = st.lists(
    st.sampled_from(["a", "word and word", "x" * 90, "é 中 " * 9, "two\nlines"]), min_size=1, max_size=12
)


def make(folder: Path, texts: list[str], tokenizer: Tokenizer, **how: Any) -> Result:
    path = folder / "a.jsonl"
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    if not path.exists() or path.read_text() != lines:
        path.write_text(lines)
    return pretokenize(open_inputs([str(path)], InputOptions()), tokenizer, folder / "a.npy", Options(**how))


def expected(texts: list[str], tokenizer: Tokenizer, bos: int | None, eos: int | None) -> list[int]:
    around = [[number for number in (end,) if number is not None] for end in (bos, eos)]
    return [number for text in texts for number in (*around[0], *tokenizer.encode(text).tolist(), *around[1])]


@settings(max_examples=examples(40))
@given(
    texts=some_documents,
    ends=st.sampled_from([("5", None), ("5", NONE), (None, "5"), (None, NONE), ("256", "<|endoftext|>")]),
    block=st.integers(1, 60),
)
def test_ids_are_around_each_document(
    texts: list[str],
    ends: tuple[str | None, str | None],
    block: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, (bos, eos) = tmp_path_factory.mktemp("ends"), ends
    tokenizer = choose_ends(BYTES, eos, bos)
    made = make(folder, texts, tokenizer, block_bytes=block, workers=0).manifest
    ids = np.load(folder / "a.npy").tolist()
    assert ids == expected(texts, BYTES, tokenizer.bos_id, tokenizer.eot_id)
    assert made["documents"] == len(texts)
    assert made["tokenizer"].get("bos_id") == tokenizer.bos_id
    assert [finding for finding in check_set(folder / "a.npy", deep=True) if finding.ok is False] == []


def test_workers_and_engines_give_the_same(tmp_path: Path, tokenizer_folder: Folder) -> None:
    gpt2 = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
    texts = [f"The text {number} of water. " * 40 for number in range(200)]
    for engine, workers in (("fastokens", 2), ("huggingface", 0)):
        make(tmp_path, texts, choose_ends(gpt2, "7", "9"), engine=engine, workers=workers, overwrite=True)
        assert np.load(tmp_path / "a.npy").tolist() == expected(texts, gpt2, 9, 7)


def test_resumed_set_has_each_id_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, texts = choose_ends(BYTES, None, "5"), ["water " * 30, "b", "rose " * 50]
    append, blocks = SetWriter.append, []

    def stop(self: SetWriter, block: Any) -> int:
        blocks.append(block)
        if len(blocks) % 3 == 0:
            raise KeyboardInterrupt
        return append(self, block)

    monkeypatch.setattr(SetWriter, "append", stop)
    for _ in range(50):
        try:
            make(tmp_path, texts, tokenizer, block_bytes=20, workers=0)
            break
        except KeyboardInterrupt:
            continue
    assert np.load(tmp_path / "a.npy").tolist() == expected(texts, BYTES, 5, END)


def test_tasks_make_the_same_set(tmp_path: Path) -> None:
    tokenizer = choose_ends(BYTES, "7", "5")
    paths = [tmp_path / f"{number}.txt" for number in range(3)]
    for path in paths:
        path.write_text("one water and one rose " * 40)
    source = open_inputs(list(map(str, paths)), InputOptions())
    options = Options(shard_tokens=10_000, workers=0)
    for task in range(3):
        pretokenize_task(source, tokenizer, tmp_path / "s", SetTask(task, 3), options)
    made = merge(tmp_path / "s").manifest
    one = pretokenize(source, tokenizer, tmp_path / "one", options).manifest
    ids = [np.load(path) for path in sorted((tmp_path / "s").glob("shard_*[0-9].npy"))]
    assert np.concatenate(ids).tolist() == expected(["one water and one rose " * 40] * 3, BYTES, 5, 7)
    assert (made["fingerprint"], made["tokenizer"]) == (one["fingerprint"], one["tokenizer"])


def test_choice_is_part_of_the_identity_and_the_default_is_not(tmp_path: Path, golden: Golden) -> None:
    plain = make(tmp_path, ["a"], BYTES).manifest
    assert {"eos", "bos"} & plain["options"].keys() == set()
    same = make(tmp_path, ["a"], choose_ends(BYTES, str(END), None))
    assert not same.made
    with golden.refused("output-differs"):
        make(tmp_path, ["a"], choose_ends(BYTES, None, "5"))
    chosen = make(tmp_path, ["a"], choose_ends(BYTES, None, "5"), overwrite=True).manifest
    assert chosen["fingerprint"] != plain["fingerprint"]
    assert chosen["tokenizer"]["content_hash"] == plain["tokenizer"]["content_hash"]


def test_run_reads_a_set_with_chosen_ends(tmp_path: Path) -> None:
    texts = [f"document {number}" for number in range(200)]
    make(tmp_path, texts, choose_ends(BYTES, "7", "5"))
    dataset = schema.Dataset(source="text", path=str(tmp_path / "a.npy"))
    data = prepare_data(dataset, schema.Tokenizer(name="bytes"), tokenize=False)
    assert data.eot_id == 7
    assert data.describe()["document_ends"] == {"eos": 7, "bos": 5}
    assert data.train.tokens[data.val_ranges[0].start] == 5


@pytest.mark.parametrize("flag", ["--eos", "--bos"])
@pytest.mark.parametrize("given_", ["<none such>", "257", "-1"])
def test_token_that_there_is_not_is_an_error(flag: str, given_: str, golden: Golden) -> None:
    with golden.refused("id-outside-vocabulary" if given_ == "257" else "token-unknown"):
        choose_ends(BYTES, *(given_ if name == flag else None for name in ("--eos", "--bos")))


def test_auto_is_the_token_that_the_files_name(
    tmp_path: Path, tokenizer_folder: Folder, golden: Golden
) -> None:
    definition = json.loads((tokenizer_folder("gpt2") / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    with golden.refused("bos-unknown"):
        choose_ends(read_tokenizer(tmp_path, "t"), None, AUTO)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "a"}}))
    ids = read_tokenizer(tmp_path, "t").definition["model"]["vocab"]  # type: ignore[attr-defined]
    assert choose_ends(read_tokenizer(tmp_path, "t"), None, AUTO).bos_id == ids["a"]


def test_begin_of_text_that_transformers_adds_is_noted(tokenizer_folder: Folder, golden: Golden) -> None:
    from tokenizers.processors import TemplateProcessing

    gpt2 = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
    assert isinstance(gpt2, JsonTokenizer)
    assert list(notes_on_ends(gpt2)) == []
    step = TemplateProcessing("a $A", special_tokens=[("a", 70)]).__getstate__()
    changed = JsonTokenizer("t", {**gpt2.definition, "post_processor": json.loads(step)}, gpt2.eot_id, ())
    golden.text("\n".join(notes_on_ends(changed)))
    chosen = choose_ends(changed, None, AUTO)
    assert chosen.bos_id == changed.definition["model"]["vocab"]["a"]
    assert list(notes_on_ends(chosen)) == []


@pytest.mark.parametrize(("is_added", "notes"), [(True, 1), (False, 0)])
def test_add_bos_token_of_the_configuration_is_noted(
    is_added: bool, notes: int, tmp_path: Path, tokenizer_folder: Folder
) -> None:
    shutil.copy(tokenizer_folder("gpt2") / "tokenizer.json", tmp_path)
    said = {"bos_token": "a", "add_bos_token": is_added}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
    assert len(list(notes_on_ends(read_tokenizer(tmp_path, "t")))) == notes


def test_flags_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    (tmp_path / "a.txt").write_text("water")
    command = [str(tmp_path / "a.txt"), "--tokenizer", "bytes", "--bos", "5", "--eos", "none"]
    assert pretokenize_dataset.main(command) == 0
    assert np.load(tmp_path / "a.npy").tolist() == [5, *b"water"]
    golden.text(capsys.readouterr().out, numbers=False)
