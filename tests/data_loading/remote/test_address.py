"""Addresses of sets, and the environment variables that open their stores."""

from __future__ import annotations

import sys

import pytest

from data_loading.find.open_tokens import open_tokens
from data_loading.remote.address import parse, redacted, store_options
from data_loading.remote.store import open_store
from experiment_utils.errors import UserError
from experiment_utils.extras import install_command
from tests.golden_text import Golden

R2 = {"R2_DATASET_BUCKET_NAME": "mine", "DATASET_BINS_PATH": "/bins/c4/"}


@pytest.mark.parametrize(
    ("source", "uri", "manifest"),
    [
        ("s3://bucket/a/c4", "s3://bucket/a/c4", "c4/manifest.json"),
        ("s3://bucket/a/c4/", "s3://bucket/a/c4", "c4/manifest.json"),
        ("s3://bucket", "s3://bucket", "manifest.json"),
        ("s3://bucket/a/x.npy", "s3://bucket/a/x.npy", "x.npy.json"),
        ("r2://", "r2://mine/bins/c4", "c4/manifest.json"),
        ("r2://other/set", "r2://other/set", "set/manifest.json"),
        ("https://host:8443/a%20b/c4", "https://host:8443/a b/c4", "c4/manifest.json"),
        ("http://127.0.0.1:9000/c4", "http://127.0.0.1:9000/c4", "c4/manifest.json"),
        ("Datasets/c4", "Datasets/c4", "c4/manifest.json"),
    ],
)
def test_address_is_parsed(source: str, uri: str, manifest: str) -> None:
    found = parse(source, R2)
    assert found.uri == uri
    assert found.files.manifest.as_posix() == manifest


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("https://user:password@host/c4", "address-with-secret"),
        ("https://host/c4?sig=password", "address-with-query"),
        ("http://host/c4", "address-not-https"),
        ("s3:///c4", "address-incomplete"),
        ("ftp://host/c4", "scheme-unknown"),
    ],
)
def test_wrong_address_is_refused(source: str, code: str, golden: Golden) -> None:
    with golden.refused(code):
        parse(source, {})


def test_missing_variables_are_named(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    for name in ("R2_DATASET_ACCOUNT_ID", "R2_DATASET_READ_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("R2_DATASET_READ_ACCESS_KEY_ID", "key-of-mine")
    with golden.refused("r2-variables-missing"):
        open_tokens("r2://bucket/c4")


def test_unset_half_of_a_pair_of_keys_is_named(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-mine")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with golden.refused("store-options"):
        open_store(parse("s3://sets/c4"))


@pytest.mark.parametrize("endpoint", ["garbage", "localhost:9000", "http://", "http:// host", "ftp://host"])
def test_endpoint_without_scheme_is_refused(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """The library panics at it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with golden.refused("endpoint-invalid"):
        open_store(parse("s3://sets/c4"))


def test_missing_obstore_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UserError) as refused:
        open_store(parse("s3://sets/c4"))
    assert refused.value.codes == ["package-missing"]
    assert install_command("remote") in str(refused.value)


def test_endpoints_come_from_the_environment() -> None:
    keys = {"R2_DATASET_READ_ACCESS_KEY_ID": "k", "R2_DATASET_READ_SECRET_ACCESS_KEY": "s"}
    options = store_options("r2", {**keys, "R2_DATASET_ACCOUNT_ID": "abc"})
    assert options["endpoint"] == "https://abc.r2.cloudflarestorage.com"
    assert store_options("r2", {**keys, "R2_DATASET_ENDPOINT_URL": "https://eu"})["endpoint"] == "https://eu"
    other = {"S3_ENDPOINT_URL": "http://a", "AWS_REGION": "x"}
    assert store_options("s3", other) == {"endpoint": "http://a"}
    assert store_options("s3", {**other, "AWS_ENDPOINT_URL": "http://b"}) == {"endpoint": "http://b"}
    assert store_options("s3", {}) == {"region": "us-east-1"}


def test_keys_are_removed_from_texts() -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "abcdefgh", "R2_DATASET_ACCOUNT_ID": "0123456789"}
    shown = redacted("<Key>abcdefgh</Key> at https://0123456789.r2", environ)
    assert shown == "<Key>$AWS_SECRET_ACCESS_KEY</Key> at https://$R2_DATASET_ACCOUNT_ID.r2"
