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
from experiment_utils.errors import UserError

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
    ("status", "code", "advice"),
    [
        (400, "ExpiredToken", "AWS_SESSION_TOKEN"),
        (403, "RequestTimeTooSkewed", "clock"),
        (403, "AccessDenied", "s3:GetObject"),
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        (404, "NoSuchBucket", "name of the bucket"),
        (400, "AuthorizationHeaderMalformed", "AWS_REGION"),
    ],
)
def test_refusal_is_asked_for_once(answers: Answers, status: int, code: str, advice: str) -> None:
    store = answers.with_code(status, code, "why it is so")
    with pytest.raises(UserError) as told:
        store.read("manifest.json", 0, 4)
    assert len(answers.asked) == 1
    for part in (code, "why it is so", advice, "s3://sets/manifest.json"):
        assert part in str(told.value)
    assert not isinstance(told.value, Vanished)


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (400, "RequestTimeout")]
)
def test_what_may_pass_is_asked_for_again(answers: Answers, status: int, code: str) -> None:
    store = answers.with_code(status, code)
    with pytest.raises(UserError, match=code):
        store.read("manifest.json", 0, 4)
    assert len(answers.asked) > 1


def test_answer_that_is_no_range_is_asked_for_once(answers: Answers) -> None:
    answers.body = b"the whole file"
    with pytest.raises(UserError, match="range of bytes"):
        open_store(parse("s3://sets/c4"), PATIENCE_S).read("manifest.json", 0, 4)
    assert len(answers.asked) == 1


def test_object_that_is_not_there_has_vanished(answers: Answers) -> None:
    with pytest.raises(Vanished, match="NoSuchKey"):
        answers.with_code(404, "NoSuchKey").read("manifest.json", 0, 4)


def test_variables_that_are_not_set_are_named() -> None:
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set" in no_keys({})
    told = no_keys({"AWS_ACCESS_KEY_ID": "AKEY"})
    assert "AWS_SECRET_ACCESS_KEY is not set" in told
    assert "~/.aws" in told


def test_endpoint_by_the_name_of_mosaic() -> None:
    assert s3_options({"S3_ENDPOINT_URL": "http://a"})["endpoint"] == "http://a"
    both = {"S3_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL": "http://b"}
    assert s3_options(both)["endpoint"] == "http://b"
