"""Requests to the packages `datasets` and `huggingface_hub`, and their errors as a user reads them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_loading.hub.hub_uri import PREFIX, HubName
from data_loading.tokenizers.load import HUB_TIMEOUT_S, unreachable
from experiment_utils.errors import UserError
from experiment_utils.extras import check_installed

_LISTED_BYTES = 1 << 16
_SHOWN = 400
VARIABLES = (
    "HF_ENDPOINT names another hub or mirror, HF_TOKEN is for what needs a login, and HF_HUB_OFFLINE must "
    "not be 1"
)


@dataclass(frozen=True)
class Hub:
    """The two requests, which a test replaces."""

    revision: Callable[[HubName], str]
    """Name -> the commit that it means now."""
    rows: Callable[[str, str | None, str, str | None], Iterable[dict[str, Any]]]
    """Repository, configuration, split, revision -> rows."""


def check_package(what: str) -> None:
    """Raise UserError if the package datasets is not installed. what: needs it."""
    check_installed("datasets", "hub", what)


def revision_of(name: HubName) -> str:
    """Return the commit that a name means now; for a folder, a hash of its files.

    Raises:
        UserError: the hub cannot be reached.
    """
    if name.is_folder:
        return listing_of(Path(name.repository))
    check_reachable(str(name))
    from huggingface_hub import HfApi

    found = HfApi().dataset_info(name.repository, revision=name.revision, timeout=2 * HUB_TIMEOUT_S)
    return found.sha or name.revision or "unknown"


def rows_of(
    repository: str, config: str | None, split: str, revision: str | None
) -> Iterable[dict[str, Any]]:
    """Return the rows of a split, streamed."""
    import datasets

    datasets.disable_progress_bars()  # bars of listing files, in the middle of a log
    return datasets.load_dataset(repository, config, split=split, revision=revision, streaming=True)


HUB = Hub(revision_of, rows_of)


def splits_of(name: HubName, revision: str | None) -> list[str]:
    """Return the names of its splits, as it declares them."""
    import datasets

    datasets.disable_progress_bars()
    found = datasets.load_dataset(name.repository, name.config, revision=revision, streaming=True)
    return list(found)


def listing_of(folder: Path) -> str:
    """Return a hash of a folder: names, sizes, and the beginning and the end of each file."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") for part in inside.parts):
            continue
        size = path.stat().st_size
        found.update(f"{inside.as_posix()}\n{size}\n".encode())
        with path.open("rb") as file:
            found.update(file.read(_LISTED_BYTES))
            file.seek(max(size - _LISTED_BYTES, 0))
            found.update(file.read(_LISTED_BYTES))
    return found.hexdigest()


def check_reachable(what: str) -> None:
    """Check within seconds that the hub answers: its own client tries for much longer.

    Raises:
        UserError: nothing answers.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise UserError(
            f"{what} was not requested: HF_HUB_OFFLINE is set. Unset it on a machine with a network. "
            f"{ELSEWHERE}",
            code="hub-offline",
        )
    begun = time.monotonic()
    problem = unreachable(constants.ENDPOINT)
    if problem:
        source = "HF_ENDPOINT" if os.environ.get("HF_ENDPOINT") else "the default; HF_ENDPOINT is not set"
        raise UserError(
            f"{what} cannot be read: {problem}, tried for {time.monotonic() - begun:.1f} s ({source}). "
            f"{VARIABLES}. {ELSEWHERE}",
            code="hub-unreachable",
        )


ELSEWHERE = (
    "Without network: fetch the dataset elsewhere (hf download ORG/NAME --repo-type dataset --local-dir "
    "FOLDER), copy the folder here, and give hf://./FOLDER; of one that save_to_disk wrote make a token set: "
    "python pretokenize_dataset.py FOLDER"
)


def _advice(what: str) -> str:
    """Return what to check; for a folder, nothing of the network."""
    if what.removeprefix(PREFIX).startswith(("/", ".")):
        return "Check the folder: its files are read as datasets.load_dataset(FOLDER) reads them"
    return f"Check the name, the configuration (--subset) and --split; {VARIABLES}. {ELSEWHERE}"


def asked(what: str, question: Callable[[], Any]) -> Any:
    """Return the answer of the hub. Each error of the packages becomes a user's error.

    Raises:
        UserError: instead of all that the packages raise; StopIteration passes.
    """
    begun = time.monotonic()
    try:
        return question()
    except (StopIteration, UserError):
        raise
    except Exception as error:  # the packages raise all kinds, their own and those of their own parts
        shown = " ".join(str(error).split())[:_SHOWN] or type(error).__name__
        raise UserError(
            f"{what} cannot be read: {shown} (after {time.monotonic() - begun:.1f} s). {_advice(what)}",
            code="hub-refused",
        ) from error
