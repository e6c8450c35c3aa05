"""Addresses of token sets: the folder that holds one, and its name there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from data_loading.remote.credentials import R2_BUCKET, R2_PATH
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError

SCHEMES = ("s3", "r2", "https", "http")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


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


def is_remote(source: str) -> bool:
    """Whether a source is in a store or on a server, by its scheme."""
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
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if "@" in parts.netloc:
        raise UserError(
            f"{shown}: a name or key before the host would be written into run.json. Remove it",
            code="address-with-secret",
        )
    if parts.query or parts.fragment:
        raise UserError(
            f"{shown}: the part after ? or # is not used. Give the address without it",
            code="address-with-query",
        )
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise UserError(
            f"{shown}: http:// is for this machine alone (127.0.0.1). Give https://", code="address-not-https"
        )
    bucket, path_below = parts.netloc, parts.path.strip("/")
    if parts.scheme == "r2":
        bucket = bucket or environ.get(R2_BUCKET, "")
        path_below = path_below or environ.get(R2_PATH, "").strip("/")
    if not bucket:
        more = f", or set {R2_BUCKET}" if parts.scheme == "r2" else ""
        raise UserError(
            f"{shown}: a bucket or host is missing. Give {parts.scheme}://NAME/PATH{more}",
            code="address-incomplete",
        )
    folder, _, name = unquote(path_below).rpartition("/")
    return Address(parts.scheme, bucket, folder, SetFiles(Path(name or ".")))
