"""docs/config.md is what docs/write_config.py writes now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from conf.keys import keys

WRITER = Path(__file__).resolve().parents[1] / "docs" / "write_config.py"


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_config", WRITER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current() -> None:
    written = writer()
    assert written.PAGE.read_text(encoding="utf-8") == written.page(), f"run: python {WRITER}"


def test_the_page_has_every_key_once() -> None:
    page = writer().page()
    assert [path for path in keys() if page.count(f"| `{path}` |") != 1] == []
