"""Where a tokenizer is looked for, in which order, and what is said when it is nowhere."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conf.schema import Tokenizer
from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec
from tests.data_loading.conftest import tokenizer_folder_text
from tests.golden_text import Golden

REPO = "someone/some-tokenizer"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def in_cache(cache: Path, repo: str, source: Path) -> None:
    """A repository as huggingface_hub lays it out on disk."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    shutil.copytree(source, folder / "snapshots" / COMMIT)


def loaded_by_a_process(spec: Tokenizer, cwd: Path, **environment: str) -> str:
    """Name and hash of what a fresh process finds, or its error: the hub's client reads its
    environment when it is imported."""
    code = (
        "import sys; from experiment_utils.errors import UserError; from conf.schema import Tokenizer; "
        "from data_loading import load_tokenizer\n"
        f"try: print(load_tokenizer({spec!r}).content_hash)\n"
        "except UserError as error: print(error)"
    )
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HTTP", "http"))
    }
    environment = {
        **clean,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HF_HOME": str(cwd / "home"),
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does, as far as fetching a small repository needs it."""

    files: dict[str, bytes] = {}  # noqa: RUF012 (set by the test)

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def answer(self, *, body: bool) -> None:
        if self.path.startswith(f"/api/models/{REPO}/"):
            listing = [
                {"type": "file", "path": n, "size": len(c), "oid": "0" * 40} for n, c in self.files.items()
            ]
            info = {"id": REPO, "sha": COMMIT, "siblings": [{"rfilename": name} for name in self.files]}
            return self.send(json.dumps(listing if "/tree/" in self.path else info).encode(), body)
        name = self.path.rpartition("/")[2]
        if self.path.startswith(f"/{REPO}/resolve/") and name in self.files:
            return self.send(self.files[name], body)
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def send(self, content: bytes, body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.files = {"tokenizer.json": tokenizer_folder_text("gpt2").encode(), "model.bin": b"not wanted"}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def places(tmp_path: Path, tokenizer_folder: Callable[[str], Path]) -> dict[str, str]:
    """A different tokenizer in each of the first three places; their hashes by place."""
    hashes = {}
    for place, family in (("path", "gpt2"), ("local", "digits"), ("cache", "prefix_space")):
        source = tokenizer_folder(family)
        hashes[place] = load_tokenizer(Tokenizer(name="x", path=str(source))).content_hash
        if place == "cache":
            in_cache(tmp_path / "home" / "hub", REPO, source)
        else:
            shutil.copytree(source, tmp_path / place)
    return hashes


def test_the_order_is_path_then_folder_then_cache(places: dict[str, str], tmp_path: Path) -> None:
    spec = Tokenizer(name="x", path="path", local_folder="local", repo=REPO)
    assert loaded_by_a_process(spec, tmp_path) == places["path"]
    spec.path = None
    assert loaded_by_a_process(spec, tmp_path) == places["local"]
    shutil.rmtree(tmp_path / "local")
    assert loaded_by_a_process(spec, tmp_path, HF_HUB_OFFLINE="1") == places["cache"]


def test_the_hub_is_the_last_place_and_only_tokenizer_files_are_fetched(
    hub: str, places: dict[str, str], tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "home")
    spec = Tokenizer(name="x", local_folder="nowhere", repo=REPO)
    assert loaded_by_a_process(spec, tmp_path, HF_ENDPOINT=hub) == places["path"]
    fetched = {path.name for path in (tmp_path / "home").rglob("snapshots/*/*")}
    assert fetched == {"tokenizer.json"}
    assert loaded_by_a_process(spec, tmp_path, HF_HUB_OFFLINE="1") == places["path"], "from the cache now"


def test_gpt2_is_found_in_the_cache_under_its_older_name(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path]
) -> None:
    in_cache(tmp_path / "home" / "hub", "gpt2", tokenizer_folder("gpt2"))
    expected = load_tokenizer(Tokenizer(name="x", path=str(tokenizer_folder("gpt2")))).content_hash
    assert loaded_by_a_process(tokenizer_spec("gpt2"), tmp_path, HF_HUB_OFFLINE="1") == expected


def test_when_none_serves_the_four_places_and_the_command_are_told(tmp_path: Path, golden: Golden) -> None:
    golden.text(loaded_by_a_process(tokenizer_spec("gpt2"), tmp_path, HF_HUB_OFFLINE="1"))


def test_an_unreachable_hub_is_told_within_seconds(tmp_path: Path, golden: Golden) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        message = loaded_by_a_process(Tokenizer(name="x", repo=REPO), tmp_path, HF_ENDPOINT=endpoint)
    golden.text(message, numbers=False)


def test_a_repository_that_does_not_exist_is_told(hub: str, tmp_path: Path, golden: Golden) -> None:
    message = loaded_by_a_process(Tokenizer(name="x", repo="no/such"), tmp_path, HF_ENDPOINT=hub)
    golden.text(message, numbers=False)


def test_an_explicit_folder_is_never_passed_over(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path], golden: Golden
) -> None:
    good = str(tokenizer_folder("gpt2"))
    with golden.refused("tokenizer-path-not-folder"):
        load_tokenizer(Tokenizer(name="x", path=str(tmp_path / "missing"), local_folder=good))
    with golden.refused("tokenizer-files-missing"):
        load_tokenizer(Tokenizer(name="x", path=str(tmp_path), local_folder=good))


def test_without_repository_or_folder_the_error_says_what_to_give(golden: Golden) -> None:
    with golden.refused("tokenizer-not-found"):
        load_tokenizer(Tokenizer(name="x"))


def test_a_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "tokenizer.json").write_text(tokenizer_folder_text("gpt2"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_tokenizer(Tokenizer(name="x", path="~/t")).vocab_size == tokenizer_spec_size()
    assert tokenizer_spec("~/t").path == str(tmp_path / "t")


def tokenizer_spec_size() -> int:
    return len(json.loads(tokenizer_folder_text("gpt2"))["model"]["vocab"])


class TestNameOrFolder:
    def test_known_names(self) -> None:
        assert tokenizer_spec("bytes").repo is None
        assert tokenizer_spec("gpt2").local_folder == "gpt2_tokenizer"

    def test_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "my_bpe").mkdir()
        spec = tokenizer_spec(str(tmp_path / "my_bpe"))
        assert (spec.name, spec.path) == ("my_bpe", str(tmp_path / "my_bpe"))

    def test_a_repository(self) -> None:
        assert tokenizer_spec("org/name").repo == "org/name"

    @pytest.mark.parametrize("wrong", ["gpt3", "", "./nowhere", "~/nowhere", "a/b/c", "/no/where"])
    def test_anything_else_is_refused_with_the_choices(self, wrong: str, golden: Golden) -> None:
        with golden.refused("tokenizer-folder-missing"):
            tokenizer_spec(wrong)


def test_tokenizer_json_is_taken_for_its_folder(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path], golden: Golden
) -> None:
    folder = tokenizer_folder("gpt2")
    spec = tokenizer_spec(str(folder / "tokenizer.json"))
    assert spec == tokenizer_spec(str(folder))
    by_path = load_tokenizer(Tokenizer(name="x", path=str(folder / "tokenizer.json")))
    assert by_path.content_hash == load_tokenizer(spec).content_hash
    (tmp_path / "mine.json").write_text("{}")
    with golden.refused("tokenizer-is-file"):
        tokenizer_spec(str(tmp_path / "mine.json"))


@pytest.mark.parametrize("name", ["tokenizer.model", "vocab.txt"])
def test_folder_that_can_be_converted_is_refused_with_the_command(
    name: str, tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / name).write_text("x")
    with golden.refused("tokenizer-files-missing"):
        load_tokenizer(Tokenizer(name="x", path=str(tmp_path)))
