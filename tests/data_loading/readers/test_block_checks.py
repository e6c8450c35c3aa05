"""A block that changed while size and time stayed the same is found before it is used."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from data_loading import StreamingDataset, pretokenize
from data_loading.pretokenizer import manifest, writer
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.golden_text import Golden


@pytest.fixture(params=["one file", "shards"])
def tokens(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """100,001 tokens with a checksum for each 8 KB; the file that holds token 60,000."""
    for module in (writer, manifest):
        monkeypatch.setattr(module, "CHECKSUM_BYTES", 8192)
    (tmp_path / "a.txt").write_bytes(np.random.default_rng(0).integers(32, 127, 100_000, np.uint8).tobytes())
    shards = request.param == "shards"
    output = tmp_path / ("set" if shards else "a.npy")
    options = Options(shard_tokens=30_000 if shards else None)
    pretokenize(TextFile(tmp_path / "a.txt"), BytesTokenizer(), output, options)
    return sorted(output.glob("shard_*[0-9].npy"))[2] if shards else output


def open_again(tokens: Path, verify: str, **options: str) -> StreamingDataset:
    path = tokens if tokens.parent.name != "set" else tokens.parent
    return StreamingDataset(path, seq_len=100, order="sequential", verify=verify, **options)  # type: ignore[arg-type]


def change(tokens: Path, token: int) -> int:
    """Flip a bit of a token, size and time as before; returns its byte in the tokens of its file."""
    place, state = 2 * (token if tokens.name == "a.npy" else token - 60_000), tokens.stat()
    with open(tokens, "r+b") as file:
        file.seek(128 + place)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(tokens, ns=(state.st_atime_ns, state.st_mtime_ns))
    return place


@pytest.mark.parametrize("documents", ["across", "separate"])
def test_a_flipped_bit_is_named_by_its_block(tokens: Path, documents: str, golden: Golden) -> None:
    """One document of 100,001 tokens is packed as windows of it."""
    checked = open_again(tokens, "blocks", documents=documents)
    trusting = open_again(tokens, "set", documents=documents)
    before = checked[600]["input_ids"].tolist()
    assert before == trusting[600]["input_ids"].tolist()
    checked = open_again(tokens, "blocks", documents=documents)
    place = change(tokens, 60_050)
    assert trusting[600]["input_ids"].tolist() != before, "size and time are as they were"
    assert checked[300]["input_ids"].shape == (100,), "other blocks are right"
    with golden.refused("tokens-changed") as caught:
        checked[600]
    first, last = (int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", str(caught.value))[-2:])
    assert first <= place < last
    assert last - first == 8192


def test_window_that_ends_in_a_damaged_block_is_found(tokens: Path, golden: Golden) -> None:
    """The block in which it begins is right."""
    border = 65_536 if tokens.name == "a.npy" else 60_000 + 4096
    checked = open_again(tokens, "blocks")
    change(tokens, border + 1)
    with golden.refused("tokens-changed"):
        checked[border // 100]


def test_every_window_of_a_good_set_is_read(tokens: Path) -> None:
    checked, trusting = open_again(tokens, "blocks"), open_again(tokens, "set")
    everything = range(len(checked))
    assert checked.__getitems__(everything)["labels"].equal(trusting.__getitems__(everything)["labels"])


def test_a_lone_file_has_no_checksums(tmp_path: Path, golden: Golden) -> None:
    np.save(tmp_path / "lone.npy", np.arange(1000, dtype="<u2"))
    with golden.refused("no-checksums"):
        StreamingDataset(tmp_path / "lone.npy", seq_len=10, verify="blocks")
    with golden.refused("verify-unknown"):
        StreamingDataset(tmp_path / "lone.npy", seq_len=10, verify="all")
