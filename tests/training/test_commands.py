"""`python -m training eval|sample`: a run's figures are measured again, text is drawn, errors are told."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import string
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_run import make_run, mixed_config, run_here, tiny_config, write_text

from tests.golden_text import Golden
from tests.searched import examples
from training.__main__ import main
from training.attempt.run_files import read_run, update_run
from training.evaluation.generate import Choice, draw, sample, text_of


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a byte vocabulary that tells losses by position."""
    folder = make_run(tiny_config(tmp_path_factory.mktemp("finished"), eval_by_position=True))
    done = run_here(folder, "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def evaluations(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main([*map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


class TestEval:
    def test_what_the_run_measured(self, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for which in ("best", "last"):
            found = told(capsys, "eval", finished, "--checkpoint", which)
            there = next(one for one in evaluations(finished) if one["step"] == found["step"])
            assert found["eval_tokens"] == there["eval_tokens"] == 512
            for name in ("loss", "perplexity", "bits_per_byte"):
                assert found[name] == pytest.approx(there[name], rel=1e-6)

    def test_bits_a_byte_of_bytes_are_the_loss_in_bits(self, finished: Path) -> None:
        """But for ends of documents, of which a lone text has one, at its end."""
        for one in evaluations(finished):
            assert one["bits_per_byte"] == pytest.approx(one["loss"] / math.log(2), rel=1e-9)

    def test_losses_by_position_sum_up_to_the_loss(
        self, finished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = told(capsys, "eval", finished, "--by-position", "--checkpoint", "last")
        recorded = evaluations(finished)[-1]["by_position"]
        assert [(one["first"], one["last"]) for one in recorded] == [(0, 0), (1, 1), (2, 3), (4, 7), (8, 15)]
        for buckets in (found["by_position"], recorded):
            whole = sum(one["tokens"] * one["loss"] for one in buckets)
            assert whole / 512 == pytest.approx(found["loss"], rel=1e-6)

    def test_batches_change_nothing_and_all_is_more(
        self, finished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        whole = told(capsys, "eval", finished, "--tokens", "all")
        small = told(capsys, "eval", finished, "--tokens", "all", "--batch-size", "3")
        assert small["eval_tokens"] == whole["eval_tokens"] > 512
        assert small["loss"] == pytest.approx(whole["loss"], rel=1e-6)

    def test_other_data_and_shorter_windows(
        self, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = tmp_path / "digits.txt"
        other.write_text("0123456789 " * 400)
        found = told(capsys, "eval", finished, "--dataset", other, "--split", "train", "--seq-len", "8")
        assert (found["data"], found["seq_len"]) == (str(other.with_suffix(".npy")), 8)
        assert found["loss"] > 1.2 * told(capsys, "eval", finished)["loss"]  # it has seen no digits

    def test_a_mixture_by_source(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = make_run(mixed_config(tmp_path, max_steps=4, evals=1))
        assert run_here(folder, "--quiet").returncode == 0
        found = told(capsys, "eval", folder)
        assert found["sources"].keys() == {"val/long", "val/short"}
        losses = {one["source"]: one["loss"] for one in evaluations(folder)}
        for source, numbers in found["sources"].items():
            assert numbers["loss"] == pytest.approx(losses[source], rel=1e-6)
        assert found["loss"] == pytest.approx(losses["val"], rel=1e-6)
        assert found["bits_per_byte"] == pytest.approx(losses["val"] / math.log(2), rel=1e-3)

    def test_from_another_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Paths of its configuration are relative to the folder it was started in."""
        home, here = tmp_path / "home", tmp_path / "here"
        home.mkdir(), here.mkdir()
        config = tiny_config(home, max_steps=2, evals=1)
        monkeypatch.chdir(home)
        config = dataclasses.replace(
            config, dataset=dataclasses.replace(config.dataset, path="tiny.txt"), runs_dir="runs"
        )
        folder = make_run(config)
        assert run_here(folder, "--quiet").returncode == 0
        write_text(home / "other.txt", 900), write_text(here / "other.txt", 9000)
        measured = evaluations(folder)[-1]
        monkeypatch.chdir(here)
        found = told(capsys, "eval", Path("..", "home") / folder)
        assert found["loss"] == pytest.approx(measured["loss"], rel=1e-6)
        assert Path(found["data"]).samefile(home / "tiny.npy")
        assert Path.cwd() == here
        other = told(capsys, "eval", Path("..", "home") / folder, "--dataset", "other.txt", "--tokens", "all")
        assert other["eval_tokens"] > 900, "what is typed is where the user stands"

    def test_folders_of_its_tokenizer_are_found_from_another_one(
        self, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`gpt2_tokenizer` is where it was when the run was started."""
        from training.run.load_run import open_run

        saved = open_run(str(finished))
        home, config = saved.home, saved.config
        tokenizer = dataclasses.replace(config.tokenizer, path="given", local_folder="gpt2_tokenizer")
        saved = dataclasses.replace(saved, config=dataclasses.replace(config, tokenizer=tokenizer))
        monkeypatch.chdir(tmp_path)
        found = saved.tokenizer_config
        assert (found.path, found.local_folder) == (str(home / "given"), str(home / "gpt2_tokenizer"))

    def test_in_words(self, finished: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
        assert main(["eval", str(finished), "--by-position"]) == 0
        first, second, third, _, header, *rows = capsys.readouterr().out.splitlines()
        assert first.startswith(f"{finished},")
        golden.text("\n".join([first, second, third]), numbers=False)
        assert header.split() == ["position", "loss", "tokens", "val"]
        assert [row.split()[0] for row in rows] == ["0", "1", "2-3", "4-7", "8-15"]


class TestSample:
    def test_text_of_its_letters(self, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
        found = told(capsys, "sample", finished, "--prompt", "a", "--tokens", "16", "--seed", "3")
        assert len(found["ids"]) == 16 or found["ended"]
        assert found["text"].encode(errors="surrogateescape")
        again = told(capsys, "sample", finished, "--prompt", "a", "--tokens", "16", "--seed", "3")
        other = told(capsys, "sample", finished, "--prompt", "a", "--tokens", "16", "--seed", "4")
        assert found["ids"] == again["ids"] != other["ids"]
        assert main(["sample", str(finished), "--prompt", "a", "--tokens", "16", "--seed", "3"]) == 0
        assert capsys.readouterr().out == f"a{found['text']}\n"

    def test_greedy_is_the_most_likely(self, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
        found = told(capsys, "sample", finished, "--prompt", "the ", "--tokens", "20", "--temperature", "0")
        assert set(found["text"]) <= set(string.printable)

    def test_without_a_prompt_a_document_begins(
        self, finished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert told(capsys, "sample", finished, "--tokens", "5")["prompt"] == ""

    def test_documents_begin_and_end_with_the_ids_of_the_set(
        self, finished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        run = shutil.copytree(finished, tmp_path / "run")
        facts = json.loads((run / "run.json").read_text())
        plain = told(capsys, "sample", run, "--tokens", "5", "--temperature", "0")
        assert plain["ids"]
        facts["data"]["document_ends"] = {"eos": plain["ids"][0], "bos": 256}
        (run / "run.json").write_text(json.dumps(facts))
        assert told(capsys, "sample", run, "--tokens", "5", "--temperature", "0")["ids"] == []

    def test_the_draw_follows_the_choice(self) -> None:
        logits = torch.tensor([0.0, 3.0, 1.0, 2.0])
        generator = torch.Generator().manual_seed(0)

        def drawn(**choice: Any) -> set[int]:
            return {draw(logits, Choice(**choice), generator) for _ in range(300)}

        assert drawn() == {0, 1, 2, 3}
        assert drawn(temperature=1e-40) == drawn(temperature=1e-300) == {1}, "no numbers of fp32"
        assert drawn(temperature=0) == drawn(top_k=1) == drawn(top_p=1e-6) == {1}
        assert drawn(top_k=2) == {1, 3}
        # 0.64, 0.24, 0.09, 0.03: the first that reach 0.7 together are two
        assert drawn(top_p=0.7) == {1, 3}

    def test_frequencies_are_those_of_the_softmax(self) -> None:
        logits = torch.tensor([0.0, 1.0, 2.0])
        generator = torch.Generator().manual_seed(0)
        counts = torch.zeros(3)
        for _ in range(4000):
            counts[draw(logits, Choice(temperature=2.0), generator)] += 1
        assert counts / 4000 == pytest.approx((logits / 2).softmax(0), abs=0.03)

    def test_a_context_longer_than_the_model_is_cut(self, finished: Path) -> None:
        from training.run.load_run import open_run

        model = open_run(str(finished)).model()
        draws = sample(model, list(range(40)), Choice(temperature=0), torch.Generator())
        last = sample(model, list(range(24, 40)), Choice(temperature=0), torch.Generator())
        assert [next(draws) for _ in range(3)] == [next(last) for _ in range(3)]

    def test_no_part_of_a_character_is_printed(self) -> None:
        from data_loading.tokenizers.tokenizer import BytesTokenizer

        text = "é世a"
        assert list(text_of(iter(text.encode()), BytesTokenizer())) == ["é", "世", "a"]
        assert "".join(text_of(iter([0xE4, 0xB8]), BytesTokenizer())) == "\ufffd"
        behind_noise = [0xFF] * 6 + list("€".encode())
        assert "".join(text_of(iter(behind_noise), BytesTokenizer())) == 6 * "\ufffd" + "€"

    @given(st.lists(st.sampled_from([0xFF, 0x80, *"a€é🙂".encode()]), max_size=40), st.integers(0, 40))
    @settings(max_examples=examples(200))
    def test_pieces_are_the_text_of_all_ids(self, ids: list[int], at: int) -> None:
        from data_loading.tokenizers.tokenizer import BytesTokenizer

        text = BytesTokenizer().decode(ids)
        before = BytesTokenizer().decode(ids[:at])
        if before + BytesTokenizer().decode(ids[at:]) != text:
            return  # the prompt ends within a character
        pieces = list(text_of(iter(ids[at:]), BytesTokenizer(), ids[:at]))
        assert before + "".join(pieces) == text

    def test_words_of_sentencepiece_keep_their_spaces(self) -> None:
        class Words:
            def decode(self, ids: list[int]) -> str:
                return " ".join(f"w{number}" for number in ids)

        assert "".join(text_of(iter([3, 4, 5]), Words(), [1, 2])) == " w3 w4 w5"  # type: ignore[arg-type]


class TestRefused:
    def test_no_such_run(self, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
        golden.text(refused(capsys, "eval", "no-such-run"))

    def test_a_run_without_a_checkpoint(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
    ) -> None:
        folder = make_run(tiny_config(tmp_path))
        golden.text(refused(capsys, "sample", folder))

    def test_options_with_wrong_values_are_refused(
        self, finished: Path, capsys: pytest.CaptureFixture[str], golden: Golden
    ) -> None:
        texts = []
        for typed in (
            "eval --checkpoint 3",
            "eval --split test",
            "eval --seq-len 17",
            "eval --seq-len 0",
            "eval --tokens many",
            "eval --dataset no/such.txt",
            "eval --device tpu",
            "sample --temperature -1",
            "sample --temperature nan",
            "sample --top-p 0",
            "sample --top-k 0",
            "sample --tokens 0",
        ):
            command, option, value = typed.split()
            said = refused(capsys, command, finished, option, value)
            assert value in said if option == "--dataset" else f"{option} {value}" in said
            texts.append(said.strip())
        golden.text("\n".join(texts))

    def test_a_damaged_checkpoint(
        self, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
    ) -> None:
        copy = tmp_path / finished.name
        shutil.copytree(finished, copy, symlinks=True)
        newest = max((copy / "checkpoints").glob("step-*"))
        (newest / "model.safetensors").write_bytes(b"torn")
        golden.text(refused(capsys, "eval", copy, "--checkpoint", "last"), numbers=False)

    def test_a_model_that_this_code_does_not_build(
        self, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        copy = tmp_path / finished.name
        shutil.copytree(finished, copy, symlinks=True)
        config = (copy / "config.yaml").read_text()
        (copy / "config.yaml").write_text(config.replace("norm: rms", "norm: layer", 1).replace(
            "tied_head: true", "tied_head: false"
        ))  # fmt: skip
        commit = read_run(copy)["attempts"][-1]["code"]["commit"]
        said = refused(capsys, "sample", copy)
        assert commit is None or str(commit) in said
        assert "head.weight" in said

    def test_data_of_another_vocabulary(
        self, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_text(tmp_path / "a.txt")
        facts = read_run(finished)
        copy = tmp_path / finished.name
        shutil.copytree(finished, copy, symlinks=True)
        update_run(copy, vocab_size=facts["vocab_size"] + 1)
        assert "258" in refused(capsys, "eval", copy)
