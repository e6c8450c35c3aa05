"""A page is self-contained, harmless whatever it shows, the same each time, and true to the records."""

from __future__ import annotations

import hashlib
import html
import html.parser
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_pages import HOSTILE, page_with
from made_runs import MB, MadeStages, make_killed, sample_of, write_ring

from memory.__main__ import main
from memory.explain import explain
from memory.report import page as page_module
from memory.report.colors import ON_PAGE
from memory.report.data.history import read_history
from memory.report.page import data_block
from memory.report.run_report import page_of
from tests.golden_text import Golden


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, the JSON blocks, and the words of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[Any] = []
        self.words = ""
        self._kind: str | None = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._kind = dict(attrs).get("type") or tag

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._kind = None

    def handle_data(self, data: str) -> None:
        if self._kind == "application/json":
            self.blocks.append(json.loads(data))
        elif self._kind is None:
            self.words += data + " "


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    return make_killed(tmp_path / "killed")


def loads(element: str, attributes: dict[str, str | None]) -> bool:
    """Whether a browser would ask for something."""
    asked = [attributes.get(key) for key in ("src", "href", "data", "action", "poster", "srcset")]
    return element in ("link", "iframe", "object", "embed", "base") or any(
        value is not None and not value.startswith(("data:", "#")) for value in asked
    )


