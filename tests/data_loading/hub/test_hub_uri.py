"""What hf://... names."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_loading.hub.hub_uri import HubName, parse
from data_loading.hub.named_datasets import REGISTRY
from tests.golden_text import Golden


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("hf://org/name", HubName("org/name")),
        ("hf://org/name:sub", HubName("org/name", "sub")),
        ("hf://org/name@v1", HubName("org/name", None, "v1")),
        ("hf://org/na.me-x:sub_1@refs/pr/3", HubName("org/na.me-x", "sub_1", "refs/pr/3")),
        ("hf://squad", HubName("squad")),
        ("hf://c4", HubName("allenai/c4", "en", None, "c4")),
        ("hf://c4:de", HubName("allenai/c4", "de")),
        ("hf://allenai/c4", HubName("allenai/c4")),
        ("hf://fineweb@v1.0.0", HubName("HuggingFaceFW/fineweb", None, "v1.0.0")),
        (
            "hf://tiny_shakespeare",
            HubName("karpathy/tiny_shakespeare", None, "refs/convert/parquet", "tiny_shakespeare"),
        ),
    ],
)
def test_names(argument: str, expected: HubName) -> None:
    assert parse(argument) == expected


@pytest.mark.parametrize("argument", ["hf://", "hf://a b", "hf://a/b/c", "hf://a:", "hf://a@", "hf://a//b"])
def test_no_names(argument: str, golden: Golden) -> None:
    with golden.refused("hub-name-invalid"):
        parse(argument)


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    folder = tmp_path / "with:colon"
    folder.mkdir()
    assert parse(f"hf://{folder}") == HubName(str(folder))
    assert parse(f"hf://{folder}:sub") == HubName(str(folder), "sub")
    monkeypatch.chdir(tmp_path)
    assert parse("hf://./with:colon").repository == str(folder)
    assert parse("hf://./with:colon").short == "with:colon"
    with golden.refused("hub-folder-missing"):
        parse("hf://./none")
    (folder / "dataset_dict.json").write_text("{}")
    with golden.refused("hub-saved-to-disk"):
        parse("hf://./with:colon")


def test_a_configuration_given_twice(golden: Golden) -> None:
    assert parse("hf://org/name:sub", "sub") == parse("hf://org/name", "sub")
    assert parse("hf://c4", "de") == HubName("allenai/c4", "de")
    with golden.refused("hub-config-twice"):
        parse("hf://org/name:a", "b")


def test_files_are_called_after_it() -> None:
    for name in REGISTRY:
        assert parse(f"hf://{name}").short == name
    assert parse("hf://org/name:sub@v1").short == "name-sub"
    assert parse("hf://c4:de").short == "c4-de"


def test_the_field_with_the_text() -> None:
    assert parse("hf://org/name").text_field == "text"
