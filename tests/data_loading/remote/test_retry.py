"""Answers of a store: its own code and message are shown; a final answer is requested once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from data_loading.remote.address import no_keys, parse
from data_loading.remote.retry import Vanished
from data_loading.remote.store import Store, open_store
from tests.data_loading.remote.conftest import KEY, SECRET
from tests.data_loading.remote.faulty_proxy import FaultyProxy
from tests.golden_text import Golden

PATIENCE_S = 0.5


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with FaultyProxy(backend=0) as running:
        for name, value in {
            "AWS_ENDPOINT_URL": running.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield running


def store_with_answer(server: FaultyProxy, status: int, code: str) -> Store:
    body = f"<Error><Code>{code}</Code><Message>reason</Message></Error>"
    server.fault = lambda request: (status, f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'.encode())
    return open_store(parse("s3://sets/c4"), PATIENCE_S)


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
def test_refusal_is_not_retried(server: FaultyProxy, status: int, code: str, golden: Golden) -> None:
    store = store_with_answer(server, status, code)
    with golden.refused("store-refused") as caught:
        store.read("manifest.json", 0, 4)
    assert len(server.requests) == 1
    assert not isinstance(caught.value, Vanished)


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (400, "RequestTimeout")]
)
def test_failure_that_can_pass_is_retried(
    server: FaultyProxy, status: int, code: str, golden: Golden
) -> None:
    store = store_with_answer(server, status, code)
    with golden.refused("store-unreachable", numbers=False):
        store.read("manifest.json", 0, 4)
    assert len(server.requests) > 1


def test_answer_without_range_is_not_retried(server: FaultyProxy, golden: Golden) -> None:
    server.fault = lambda request: (200, b"the whole file")
    with golden.refused("store-refused"):
        open_store(parse("s3://sets/c4"), PATIENCE_S).read("manifest.json", 0, 4)
    assert len(server.requests) == 1


def test_missing_object_is_named(server: FaultyProxy, golden: Golden) -> None:
    with golden.refused("object-missing"):
        store_with_answer(server, 404, "NoSuchKey").read("manifest.json", 0, 4)


def test_unset_keys_are_named(golden: Golden) -> None:
    golden.text(no_keys({}))
    golden.text(no_keys({"AWS_ACCESS_KEY_ID": KEY}))
