"""Answers of a store: its own code and message are shown; what cannot pass is asked for once."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from data_loading.remote.address import parse
from data_loading.remote.credentials import no_keys, s3_options
from data_loading.remote.retry import Vanished
from data_loading.remote.store import Store, open_store
from tests.golden_text import Golden

PATIENCE_S = 0.5


@dataclass
class Answers:
    """What the server says to each request, and how often it was asked."""

    port: int = 0
    status: int = 200
    body: bytes = b""
    asked: list[str] = field(default_factory=list)

    def with_code(self, status: int, code: str, message: str = "so it is") -> Store:
        self.status = status
        self.body = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}'
            "</Message></Error>"
        ).encode()
        return open_store(parse("s3://sets/c4"), PATIENCE_S)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    found = Answers()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            self.send_response(found.status)
            self.send_header("content-length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ASECRET")
    yield found
    server.shutdown()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "ExpiredToken"),
        (403, "RequestTimeTooSkewed"),
        (403, "AccessDenied"),
        (403, "InvalidAccessKeyId"),
        (403, "SignatureDoesNotMatch"),
        (404, "NoSuchBucket"),
        (400, "AuthorizationHeaderMalformed"),
    ],
)
def test_refusal_is_not_retried(answers: Answers, status: int, code: str, golden: Golden) -> None:
    store = answers.with_code(status, code, "why it is so")
    with golden.refused("store-refused") as told:
        store.read("manifest.json", 0, 4)
    assert len(answers.asked) == 1
    assert not isinstance(told.value, Vanished)


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (400, "RequestTimeout")]
)
def test_failure_that_may_pass_is_retried(answers: Answers, status: int, code: str, golden: Golden) -> None:
    store = answers.with_code(status, code)
    with golden.refused("store-unreachable", numbers=False):
        store.read("manifest.json", 0, 4)
    assert len(answers.asked) > 1


def test_answer_without_range_is_not_retried(answers: Answers, golden: Golden) -> None:
    answers.body = b"the whole file"
    with golden.refused("store-refused"):
        open_store(parse("s3://sets/c4"), PATIENCE_S).read("manifest.json", 0, 4)
    assert len(answers.asked) == 1


def test_missing_object_is_named(answers: Answers, golden: Golden) -> None:
    with golden.refused("object-missing"):
        answers.with_code(404, "NoSuchKey").read("manifest.json", 0, 4)


def test_unset_keys_are_named(golden: Golden) -> None:
    golden.text(no_keys({}))
    told = no_keys({"AWS_ACCESS_KEY_ID": "AKEY"})
    golden.text(told, numbers=False)


def test_endpoint_variable_of_mosaic_is_read() -> None:
    assert s3_options({"S3_ENDPOINT_URL": "http://a"})["endpoint"] == "http://a"
    both = {"S3_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL": "http://b"}
    assert s3_options(both)["endpoint"] == "http://b"
