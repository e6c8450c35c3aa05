"""A run as a folder for transformers: the same logits, the same ids, whole or not at all."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import make_run, run_here, tiny_config

from experiment_utils.extras import install_command
from tests.golden_text import Golden
from training.__main__ import main
from training.export import hugging_face
from training.run.load_run import open_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tiny_config(tmp_path_factory.mktemp("finished")))
    assert run_here(folder, "--quiet").returncode == 0
    return folder


def test_transformers_loads_it(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    output = tmp_path / "mine"
    assert main(["export", str(finished), "--output", str(output), "--json"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert said.err == "", "no bars that move"
    assert (told["model_type"], told["output"]) == ("llama", str(output))
    assert told["largest_difference"] < 1e-4
    theirs = AutoModelForCausalLM.from_pretrained(output).eval()
    tokenizer = AutoTokenizer.from_pretrained(output)
    text = "the cat é 世 \x00\r\n\tx"
    ids = tokenizer(text, return_tensors="pt").input_ids
    assert ids[0].tolist() == list(text.encode())
    assert tokenizer.decode(ids[0]) == text
    assert tokenizer.eos_token_id == 256
    model = open_run(str(finished)).model()
    with torch.no_grad():
        assert torch.allclose(theirs(ids[:, :16]).logits, model(ids[:, :16]), atol=1e-4)


def test_without_transformers_the_extra_is_named(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["export", str(finished), "--output", str(tmp_path / "mine")]) == 2
    assert install_command("hf") in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()


def test_a_folder_that_is_there_is_left_as_it_is(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (tmp_path / "mine").mkdir()
    assert main(["export", str(finished), "--output", str(tmp_path / "mine")]) == 2
    golden.text(capsys.readouterr().err)
    assert list((tmp_path / "mine").iterdir()) == []


def test_folder_made_during_the_export_keeps_its_files(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, difference = tmp_path / "mine", hugging_face._difference

    def made_meanwhile(*arguments: Any) -> Any:
        output.mkdir()
        (output / "file").write_text("theirs")
        return difference(*arguments)

    monkeypatch.setattr(hugging_face, "_difference", made_meanwhile)
    assert main(["export", str(finished), "--output", str(output)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (output / "file").read_text() == "theirs"


def test_where_nothing_can_be_written(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["export", str(finished), "--output", str(tmp_path / "file" / "mine")]) == 2
    golden.text(capsys.readouterr().err)


def test_other_logits_are_noticed_and_nothing_is_left(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    from training.export import families

    def without_a_layer(source: Any, weights: Any) -> Any:
        return {
            name: 0 * value if "o_proj" in name else value for name, value in right(source, weights).items()
        }

    right = families.FAMILIES[0].convert
    object.__setattr__(families.FAMILIES[0], "convert", without_a_layer)
    try:
        assert main(["export", str(finished), "--output", str(tmp_path / "mine")]) == 2
    finally:
        object.__setattr__(families.FAMILIES[0], "convert", right)
    golden.text(capsys.readouterr().err, numbers=False)
    assert list(tmp_path.iterdir()) == []
