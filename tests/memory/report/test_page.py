"""A page is whole in itself, harmless whatever it tells of, the same each time, and true to the records."""

from __future__ import annotations

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
from memory.report.chart import Chart, Series
from memory.report.colors import ON_PAGE
from memory.report.history import read_history
from memory.report.html import page_of
from memory.report.page import data_block
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
    assert addresses <= {"http://www.w3.org/2000/svg"}, "the name of a namespace, which nothing fetches"
    assert "@import" not in page
    assert "url(" not in page.replace("url(#", "")
    policy = next(a["content"] for tag, a in found.elements if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


@pytest.mark.parametrize("words", [HOSTILE, "\ud800 surrogate", "größe $x_$ 模型", "\0", "a\u2028b"])
def test_whatever_is_written_on_a_page_stays_words(words: str) -> None:
    page = page_with(words)
    plain = Reader(page_with("x"))
    found = Reader(page)
    assert [
        tag for tag, _ in found.elements if tag not in ("small", "p", "footer", "caption", "figcaption")
    ] == [tag for tag, _ in plain.elements if tag not in ("small", "p", "footer", "caption", "figcaption")]
    assert_self_contained(page)
    page.encode()


@given(st.text())
def test_any_text_in_a_data_block_is_read_back(text: str) -> None:
    block = data_block({"label": text})
    assert block.count("<") == 2
    (found,) = Reader(block).blocks
    assert found == {"label": text}


def test_a_run_of_a_hostile_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_the_same_run_makes_the_same_bytes(killed: Path, tmp_path: Path) -> None:
    first = page_of(read_history(killed), command="x")
    copy = Path(shutil.copytree(killed, tmp_path / "copy" / "killed"))
    assert page_of(read_history(killed), command="x") == first
    assert page_of(read_history(copy), command="x").replace(str(copy), str(killed)) == first


def test_the_chart_holds_what_was_measured(killed: Path, golden: Golden) -> None:
    page = page_of(read_history(killed), command="x")
    assert_self_contained(page)
    chart = Reader(page).blocks[0]
    ys = [one["y"] for one in chart["series"]]
    track = read_history(killed).last.main
    assert chart["x"] == [round(moment.at_s, 4) for moment in track.moments]
    stacked = [one["y"] for one in chart["series"] if one["kind"] == "stack"]
    assert [sum(at) for at in zip(*stacked, strict=True)] == [moment.u for moment in track.moments]
    assert [moment.u for moment in track.moments] in ys
    assert {one["color"] for one in chart["series"]} <= set(ON_PAGE)
    assert [moment.workers for moment in track.moments] in stacked
    assert [level["value"] for level in chart["levels"]] == [900 * MB]
    bands = [(band["label"], band["begin"], band["end"], band["row"]) for band in chart["bands"]]
    assert ("weights", 1.1, 2.0, 1) in bands
    assert bands[-1] == ("train", 11.0, None, 0)
    assert [(mark["at"], mark["kind"]) for mark in chart["marks"]] == [(36.0, "bad"), (36.2, "bad")]
    labels = [one["label"] for one in (*chart["levels"], *chart["marks"])]
    golden.text("\n".join([*(one["name"] for one in chart["series"]), *labels]))


def test_the_table_holds_what_the_records_do(killed: Path) -> None:
    page = page_of(read_history(killed), command="x")
    rows = re.findall(r"<tr>(.*?)</tr>", page.split("<tbody>")[1].split("</tbody>")[0])
    cells = [re.findall(r'<td[^>]*?(?: data-value="([^"]*)")?>([^<]*)', row) for row in rows]
    told = {row[0][1]: [value for value, _ in row] for row in cells}
    track = read_history(killed).last.main
    assert list(told) == [row.name for row in track.rows]
    for row in track.rows:
        assert told[row.name][1:7] == [
            str(value) if value is not None else ""
            for value in (
                row.times, row.seconds, row.before_bytes, row.highest_bytes, row.unreclaimable_bytes,
                row.change_bytes,
            )
        ]  # fmt: skip


def test_ranks_share_one_scale_and_time_axis(tmp_path: Path) -> None:
    for rank in range(3):
        name = "memory.jsonl" if rank == 0 else f"memory.rank{rank}.jsonl"
        made = MadeStages(tmp_path / name, rank=rank)
        made.stage("train", 0.0, 5.0, 100, 100 + 50 * rank)
    page = page_of(read_history(tmp_path), command="x")
    charts = Reader(page).blocks
    small = [chart for chart in charts if chart["height"] < 200]
    assert len(small) == 3
    assert {chart["y_max"] for chart in small} == {212 * MB}
    assert len({chart["group"] for chart in charts[:4]}) == 1
    assert [chart["has_legend"] for chart in charts[:4]] == [True, False, False, False]
    assert "rank 2" in Reader(page).words


def test_page_cache_is_hatched_and_out_of_the_way_where_it_would_dwarf_the_rest(tmp_path: Path) -> None:
    write_ring(tmp_path, [sample_of(i, 20) for i in range(5)])
    chart = Reader(page_of(read_history(tmp_path), command="x")).blocks[0]
    (cache,) = [one for one in chart["series"] if one["kind"] == "hatch"]
    assert cache["shown"] is False
    write_ring(tmp_path, [sample_of(i, 500) for i in range(5)])
    chart = Reader(page_of(read_history(tmp_path), command="x")).blocks[0]
    (cache,) = [one for one in chart["series"] if one["kind"] == "hatch"]
    assert cache["shown"] is True
    assert set(cache["y"]) == {288 * MB}


def test_a_chart_whose_lengths_differ_is_refused() -> None:
    with pytest.raises(ValueError, match=r"anon.* 3 .* 2 "):
        Chart("x", [0.0, 1.0], [Series("anon", [1, 2, 3])]).to_json()


def test_numbers_that_are_none_are_gaps() -> None:
    told = Chart("x", [0.0, 1.0, 2.0], [Series("y", [float("nan"), float("inf"), 3])]).to_json()
    assert told["series"][0]["y"] == [None, None, 3]


def test_what_an_attempt_held_before_is_folded(tmp_path: Path) -> None:
    for number in (1, 2):
        MadeStages(tmp_path / "memory.jsonl", attempt=number).stage("start", 0.0, 1.0, 10, 20)
    page = page_of(read_history(tmp_path), command="x")
    assert page.count("<details>") == page.count("</details>") == 1


def test_the_page_says_why_where_explain_knows(killed: Path, tmp_path: Path) -> None:
    history = read_history(killed)
    found = explain(history.evidence)
    words = Reader(page_of(history, command="x")).words
    assert found.advice
    assert [told for told in (found.sentence, *(one.text for one in found.advice)) if told not in words] == []
    calm = tmp_path / "calm"
    calm.mkdir()
    MadeStages(calm / "memory.jsonl").stage("start", 0.0, 1.0, 10, 20)
    history = read_history(calm)
    assert explain(history.evidence).sentence not in Reader(page_of(history, command="x")).words


def test_a_page_comes_though_explaining_fails(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("memory.explain.explain", broken)
    assert {"train", "evaluate"} <= set(Reader(page_of(read_history(killed), command="x")).words.split())


def test_stacks_taken_near_the_limit_are_on_the_page(killed: Path) -> None:
    (killed / "memory.blackbox.1.txt").write_text('Thread 1:\n  File "train.py", line 7 in <module>\n')
    words = Reader(page_of(read_history(killed), command="x")).words
    assert "memory.blackbox.1.txt" in words
    assert 'File "train.py", line 7' in words


def test_very_many_records_are_explained_by_some_of_them(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.record.thinned_records.MOST", 3)
    history = read_history(killed)
    assert sum(map(len, history.evidence.records.values())) <= 6 < history.last.main.records
    assert explain(history.evidence).sentence in Reader(page_of(history, command="x")).words
