"""The embedded corpus: one fixed rule for its files, one hash for its content."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from data_loading.pretokenizer.sources.stdlib import StdlibSource, default_name
from data_loading.tokens.set_files import SetFiles
from tests.golden_text import Golden

KEPT = {
    "a.py": "a",
    "b/__init__.py": "b",
    "b/c.py": "é",
    "b/testing/d.py": "d",
    "unittest/e.py": "e",
    "lib2to3/f.py": "f",
}
LEFT_OUT = [
    "test/x.py", "b/test/x.py", "b/tests/x.py", "idlelib/idle_test/x.py", "lib2to3/tests/x.py",
    "site-packages/x.py", "dist-packages/x.py", "b/__pycache__/x.py", "config-3.11-x86_64-linux-gnu/x.py",
    "_sysconfigdata__linux.py", "sitecustomize.py", "b/data.txt", "b/x.pyc", "c.so",
]  # fmt: skip


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "lib"
    for name, text in {**KEPT, **dict.fromkeys(LEFT_OUT, "left out")}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (root / "empty.py").touch()
    (root / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
    (root / "link.py").symlink_to(root / "a.py")
    (root / "outside.py").symlink_to("/etc/hostname")
    return root


def test_the_rule_for_files_and_their_order(library: Path) -> None:
    chunks = list(StdlibSource(library).chunks())
    assert [chunk.source for chunk in chunks] == [f"{library}/{name}" for name in sorted(KEPT)]
    assert [chunk.data.decode() for chunk in chunks] == [KEPT[name] for name in sorted(KEPT)]
    assert all(chunk.ends_document for chunk in chunks)


def test_the_hash_is_of_names_and_content_not_of_the_place(library: Path, tmp_path: Path) -> None:
    first = StdlibSource(library).facts()[0]
    assert first["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (first["files"], first["bytes"]) == (6, 7)
    copy = shutil.copytree(library, tmp_path / "copy", symlinks=True)
    assert StdlibSource(copy).facts()[0]["content_hash"] == first["content_hash"]
    for name, content in (("a.py", "A"), ("b/new.py", "n")):
        (copy / name).write_text(content)
        changed = StdlibSource(copy).facts()[0]["content_hash"]
        assert changed != first["content_hash"]
    os.rename(copy / "b/new.py", copy / "b/newer.py")
    assert StdlibSource(copy).facts()[0]["content_hash"] not in (changed, first["content_hash"])


def test_differs_trusts_the_listing_else_compares_content(library: Path, golden: Golden) -> None:
    files = SetFiles(library / "x.npy")
    facts = StdlibSource(library).facts()
    assert StdlibSource(library).differs(facts, files) is None
    os.utime(library / "a.py", (1, 1))
    assert StdlibSource(library).differs(facts, files) is None
    (library / "a.py").write_text("A")
    golden.text(StdlibSource(library).differs(facts, files) or "", numbers=False)
    assert StdlibSource(library).differs([], files) is not None


def test_a_python_without_sources_is_told(tmp_path: Path, golden: Golden) -> None:
    with golden.refused("stdlib-missing"):
        StdlibSource(tmp_path)


def test_the_library_of_this_python() -> None:
    source = StdlibSource()
    names = [Path(chunk.source).relative_to(source.root).as_posix() for chunk in source.chunks()]
    assert {"argparse.py", "json/decoder.py", "unittest/case.py"} <= set(names)
    assert names == sorted(names)
    assert not any("/test/" in f"/{name}" or "site-packages" in name for name in names)
    assert source.total_bytes > 5_000_000
    assert sum(map(len, source.samples())) > 700_000


def test_a_split_library_as_debian_has_it() -> None:
    root = Path("/usr/lib/python3.11")
    if not (root / "argparse.py").exists() or root == StdlibSource().root:
        pytest.skip("no second Python of the distribution here")
    names = [Path(chunk.source).name for chunk in StdlibSource(root).chunks()]
    assert "argparse.py" in names
    assert "sitecustomize.py" not in names


def test_the_default_name_holds_version_and_tokenizer() -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    assert default_name("bytes") == f"stdlib-py{version}-bytes.npy"
    assert default_name("org/name") == f"stdlib-py{version}-org_name.npy"
