"""`python -m data_loading mirror`: between disks, a server of the S3 API and a web server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_loading.__main__ import main
from data_loading.remote.download import damaged_blocks
from data_loading.remote.stored_files import SetGeometry
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import open_token_set
from tests.data_loading.remote.conftest import KEY, SECRET, upload
from tests.data_loading.remote.faulty_proxy import FaultyProxy, Request
from tests.golden_text import Golden


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "checked.json"
    }


@pytest.fixture(scope="session")
def shards(make_set: Callable[..., Path]) -> Path:
    return make_set(40_000, 9_000)


def test_from_a_disk_to_a_store_and_back(
    shards: Path, bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["mirror", str(shards), "s3://sets/all/c4"]) == 0
    keys = [found["Key"] for found in bucket.list_objects_v2(Bucket="sets")["Contents"]]
    assert "all/c4/manifest.json" in keys
    assert main(["mirror", "s3://sets/all/c4", str(tmp_path / "back")]) == 0
    assert contents(tmp_path / "back") == contents(shards)
    assert open_token_set(tmp_path / "back").fingerprint == open_token_set(shards).fingerprint
    capsys.readouterr()
    assert main(["mirror", str(shards), "s3://sets/all/c4"]) == 0
    golden.text(capsys.readouterr().out, numbers=False)


@pytest.mark.slow
def test_a_set_in_one_file(make_set: Callable[..., Path], bucket: Any, tmp_path: Path) -> None:
    path = make_set(20_000)
    assert main(["mirror", str(path), "s3://sets/one.npy"]) == 0
    assert main(["mirror", "s3://sets/one.npy", str(tmp_path / "two.npy")]) == 0
    assert (tmp_path / "two.npy").read_bytes() == path.read_bytes()
    assert len(open_token_set(tmp_path / "two.npy").tokens) == len(open_token_set(path).tokens)


def test_from_r2(
    shards: Path, bucket: Any, s3_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(bucket, shards, "bins/c4")
    for name, value in {
        "R2_DATASET_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}",
        "R2_DATASET_READ_ACCESS_KEY_ID": KEY,
        "R2_DATASET_READ_SECRET_ACCESS_KEY": SECRET,
        "R2_DATASET_BUCKET_NAME": "sets",
        "DATASET_BINS_PATH": "bins/c4",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    assert main(["mirror", "r2://", str(tmp_path / "c4")]) == 0
    assert contents(tmp_path / "c4") == contents(shards)


def test_only_missing_or_damaged_files_are_copied_again(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    target = tmp_path / "copy"
    assert main(["mirror", str(shards), str(target)]) == 0
    (target / "manifest.json").unlink()
    (target / "shard_00001.npy").unlink()
    data = bytearray((target / "shard_00002.npy").read_bytes())
    data[5000] ^= 1
    (target / "shard_00002.npy").write_bytes(data)
    capsys.readouterr()
    assert main(["mirror", str(shards), str(target), "--dry-run"]) == 0
    golden.text(capsys.readouterr().out, "dry run")
    assert not (target / "shard_00001.npy").exists()
    assert main(["mirror", str(shards), str(target)]) == 0
    golden.text(re.sub(r"in \d+\.\d s", "in N s", capsys.readouterr().out))
    assert contents(target) == contents(shards)


def test_another_object_in_a_store_is_replaced(shards: Path, bucket: Any, tmp_path: Path) -> None:
    """Of the same size: one that a copy of another set has left, and one from elsewhere."""
    assert main(["mirror", str(shards), "s3://sets/c4"]) == 0
    bucket.delete_object(Bucket="sets", Key="c4/manifest.json")
    for number, marks in ((1, {"highwater-checksum": "another"}), (2, {})):
        size = (shards / f"shard_0000{number}.npy").stat().st_size
        key = f"c4/shard_0000{number}.npy"
        bucket.put_object(Bucket="sets", Key=key, Body=b"x" * size, Metadata=marks)
    assert main(["mirror", str(shards), "s3://sets/c4"]) == 0
    for number in (1, 2):
        found = bucket.get_object(Bucket="sets", Key=f"c4/shard_0000{number}.npy")["Body"].read()
        assert found == (shards / f"shard_0000{number}.npy").read_bytes()


def test_the_manifest_comes_last(shards: Path, bucket: Any, tmp_path: Path) -> None:
    copied = tmp_path / "damaged"
    shutil.copytree(shards, copied)
    data = bytearray((copied / "shard_00003.npy").read_bytes())
    data[6000] ^= 1
    (copied / "shard_00003.npy").write_bytes(data)
    assert main(["mirror", str(copied), "s3://sets/half"]) == 2
    keys = [found["Key"] for found in bucket.list_objects_v2(Bucket="sets")["Contents"]]
    assert "half/shard_00002.npy" in keys
    assert "half/shard_00003.npy" not in keys
    assert "half/manifest.json" not in keys
    assert main(["mirror", "s3://sets/half", str(tmp_path / "none")]) == 2
    assert not (tmp_path / "none").exists()


def test_another_set_at_the_target_is_kept(
    shards: Path,
    make_set: Callable[..., Path],
    bucket: Any,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    assert main(["mirror", str(shards), "s3://sets/c4"]) == 0
    before = bucket.get_object(Bucket="sets", Key="c4/manifest.json")["Body"].read()
    assert main(["mirror", str(make_set(15_000, 9_000)), "s3://sets/c4"]) == 2
    golden.text(capsys.readouterr().err, numbers=False)
    assert bucket.get_object(Bucket="sets", Key="c4/manifest.json")["Body"].read() == before


@pytest.mark.parametrize(
    "fault",
    [
        "500",
        *(pytest.param(f, marks=pytest.mark.slow) for f in ("reset", "truncated", "short", "wrong", "slow")),
    ],
)
def test_fault_of_one_request_is_retried(
    shards: Path, bucket: Any, proxy: FaultyProxy, tmp_path: Path, fault: str
) -> None:
    upload(bucket, shards, "c4")

    def once(request: Request) -> str | None:
        spoils = request.method == "GET" and "shard" in request.path and request.attempt == 1
        return fault if spoils and "docs" not in request.path else None

    proxy.fault = once
    assert main(["mirror", "s3://sets/c4", str(tmp_path / "c4"), "--part-size", "3000"]) == 0
    assert proxy.gets("shard_00000.npy")
    assert contents(tmp_path / "c4") == contents(shards)


@pytest.mark.parametrize("change", ["vanished", "truncated", "damaged"])
def test_object_that_differs_from_the_manifest_is_named(
    shards: Path, bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, golden: Golden
) -> None:
    upload(bucket, shards, "c4")
    data = bytearray((shards / "shard_00002.npy").read_bytes())
    data[128 + 4096 + 17] ^= 1
    bucket.delete_object(Bucket="sets", Key="c4/shard_00002.npy")
    if change != "vanished":
        body = bytes(data[:5000] if change == "truncated" else data)
        bucket.put_object(Bucket="sets", Key="c4/shard_00002.npy", Body=body)
    assert main(["mirror", "s3://sets/c4", str(tmp_path / "c4")]) == 2
    golden.text(capsys.readouterr().err, numbers=False)
    assert not (tmp_path / "c4" / "manifest.json").exists()


def test_unreachable_endpoint_fails_in_seconds(
    shards: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr("data_loading.remote.copy_set.FIRST_PATIENCE_S", 1.0)
    assert main(["mirror", "s3://sets/c4", str(tmp_path / "c4")]) == 2
    shown = capsys.readouterr().err
    golden.text(re.sub(r" in [\d.]+\w+ - ", " in N - ", shown), numbers=False)
    assert KEY not in shown
    assert SECRET not in shown


@pytest.mark.slow
def test_from_a_web_server(shards: Path, bucket: Any, s3_port: int, tmp_path: Path) -> None:
    upload(bucket, shards, "c4")
    bucket.put_bucket_acl(Bucket="sets", ACL="public-read")
    for found in bucket.list_objects_v2(Bucket="sets")["Contents"]:
        bucket.put_object_acl(Bucket="sets", Key=found["Key"], ACL="public-read")
    assert main(["mirror", f"http://127.0.0.1:{s3_port}/sets/c4", str(tmp_path / "c4")]) == 0
    assert contents(tmp_path / "c4") == contents(shards)


@pytest.mark.slow
def test_a_copy_after_a_killed_one_keeps_verified_blocks(
    make_set: Callable[..., Path], bucket: Any, proxy: FaultyProxy, tmp_path: Path, root: Path
) -> None:
    one = make_set(600_000, 500_000, block_bytes=200_000)
    upload(bucket, one, "c4")
    manifest = json.loads((one / "manifest.json").read_text())
    file = SetGeometry(SetFiles(Path("c4")), manifest).tokens_file(0)
    proxy.fault = lambda request: "slow" if request.range else None
    arguments = ["mirror", "s3://sets/c4", str(tmp_path / "c4"), "--part-size", "20000", "--workers", "2"]
    running = subprocess.Popen([sys.executable, "-m", "data_loading", *arguments], cwd=root)
    part = tmp_path / "c4" / ".shard_00000.npy.part"
    while not part.exists() or len(damaged_blocks(part, file)) > len(file.blocks) - 2:
        assert running.poll() is None
        time.sleep(0.01)
    running.kill()
    running.wait()
    before = len(proxy.gets("shard_00000.npy"))
    proxy.fault = lambda request: None
    assert main(arguments) == 0
    again = len(proxy.gets("shard_00000.npy")) - before
    assert contents(tmp_path / "c4") == contents(one)
    assert again <= (len(file.blocks) - 2) * 200_000 // 20_000
