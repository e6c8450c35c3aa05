"""Finding a tokenizer: tokenizer.path, a folder here, the local Hugging Face cache, the hub; tiktoken."""

from __future__ import annotations

import logging
import os
import shlex
import socket
from pathlib import Path
from urllib.parse import urlsplit

from conf import schema
from data_loading.tokenizers.ids import IDS, IdsTokenizer
from data_loading.tokenizers.read_files import TOKENIZER_FILES, holds_tokenizer, read_tokenizer
from data_loading.tokenizers.tiktoken_names import PREFIX, full_name, load_encoding
from data_loading.tokenizers.tokenizer import BytesTokenizer, Tokenizer, TokenizerNotFound
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

HUB_TIMEOUT_S = 5.0
GPT2_IDS = 50_257

_FETCHED = [file for file in TOKENIZER_FILES if file != "bytes.json"]
_OLD_NAMES = {"openai-community/gpt2": "gpt2"}
"""Earlier names of repositories, under which the cache may have their files."""

KNOWN = {
    "bytes": schema.Tokenizer(name="bytes"),
    "gpt2": schema.Tokenizer(name="gpt2", local_folder="gpt2_tokenizer", repo="openai-community/gpt2"),
}


def tokenizer_spec(name_or_folder: str) -> schema.Tokenizer:
    """Parse `--tokenizer`: a known name, a folder, an encoding of tiktoken, or a repository `org/name`.

    Raises:
        UserError: It is none of them. The message has the choices.
    """
    if name_or_folder in KNOWN:
        return KNOWN[name_or_folder]
    folder = folder_of(Path(name_or_folder).expanduser())
    if name_or_folder and folder.is_dir():
        return schema.Tokenizer(name=folder.resolve().name, path=str(folder))
    of_tiktoken = full_name(name_or_folder)
    if of_tiktoken is not None:
        return schema.Tokenizer(name=of_tiktoken, repo=of_tiktoken)
    if name_or_folder.count("/") == 1 and not name_or_folder.startswith((".", "~", "/")):
        return schema.Tokenizer(name=name_or_folder, repo=name_or_folder)
    raise UserError(
        f"tokenizer {shlex.quote(name_or_folder)}: no such folder. Choices: {', '.join(KNOWN)}, a folder "
        "with tokenizer.json or with vocab.json and merges.txt, an encoding of tiktoken (tiktoken:NAME, such "
        "as cl100k_base), or a repository org/name of the Hugging Face hub",
        code="tokenizer-folder-missing",
    )


def folder_of(path: Path) -> Path:
    """The folder of a tokenizer that is given as its folder, or as a file in it.

    Raises:
        UserError: It is another file. Only a folder has all files of a tokenizer.
    """
    if not path.is_file():
        return path
    if path.name in TOKENIZER_FILES:
        return path.parent
    raise UserError(
        f"tokenizer {shlex.quote(str(path))} is a file; expected a folder, or its tokenizer.json. A "
        "tokenizer.json under another name: copy it as tokenizer.json into a folder of its own, and give "
        "that",
        code="tokenizer-is-file",
    )


def name_of(spec: schema.Tokenizer) -> str:
    """Name of a tokenizer in names of files: its repository, if it is only called `custom`."""
    is_bare = spec.path is None and spec.local_folder is None
    return spec.repo if is_bare and spec.repo is not None else spec.name


def load_tokenizer(spec: schema.Tokenizer, vocab_size: int | None = None) -> Tokenizer:
    """The tokenizer that the configuration names.

    Looked for in this order: `spec.path`, `spec.local_folder`, the local Hugging Face cache, the hub
    (the last two only where `spec.repo` says which repository); instead of these two, the package
    tiktoken where `spec.repo` is `tiktoken:NAME`. vocab_size: of the tokens, which `ids` has from them.

    Raises:
        TokenizerNotFound: in none of these places; says which were tried and the command that fetches
            the files.
        UserError: found but broken.
    """
    if spec.name == IDS:
        if vocab_size is None:
            raise UserError(
                "tokenizer=ids has the vocabulary of the tokens that it goes with, and none are given",
                code="ids-without-tokens",
            )
        return IdsTokenizer(vocab_size)
    found = _find(spec)
    if spec.name == "gpt2" and found.vocab_size != GPT2_IDS:
        log.warning("tokenizer gpt2 as found has %s ids, GPT-2's own has 50,257", f"{found.vocab_size:,}")
    return found