def assert_self_contained(page: str) -> None:
    found = Reader(page)
    assert [one for one in found.elements if loads(*one)] == []
    assert not [key for _, attributes in found.elements for key in attributes if key.startswith("on")]
    addresses = set(re.findall(r"https?://[^\s\"'<>)]*", page))
    assert addresses <= {"https://github.com/leeoniya/uPlot"}, "the licence of the charting library"
    assert "@import" not in page
    assert "url(" not in page.partition("</style>")[0]
    policy = next(a["content"] for tag, a in found.elements if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


@pytest.mark.parametrize("words", [HOSTILE, "\ud800 surrogate", "größe $x_$ 模型", "\0", "a\u2028b"])
def test_text_stays_text(words: str) -> None:
    page = page_with(words)
    named = ("small", "p", "footer", "caption", "figcaption")
    tags, plain = (
        [tag for tag, _ in Reader(one).elements if tag not in named] for one in (page, page_with("x"))
    )
    assert tags == plain
    assert_self_contained(page)
    page.encode()


@given(st.text())
def test_any_text_in_a_data_block_is_read_back(text: str) -> None:
    block = data_block({"label": text})
    assert block.count("<") == 2
    assert Reader(block).blocks == [{"label": text}]


def test_vendored_files_are_those_of_the_readme() -> None:
    folder = Path(page_module.__file__).parent / "vendor"
    known = dict(
        line.split()[::-1] for line in (folder / "README.md").read_text().splitlines() if "  uPlot" in line
    )
    assert len(known) == 2
    for name, digest in known.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_run_with_a_hostile_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "<script>alert(1)<!--&\"'"
    folder.mkdir()
    made = MadeStages(folder / "memory.jsonl")
    made.stage(HOSTILE, 0.0, 1.0, 10, 20, facts={"step": 3}, error=HOSTILE, thread=HOSTILE)
    made.record("begin", HOSTILE, 1.0, 20)
    assert main(["report", str(folder), "--html"]) == 0
    page = (folder / "memory.html").read_text()
    assert_self_contained(page)
    scripts = [attributes for tag, attributes in Reader(page).elements if tag == "script"]
    assert all(one.get("type") == "application/json" for one in scripts[:-1])
    assert "alert(1)" in Reader(page).words
    assert "\x1b" not in capsys.readouterr().out


def test_same_run_makes_the_same_bytes(killed: Path, tmp_path: Path) -> None:
    first = page_of(read_history(killed), command="x")
    copy = Path(shutil.copytree(killed, tmp_path / "copy" / "killed"))
    assert page_of(read_history(copy), command="x").replace(str(copy), str(killed)) == first


def test_chart_holds_the_measurements(killed: Path, golden: Golden) -> None:
    page = page_of(read_history(killed), command="x")
    assert_self_contained(page)
    chart = Reader(page).blocks[0]
    track = read_history(killed).last.main
    assert chart["x"] == [round(moment.at_s, 4) for moment in track.moments]
    stacked = [one["y"] for one in chart["series"] if one["kind"] == "stack" and one["color"] != "cache"]
    assert [sum(at) for at in zip(*stacked, strict=True)] == [moment.u for moment in track.moments]
    assert [moment.u for moment in track.moments] in [one["y"] for one in chart["series"]]
    assert [moment.workers for moment in track.moments] in stacked
    assert {one["color"] for one in chart["series"]} <= set(ON_PAGE)
    assert [(limit["value"], limit["in_view"]) for limit in chart["limits"]] == [(900 * MB, True)]
    bands = [(band["label"], band["begin"], band["end"], band["row"]) for band in chart["bands"]]
    assert ("weights", 1.1, 2.0, 1) in bands
    assert bands[-1] == ("train", 11.0, None, 0)
    assert [mark["is_bad"] for mark in chart["marks"]] == [True, True]
    labels = [one["label"] for one in (*chart["limits"], *chart["marks"], chart["x_axis"], chart["y_axis"])]
    golden.text("\n".join([*(one["name"] for one in chart["series"]), *labels]))


def test_table_holds_the_records(killed: Path) -> None:
    page = page_of(read_history(killed), command="x")
    rows = re.findall(r"<tr>(.*?)</tr>", page.split("<tbody>")[1].split("</tbody>")[0])
    cells = [re.findall(r'<td[^>]*?(?: data-value="([^"]*)")?>([^<]*)', row) for row in rows]
    found = {row[0][1]: [value for value, _ in row][1:7] for row in cells}
    names = ("times", "seconds", "before_bytes", "highest_bytes", "unreclaimable_bytes", "change_bytes")
    assert found == {
        row.name: ["" if (value := getattr(row, name)) is None else str(value) for name in names]
        for row in read_history(killed).last.main.rows
    }


@pytest.mark.parametrize(("main_mb", "is_shown"), [(20, False), (500, True)])
def test_page_cache_is_hidden_if_it_would_dwarf_the_rest(
    tmp_path: Path, main_mb: int, is_shown: bool
) -> None:
    write_ring(tmp_path, [sample_of(i, main_mb) for i in range(5)])
    chart = Reader(page_of(read_history(tmp_path), command="x")).blocks[0]
    (cache,) = [one for one in chart["series"] if one["color"] == "cache"]
    assert cache["shown"] is is_shown
    assert set(cache["y"]) == {288 * MB}


def test_page_says_why_if_explain_knows(killed: Path, tmp_path: Path) -> None:
    history = read_history(killed)
    found = explain(history.evidence)
    words = Reader(page_of(history, command="x")).words
    assert found.advice
    assert [one for one in (found.sentence, *(a.text for a in found.advice)) if one not in words] == []
    calm = tmp_path / "calm"
    calm.mkdir()
    MadeStages(calm / "memory.jsonl").stage("start", 0.0, 1.0, 10, 20)
    history = read_history(calm)
    assert explain(history.evidence).sentence not in Reader(page_of(history, command="x")).words


def test_page_has_boxes_for_commands_only(killed: Path) -> None:
    history = read_history(killed)
    found, page = explain(history.evidence), page_of(history, command="x")
    boxes = [html.unescape(box) for box in re.findall("<pre><code>(.*?)</code>", page, re.DOTALL)]
    assert boxes[:-1] == [one.override for one in found.advice if one.override is not None]
    assert (found.confidence, found.cause_confidence) == ("certain", "likely")
    assert "<h2>Why<small>likely</small></h2>" in page


def test_page_comes_though_explaining_fails(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("memory.explain.explain", broken)
    assert {"train", "evaluate"} <= set(Reader(page_of(read_history(killed), command="x")).words.split())


def test_stacks_near_the_limit_are_on_the_page(killed: Path) -> None:
    (killed / "memory.blackbox.1.txt").write_text('Thread 1:\n  File "train.py", line 7 in <module>\n')
    assert 'File "train.py", line 7' in Reader(page_of(read_history(killed), command="x")).words
