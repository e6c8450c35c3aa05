"""Datasets of the hub: from folders, and from a hub on loopback, with the package `datasets` itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_loading import __main__ as command
from data_loading import materialize
from data_loading.hub.client import listing_of
from tests.as_written import as_written
from tests.data_loading.hub.hub_server import COMMIT, hub_server
from tests.golden_text import Golden

pytest.importorskip("datasets")
ROOT = Path(__file__).resolve().parents[3]


def write_dataset(folder: Path, files: int = 3, rows: int = 5, split: str = "train") -> list[str]:
    """Parquet files; returns their texts in the order of the files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    texts = []
    for number in range(files):
        own = [f"{split} {number} {row}" for row in range(rows + number)]
        pq.write_table(pa.table({"text": own}), folder / f"{split}-{number:05d}.parquet", row_group_size=2)
        texts += own
    return texts


def ids(texts: list[str]) -> list[int]:
    return [i for text in texts for i in [*text.encode(), 256]]


def asked(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-m", "data_loading", *arguments],
        cwd=cwd, capture_output=True, text=True, timeout=240,
        env={**kept, "PYTHONPATH": str(ROOT), "HF_HOME": str(cwd / "hf"), **environment},
    )  # fmt: skip
    return as_written(done)


class TestMaterialize:
    def test_a_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
        monkeypatch.chdir(tmp_path)
        texts = write_dataset(tmp_path / "mine")
        result = materialize(f"hf://{tmp_path}/mine", "bytes", workers=0)
        assert result.path == Path("Datasets/mine.npy")
        assert np.load(result.path).tolist() == ids(texts)
        assert not materialize("hf://./mine", "bytes", workers=0).made, "the same content, by another name"
        limited = materialize("hf://./mine", "bytes", "few.npy", max_documents=4, workers=0)
        assert np.load(limited.path).tolist() == ids(texts[:4])
        write_dataset(tmp_path / "mine", rows=6)
        with golden.refused("output-differs", numbers=False):
            materialize("hf://./mine", "bytes", workers=0)

    def test_no_such_name(self, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
        assert command.main(["materialize", "finewebs"]) == 2
        golden.text(capsys.readouterr().err, numbers=False)

    @pytest.mark.slow
    def test_from_a_hub(self, tmp_path: Path) -> None:
        texts = write_dataset(tmp_path / "hub" / "HuggingFaceFW" / "fineweb")
        with hub_server(tmp_path / "hub") as hub:
            made = asked(
                "materialize", "fineweb", "--tokenizer", "bytes", "--workers", "0",
                cwd=tmp_path, HF_ENDPOINT=hub.url,
            )  # fmt: skip
            assert made.returncode == 0, made.stderr
            assert np.load(tmp_path / "Datasets" / "fineweb.npy").tolist() == ids(texts)
            manifest = json.loads((tmp_path / "Datasets" / "fineweb.npy.json").read_text())
            assert manifest["sources"][0]["revision"] == COMMIT
            assert any(f"/resolve/{COMMIT}/train-00002.parquet" in request for request in hub.asked)
            missing = asked("materialize", "hf://org/none", cwd=tmp_path, HF_ENDPOINT=hub.url)
            assert missing.returncode == 2
        listed = asked("list", cwd=tmp_path)
        assert "fineweb      " in listed.stdout
        assert "Datasets/fineweb.npy" in listed.stdout


class TestUnreachable:
    def refused(self, tmp_path: Path, **environment: str) -> str:
        made = asked(
            "materialize", "hf://org/name", "--tokenizer", "bytes", cwd=tmp_path, **environment
        )  # fmt: skip
        assert made.returncode == 2
        assert "Traceback" not in made.stderr
        return made.stderr

    def test_nothing_answers(self, tmp_path: Path, golden: Golden) -> None:
        told = self.refused(tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
        golden.text(told, numbers=False)
        assert all(name in told for name in ("HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE", "save_to_disk"))

    def test_offline(self, tmp_path: Path, golden: Golden) -> None:
        told = self.refused(tmp_path, HF_HUB_OFFLINE="1")
        golden.text(told, numbers=False)


def test_a_listing_tells_contents_apart(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "x.txt"
    file.write_bytes(b"a" * 200_000)
    first = listing_of(tmp_path)
    os.utime(file, (1, 1))
    (tmp_path / ".cache").write_text("hidden")
    assert listing_of(tmp_path) == first
    for change in (b"a" * 200_001, b"b" + b"a" * 199_999, b"a" * 199_999 + b"b"):
        file.write_bytes(change)
        assert listing_of(tmp_path) != first
    file.write_bytes(b"a" * 200_000)
    file.rename(tmp_path / "x.txt")
    assert listing_of(tmp_path) != first
