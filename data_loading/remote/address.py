"""Addresses of token sets, and the environment variables that open their stores."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError

SCHEMES = ("s3", "r2", "https", "http")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_S3_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL")
_R2_ACCOUNT, _R2_BUCKET, _R2_PATH = "R2_DATASET_ACCOUNT_ID", "R2_DATASET_BUCKET_NAME", "DATASET_BINS_PATH"
_R2_KEYS = ("R2_DATASET_READ_ACCESS_KEY_ID", "R2_DATASET_READ_SECRET_ACCESS_KEY")
_R2_ENDPOINT = "R2_DATASET_ENDPOINT_URL"
_SECRETS = (*_S3_KEYS, "AWS_SESSION_TOKEN", _R2_ACCOUNT, *_R2_KEYS, "WANDB_API_KEY")
_SHORTEST = 4
"""Characters of a key that is replaced in texts: a shorter value would be found in words."""
_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SKIP_SIGNATURE=true for a public bucket), "
    "AWS_REGION, and AWS_ENDPOINT_URL for a store that is not Amazon's",
    "r2": f"{_R2_ACCOUNT} and {' and '.join(_R2_KEYS)} ({_R2_ENDPOINT} for an endpoint of a jurisdiction)",
}


@dataclass(frozen=True)
class Address:
    """Place of a set."""

    scheme: str
    """Empty for a folder on a disk."""
    root: str
    """Bucket, host with port, or the folder on a disk."""
    path: str
    """Folder below the root that holds the set."""
    files: SetFiles
    """Files of the set, relative to that folder."""

    @property
    def uri(self) -> str:
        """Address of the set, without anything secret."""
        return self.of(self.files.tokens.as_posix())

    def of(self, name: str) -> str:
        """Address of a file of the set."""
        if not self.scheme:
            return str(Path(self.root) / name)
        return f"{self.scheme}://" + "/".join(filter(None, [self.root, self.path, name.removeprefix(".")]))

    @property
    def variables(self) -> str:
        """Environment variables that a user should check when the store refuses a request."""
        return _VARIABLES.get(self.scheme, "the address")


def is_remote(source: str) -> bool:
    """Return whether a source is in a store or on a server, by its scheme."""
    return "://" in source and source.partition("://")[0] in SCHEMES


def parse(source: str, environ: Mapping[str, str] = os.environ) -> Address:
    """Parse s3://BUCKET/PATH, r2://BUCKET/PATH, r2:// (from the environment), https://HOST/PATH or a path.

    PATH is a folder of shards, or ends in .npy.

    Raises:
        UserError: unknown scheme, no bucket, or a part that an address cannot have.
    """
    if not is_remote(source):
        if "://" in source:
            raise UserError(
                f"{source}: choices are s3://, r2://, https:// and a path on a disk", code="scheme-unknown"
            )
        path = Path(source).expanduser()
        return Address("", str(path.parent), "", SetFiles(Path(path.name)))
    parts = urlsplit(source)
    bucket, below = parts.netloc, parts.path.strip("/")
    if parts.scheme == "r2":
        bucket = bucket or environ.get(_R2_BUCKET, "")
        below = below or environ.get(_R2_PATH, "").strip("/")
    more = f", or set {_R2_BUCKET}" if parts.scheme == "r2" else ""
    wrong = {
        "address-with-secret": "a name or key before the host would be written into run.json. Remove it"
        if "@" in parts.netloc else "",
        "address-with-query": "the part after ? or # is not used. Give the address without it"
        if parts.query or parts.fragment else "",
        "address-not-https": "http:// is for this machine alone (127.0.0.1). Give https://"
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK else "",
        "address-incomplete": f"a bucket or host is missing. Give {parts.scheme}://NAME/PATH{more}"
        if not bucket else "",
    }  # fmt: skip
    for code, message in wrong.items():
        if message:
            shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            raise UserError(f"{shown}: {message}", code=code)
    folder, _, name = unquote(below).rpartition("/")
    return Address(parts.scheme, bucket, folder, SetFiles(Path(name or ".")))


def store_options(scheme: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return options of obstore's S3Store for s3 or r2 that it does not read from AWS variables itself.

    Raises:
        UserError: variables are missing, or an endpoint is no URL; names them.
    """
    names = (_R2_ENDPOINT,) if scheme == "r2" else _S3_ENDPOINTS
    name = next((name for name in names if environ.get(name)), names[0])
    endpoint = environ.get(name, "")
    if endpoint and not re.fullmatch(r"https?://[^\s/]+\S*", endpoint):  # the library panics at it
        raise UserError(
            f"{name}={endpoint} is no URL: expected one such as http://localhost:9000 or https://HOST",
            code="endpoint-invalid",
        )
    if scheme == "s3":
        options: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        if not any(name in environ for name in ("AWS_REGION", "AWS_DEFAULT_REGION")):
            options["region"] = "us-east-1"  # the default of Amazon's own tools
        return options
    needed = _R2_KEYS if endpoint else (_R2_ACCOUNT, *_R2_KEYS)
    missing = [name for name in needed if not environ.get(name)]
    if missing:
        raise UserError(
            f"r2:// needs {', '.join(missing)} in the environment. Set them, and try again",
            code="r2-variables-missing",
        )
    return {
        "endpoint": endpoint or f"https://{environ[_R2_ACCOUNT]}.r2.cloudflarestorage.com", "region": "auto",
        "access_key_id": environ[_R2_KEYS[0]], "secret_access_key": environ[_R2_KEYS[1]],
        "virtual_hosted_style_request": False,
    }  # fmt: skip


def no_keys(environ: Mapping[str, str] = os.environ) -> str:
    """Return the message that names the variables with keys for S3 that are not set."""
    unset = [name for name in _S3_KEYS if not environ.get(name)]
    return (
        f"{' and '.join(unset) or 'the keys for S3'} {'is' if len(unset) == 1 else 'are'} not set, and this "
        "machine has no role that gives keys. ~/.aws and AWS_PROFILE are not read. Set the variables "
        "(aws configure export-credentials --format env prints them), or AWS_SKIP_SIGNATURE=true for a "
        "public bucket"
    )


def redacted(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Replace the value of each variable that holds a key by the variable's name."""
    for name in _SECRETS:
        value = environ.get(name, "")
        if len(value) >= _SHORTEST:
            text = text.replace(value, f"${name}")
    return text
