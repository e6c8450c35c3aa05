"""Files of a dataset by path or name: found, missing, or several."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.schema import Dataset, Tokenizer
from data_loading.find.locate import DatasetFiles, locate
from data_loading.find.prepare import find_sides
from data_loading.text_io.file_names import tokens_for
from tests.golden_text import Golden


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def found(**options: str) -> tuple[str, ...]:
    """Return text and tokens of train, then of val."""
    train, val = find_sides(Dataset(source="text", **options), Tokenizer())
    return tuple(
        str(path)
        for place in (*train, *val)
        if isinstance(place, DatasetFiles)
        for path in (place.text, place.tokens)
    )


@pytest.mark.parametrize("name", ["u.txt", "U.TXT", "u.TXT.gz", "U.TXT.GZ", "u.JSONL.zst", "u.parquet", "u"])
def test_the_name_of_the_tokens_does_not_depend_on_the_case_of_the_ending(name: str) -> None:
    assert tokens_for(Path("a") / name) == Path("a") / f"{name[0]}.npy"


class TestByName:
    @pytest.mark.parametrize(
        ("files", "expected"),
        [
            (["c4.txt"], ("Datasets/c4.txt", "Datasets/c4.npy")),
            (["c4.npy"], ("None", "Datasets/c4.npy")),
            (["c4.txt", "c4.npy", "c4.docs.npy", "c4.npy.json"], ("Datasets/c4.txt", "Datasets/c4.npy")),
            (["c4_subset_large.txt"], ("Datasets/c4_subset_large.txt", "Datasets/c4_subset_large.npy")),
            (["c4_train.txt"], ("Datasets/c4_train.txt", "Datasets/c4_train.npy")),
            (["c4.txt", "wiki.txt", "xc4.txt", "c4.json"], ("Datasets/c4.txt", "Datasets/c4.npy")),
        ],
    )  # fmt: skip
    def test_one_text_or_token_file(self, files: list[str], expected: tuple[str, ...], here: Path) -> None:
        put(*[f"Datasets/{name}" for name in files])
        assert found(name="c4") == expected

    @pytest.mark.parametrize("suffix", ["validation", "val"])
    @pytest.mark.parametrize("base", ["c4", "c4_subset"])
    def test_train_and_validation(self, suffix: str, base: str, here: Path) -> None:
        put(f"Datasets/{base}_train.txt", f"Datasets/{base}_{suffix}.npy", f"Datasets/{base}_train.npy")
        train, val = f"Datasets/{base}_train", f"Datasets/{base}_{suffix}"
        assert found(name="c4") == (f"{train}.txt", f"{train}.npy", "None", f"{val}.npy")

    @pytest.mark.parametrize(
        "files",
        [
            ["c4.txt", "c4_large.txt"],
            ["c4_train.txt", "c4_val.txt", "c4_validation.txt"],
            ["c4_train.txt", "c4_test.txt"],
            ["c4.txt", "c4_val.txt"],
            ["c4_a_train.txt", "c4_b_val.txt"],
            ["c4.npy", "c4_train.txt", "c4_val.txt"],
        ],
    )
    def test_anything_else_that_matches_twice_is_an_error_that_lists_the_files(
        self, files: list[str], here: Path, golden: Golden
    ) -> None:
        put(*[f"Datasets/{name}" for name in files])
        with golden.refused("dataset-ambiguous"):
            found(name="c4")

    def test_nothing_found_says_where_it_should_lie_and_the_command(self, here: Path, golden: Golden) -> None:
        with golden.refused("dataset-not-found"):
            found(name="c4")

    def test_held_out_text_alone_is_not_trained_on(self, here: Path, golden: Golden) -> None:
        put("Datasets/c4_validation.txt")
        with golden.refused("dataset-only-held-out"):
            found(name="c4")


class TestByPath:
    @pytest.mark.parametrize("given", ["my/a.txt", "my/a.npy", "my/a"])
    def test_a_text_a_token_file_or_their_stem(self, given: str, here: Path) -> None:
        put("my/a.txt", "my/a.npy")
        assert found(path=given) == ("my/a.txt", "my/a.npy")

    def test_tokens_alone(self, here: Path) -> None:
        put("my/a.npy")
        assert found(path="my/a") == ("None", "my/a.npy")

    def test_a_text_of_any_name(self, here: Path) -> None:
        put("my/a.md", "my/b.v2.txt", "my/c")
        assert found(path="my/a.md") == ("my/a.md", "my/a.md.npy")
        assert found(path="my/b.v2") == ("my/b.v2.txt", "my/b.v2.npy")
        assert found(path="my/c") == ("my/c", "my/c.npy")

    def test_a_stem_of_train_and_validation(self, here: Path) -> None:
        put("my/a_train.txt", "my/a_validation.txt", "my/a_test.txt")
        assert found(path="my/a") == (
            "my/a_train.txt",
            "my/a_train.npy",
            "my/a_validation.txt",
            "my/a_validation.npy",
        )
        assert found(path="my/a_train.txt") == ("my/a_train.txt", "my/a_train.npy")

    def test_val_path(self, here: Path, golden: Golden) -> None:
        put("a.txt", "b.npy", "c_train.txt", "c_val.txt")
        assert found(path="a.txt", val_path="b") == ("a.txt", "a.npy", "None", "b.npy")
        assert found(path="c", val_path="b")[2:] == ("None", "b.npy")
        with golden.refused("val-path-is-pair"):
            found(path="a.txt", val_path="c")

    def test_home_is_expanded(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put("home/a.txt")
        monkeypatch.setenv("HOME", str(here / "home"))
        assert found(path="~/a.txt") == (str(here / "home/a.txt"), str(here / "home/a.npy"))

    @pytest.mark.parametrize("given", ["no/a.txt", "no/a.npy", "no/a"])
    @pytest.mark.parametrize("key", ["path", "val_path"])
    def test_nothing_there(self, given: str, key: str, here: Path, golden: Golden) -> None:
        put("ok.txt")
        with golden.refused("path-not-found"):
            found(**{"path": "ok.txt", key: given})

    def test_a_folder_of_shards(self, here: Path, golden: Golden) -> None:
        put("d/set/manifest.json", "d/set/manifest.1a2b.json", "d/set/shard_00000.npy")
        [place] = locate(Dataset(source="text", path="d/set"))
        assert (place.text, place.tokens, place.version) == (None, Path("d/set"), None)
        assert place.is_tokenized
        put("d/set.txt")
        for path in ("d/set", "d/set.txt"):
            [place] = locate(Dataset(source="text", path=path))
            assert (place.text, place.tokens) == (Path("d/set.txt"), Path("d/set"))
        [place] = locate(Dataset(source="text", path="d/set/manifest.1a2b.json"))
        assert (place.tokens, place.version) == (Path("d/set"), "1a2b")
        put("d/set.npy")
        with golden.refused("path-ambiguous"):
            locate(Dataset(source="text", path="d/set"))

    def test_train_and_val_of_shards(self, here: Path) -> None:
        put("d/set_train/manifest.json", "d/set_validation/manifest.json")
        place, val = locate(Dataset(source="text", path="d/set"))
        assert (place.tokens, val.tokens) == (Path("d/set_train"), Path("d/set_validation"))

    def test_a_folder_of_shards_by_name(self, here: Path) -> None:
        put("Datasets/c4_subset/manifest.json", "Datasets/c4_other/notes.md")
        [place] = locate(Dataset(name="c4", source="text"))
        assert place.tokens == Path("Datasets/c4_subset")

    @pytest.mark.parametrize("held_out", ["val", "validation"])
    def test_a_folder_of_train_and_val(self, held_out: str, here: Path) -> None:
        put("Datasets/c4/train/manifest.json", f"Datasets/c4/{held_out}/manifest.json")
        for dataset in (Dataset(source="text", path="Datasets/c4"), Dataset(name="c4", source="text")):
            place, val = locate(dataset)
            assert (place.tokens, val.tokens) == (Path("Datasets/c4/train"), Path(f"Datasets/c4/{held_out}"))

    @pytest.mark.parametrize("held_out", ["a_validation.npy", "a/val/manifest.json"])
    def test_set_and_pair_of_one_name_are_refused(self, held_out: str, here: Path, golden: Golden) -> None:
        train = held_out.replace("validation", "train").replace("val/", "train/")
        put("a.npy", held_out, train)
        with golden.refused("path-ambiguous"):
            found(path="a")
        assert found(path="a.npy") == ("None", "a.npy")

    def test_a_folder_of_train_alone_is_no_set(self, here: Path, golden: Golden) -> None:
        put("Datasets/c4/train/manifest.json", "Datasets/c4/notes.md")
        with golden.refused("folder-not-a-set"):
            found(path="Datasets/c4")
        with golden.refused("dataset-not-found"):
            locate(Dataset(name="c4", source="text"))

    def test_a_folder_and_a_list_of_documents(self, here: Path, golden: Golden) -> None:
        put("d/x", "a.npy", "a.docs.npy")
        with golden.refused("folder-not-a-set"):
            found(path="d")
        with golden.refused("path-is-document-starts"):
            found(path="a.docs.npy")