def _find(spec: schema.Tokenizer) -> Tokenizer:
    if spec.path is not None:
        folder = folder_of(Path(spec.path).expanduser())
        if not folder.is_dir():
            raise UserError(
                f"tokenizer.path: {folder} is no folder; expected one with tokenizer.json, or with "
                "vocab.json and merges.txt",
                code="tokenizer-path-not-folder",
            )
        return read_tokenizer(folder, spec.name)
    if spec.name == "bytes" and spec.repo is None and spec.local_folder is None:
        return BytesTokenizer()
    tried = ["tokenizer.path: not given"]
    if spec.local_folder is None:
        tried.append("tokenizer.local_folder: not given")
    else:
        folder = Path(spec.local_folder).expanduser()
        if holds_tokenizer(folder):
            return read_tokenizer(folder, spec.name)
        tried.append(f"{folder}: " + ("holds no tokenizer" if folder.is_dir() else "no such folder here"))
    if spec.repo is not None and spec.repo.startswith(PREFIX):
        return load_encoding(spec.repo)
    if spec.repo is None:
        tried += [
            "local Hugging Face cache: tokenizer.repo is not given",
            "the hub: tokenizer.repo is not given",
        ]
        raise TokenizerNotFound(_not_found(spec, tried))
    cached = _in_cache(spec.repo)
    if cached is not None:
        return read_tokenizer(cached, spec.name)
    from huggingface_hub import constants

    tried.append(f"local Hugging Face cache {constants.HF_HUB_CACHE}: no {spec.repo} in it")
    fetched = _from_hub(spec.repo)
    if isinstance(fetched, Path):
        return read_tokenizer(fetched, spec.name)
    tried.append(f"the hub: {fetched}")
    raise TokenizerNotFound(_not_found(spec, tried))


def _not_found(spec: schema.Tokenizer, tried: list[str]) -> str:
    lines = [f"tokenizer {spec.name} was found in none of four places:"]
    lines += [f"  {number}. {place}" for number, place in enumerate(tried, 1)]
    if spec.repo is None:
        lines.append("Give tokenizer.path=FOLDER with tokenizer.json, or with vocab.json and merges.txt")
    else:
        target = spec.local_folder or spec.name.replace("/", "_")
        lines += [
            "On a machine with network, fetch the files and copy the folder here:",
            f"  hf download {spec.repo} {' '.join(_FETCHED[:2])} vocab.json merges.txt --local-dir {target}",
        ]
        if spec.local_folder is None:
            lines.append(f"then give tokenizer.path={target}")
    return "\n".join(lines)


def _in_cache(repo: str) -> Path | None:
    """Snapshot folder of the repository in the local cache, if its tokenizer is there."""
    from huggingface_hub import try_to_load_from_cache

    for name in (repo, _OLD_NAMES.get(repo)):
        if name is None:
            continue
        for file in ("tokenizer.json", "vocab.json"):
            found = try_to_load_from_cache(name, file)
            if isinstance(found, str) and holds_tokenizer(Path(found).parent):
                return Path(found).parent
    return None


def _from_hub(repo: str) -> Path | str:
    """Folder of the fetched files, or why they could not be fetched."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    problem = unreachable(constants.ENDPOINT)
    if problem:
        return problem
    log.info("fetching tokenizer %s from %s", repo, constants.ENDPOINT)
    try:
        folder = Path(snapshot_download(repo, allow_patterns=_FETCHED, etag_timeout=HUB_TIMEOUT_S))
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no"
        return f"{constants.ENDPOINT}/{repo} answered {status} (no such repository, or it needs a login)"
    except Exception as error:  # the hub's client raises many kinds when the network fails midway
        return f"{constants.ENDPOINT}: {type(error).__name__}: {str(error).splitlines()[0]}"
    return folder if holds_tokenizer(folder) else f"{constants.ENDPOINT}/{repo} has no tokenizer files"


def unreachable(endpoint: str) -> str | None:
    """Why the hub cannot be reached, in seconds: its own client retries for half a minute."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return None
    url = urlsplit(endpoint)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((url.hostname or "", port), timeout=HUB_TIMEOUT_S).close()
    except OSError as error:
        return f"{endpoint} cannot be reached ({error})"
    return None
