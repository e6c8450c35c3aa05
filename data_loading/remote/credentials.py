"""Keys of stores from the environment; they never appear in an output."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from experiment_utils.errors import UserError

R2_ACCOUNT, R2_BUCKET = "R2_DATASET_ACCOUNT_ID", "R2_DATASET_BUCKET_NAME"
R2_KEY, R2_SECRET = "R2_DATASET_READ_ACCESS_KEY_ID", "R2_DATASET_READ_SECRET_ACCESS_KEY"
R2_ENDPOINT = "R2_DATASET_ENDPOINT_URL"
R2_PATH = "DATASET_BINS_PATH"
_SECRETS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", R2_ACCOUNT, R2_KEY, R2_SECRET,
    "WANDB_API_KEY",
)  # fmt: skip
_SHORTEST = 4
"""Characters of a key that is struck out of texts: a shorter value would be found in words."""

S3_VARIABLES = (
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SKIP_SIGNATURE=true for a public bucket), AWS_REGION, "
    "and AWS_ENDPOINT_URL for a store that is not Amazon's"
)
R2_VARIABLES = f"{R2_ACCOUNT}, {R2_KEY} and {R2_SECRET} ({R2_ENDPOINT} for an endpoint of a jurisdiction)"


def s3_options(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Options of obstore's S3Store that it does not read from the usual AWS variables itself."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL")
    endpoint = next(filter(None, map(environ.get, names)), None)
    options: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if not any(name in environ for name in ("AWS_REGION", "AWS_DEFAULT_REGION")):
        options["region"] = "us-east-1"  # the default of Amazon's own tools
    return options


def no_keys(environ: Mapping[str, str] = os.environ) -> str:
    """Message that names the variables with keys for S3 that are not set."""
    unset = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if not environ.get(name)]
    return (
        f"{' and '.join(unset) or 'the keys for S3'} {'is' if len(unset) == 1 else 'are'} not set, and this "
        "machine has no role that gives keys. ~/.aws and AWS_PROFILE are not read. Set the variables "
        "(aws configure export-credentials --format env prints them), or AWS_SKIP_SIGNATURE=true for a "
        "public bucket"
    )


def r2_options(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Options of obstore's S3Store for Cloudflare R2.

    Raises:
        UserError: variables are missing; names them.
    """
    needed = (R2_KEY, R2_SECRET) if environ.get(R2_ENDPOINT) else (R2_ACCOUNT, R2_KEY, R2_SECRET)
    missing = [name for name in needed if not environ.get(name)]
    if missing:
        raise UserError(
            f"r2:// needs {', '.join(missing)} in the environment. Set them, and try again",
            code="r2-variables-missing",
        )
    endpoint = environ.get(R2_ENDPOINT) or f"https://{environ[R2_ACCOUNT]}.r2.cloudflarestorage.com"
    return {
        "endpoint": endpoint,
        "region": "auto",
        "access_key_id": environ[R2_KEY],
        "secret_access_key": environ[R2_SECRET],
        "virtual_hosted_style_request": False,
    }


def redacted(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Replace the value of each variable that holds a key by the variable's name."""
    for name in _SECRETS:
        value = environ.get(name, "")
        if len(value) >= _SHORTEST:
            text = text.replace(value, f"${name}")
    return text
