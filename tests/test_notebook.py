"""docs/notebook.ipynb works as it is: its cells run in order, and each has outputs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from executed_notebook import executed, kinds, write

from tests.golden_text import UPDATE


@pytest.fixture
def page(root: Path) -> Path:
    return root / "docs" / "notebook.ipynb"


@pytest.mark.slow
def test_cells_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    shutil.copy(page.with_name("scaling_sizes.csv"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HIGHWATER_RUNS_DIR", raising=False)
    notebook = json.loads(page.read_text())
    found = executed(notebook)
    if request.config.getoption(UPDATE):
        write(page, found)
    else:
        assert kinds(found) == kinds(notebook)
    assert all(kinds(found))


def test_outputs_are_whole_and_of_no_machine(page: Path) -> None:
    notebook = json.loads(page.read_text())
    assert all(kinds(notebook))
    text = page.read_text()
    assert not re.search(r"/tmp/|/home/|/root/", text)
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))


def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []
