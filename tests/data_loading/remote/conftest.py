"""A real server of the S3 API on loopback, a proxy that spoils its answers, and sets in it."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.pretokenizer import manifest, writer
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.data_loading.remote.faulty_proxy import FaultyProxy

KEY, SECRET = "AKIAVERYSECRETKEY", "a-secret-that-no-output-shows"


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    moto = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture(scope="session")
def s3_client(s3_port: int) -> Any:
    import boto3

    return boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{s3_port}", region_name="us-east-1",
        aws_access_key_id=KEY, aws_secret_access_key=SECRET,
    )  # fmt: skip


@pytest.fixture
def bucket(s3_port: int, s3_client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an empty bucket `sets` there; the environment has its endpoint and keys."""
    url = f"http://127.0.0.1:{s3_port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    s3_client.create_bucket(Bucket="sets")
    yield s3_client
    urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST")).close()


@pytest.fixture
def proxy(s3_port: int, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """A proxy of the server with the bucket; the environment has its endpoint."""
    with FaultyProxy(s3_port) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


def upload(bucket: Any, folder: Path, prefix: str) -> None:
    """Upload all files of a folder as objects."""
    for path in filter(Path.is_file, folder.rglob("*")):
        bucket.put_object(Bucket="sets", Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes())


@pytest.fixture(scope="session")
def make_set(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a set of at least `tokens`, in shards or one file, with documents of 20 to 180 tokens."""

    def make(tokens: int, shard_tokens: int | None = None, name: str = "c4", block_bytes: int = 4096) -> Path:
        folder = tmp_path_factory.mktemp("set")
        random = np.random.default_rng(tokens)
        documents = []
        while sum(map(len, documents)) < tokens:
            documents.append(random.integers(97, 123, random.integers(20, 180), np.uint8).tobytes().decode())
        (folder / "text.txt").write_text("\n---\n".join(documents))
        path = folder / (name if shard_tokens else f"{name}.npy")
        source = TextFile(folder / "text.txt", document_separator="---")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "CHECKSUM_BYTES", block_bytes)
            patch.setattr(manifest, "CHECKSUM_BYTES", block_bytes)
            pretokenize(source, BytesTokenizer(), path, Options(shard_tokens=shard_tokens, workers=0))
        return path

    return make
