"""`python -m data_loading mirror SOURCE TARGET`: a token set copied between disks and stores."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from typing import Any

from data_loading.remote.address import parse
from data_loading.remote.download import PART_BYTES, WORKERS, RemoteOptions
from experiment_utils.quantities import parse_size

_HELP = "copy a token set between disks, s3://, r2:// and https://, verified, resumable"
_EPILOG = """\
examples:
  python -m data_loading mirror Datasets/c4 s3://bucket/c4
  python -m data_loading mirror r2://bucket/c4 Datasets/c4
  python -m data_loading mirror https://host/sets/c4 Datasets/c4 --dry-run

SOURCE and TARGET are a folder of shards, or a FILE.npy: a path, s3://BUCKET/PATH, r2://BUCKET/PATH, or
https://HOST/PATH, which is read only. Every block is compared with its checksum in the manifest, which
is copied last. The same command again copies what is missing or damaged at the target.

Keys come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
AWS_ENDPOINT_URL; for r2:// R2_DATASET_ACCOUNT_ID, R2_DATASET_READ_ACCESS_KEY_ID,
R2_DATASET_READ_SECRET_ACCESS_KEY, R2_DATASET_BUCKET_NAME, DATASET_BINS_PATH.

Exit status: 0 the target has the set, or --dry-run has listed what is missing; 2 it could not be copied.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to those of `python -m data_loading`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "mirror",
        help=_HELP,
        description=_HELP[0].upper() + _HELP[1:] + ".",
        epilog=_EPILOG,
    )
    parser.add_argument("source", metavar="SOURCE", help="the set to copy")
    parser.add_argument("target", metavar="TARGET", help="where to copy it")
    parser.add_argument("--dry-run", action="store_true", help="print what would be copied, and copy nothing")
    parser.add_argument(
        "--workers", type=int, default=WORKERS, metavar="N", help="requests at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--part-size", type=_size, default=PART_BYTES, metavar="SIZE",
        help=f"bytes of a request (default: {PART_BYTES >> 20}MiB)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    """Copy the set and print a summary; returns the exit status. Raises UserError."""
    from data_loading.remote.copy_set import mirror

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    started = time.monotonic()
    source, target = parse(arguments.source), parse(arguments.target)
    options = RemoteOptions(workers=arguments.workers, part_bytes=arguments.part_size)
    report = mirror(source, target, options, dry_run=arguments.dry_run)
    there = f"{report.there_files:,} files ({report.there_bytes / 1e6:,.1f} MB) exist already"
    copied = f"{report.files:,} files ({report.bytes / 1e6:,.1f} MB)"
    if report.is_whole:
        print(f"{target.uri} has the whole set: {there}")
    elif arguments.dry_run:
        print(f"{target.uri}: {copied} and the manifest would be copied; {there}")
    else:
        print(
            f"{target.uri}: {copied} and the manifest copied in {time.monotonic() - started:.1f} s; {there}"
        )
    return 0
