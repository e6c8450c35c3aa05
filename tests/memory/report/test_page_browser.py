"""The page in a real browser: drawn, pointed at, zoomed, sorted, printed; it loads nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from made_pages import HOSTILE, page_with
from made_runs import make_killed

from experiment_utils.quantities import format_bytes
from memory.__main__ import main
from memory.report.colors import ON_PAGE
from memory.report.data.history import read_history

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_killed(tmp_path_factory.mktemp("runs") / "killed")
    assert main(["report", str(made), "--html"]) == 0
    return made


@pytest.fixture
def page(browser: Browser, folder: Path) -> Browser:
    browser.open(folder / "memory.html")
    return browser


CHARTS = "[...document.querySelectorAll('figure.chart')].map((one) => one.chart)"
FIRST = "document.querySelector('figure.chart').chart"
LEGEND = "[...document.querySelectorAll('figure.chart .u-series')]"


def middle(page: Browser, selector: str) -> tuple[float, float]:
    box = page.eval(
        f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
        " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    return box[0], box[1]


def click(page: Browser, selector: str) -> None:
    x, y = middle(page, selector)
    for kind in ("Moved", "Pressed", "Released"):
        page.mouse(kind, x, y)


def ranges(page: Browser) -> list[list[float]]:
    """The part of its x axis that each chart shows."""
    return list(page.eval(f"{CHARTS}.map((one) => [one.plot.scales.x.min, one.plot.scales.x.max])"))


def pixel(page: Browser, x: float, y: float) -> list[int]:
    """Colour of a place in the first plot, in the units of its axes."""
    found = page.eval(
        f"(() => {{ const u = {FIRST}.plot, at = [u.valToPos({x}, 'x', true), u.valToPos({y}, 'y', true)];"
        " return [...u.ctx.getImageData(...at, 1, 1).data]; })()"
    )
    return list(found[:3])


def rgb(color: str) -> list[int]:
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def test_nothing_is_loaded_and_every_chart_is_drawn(page: Browser, folder: Path) -> None:
    asked = [request for request in page.requests if not request.startswith("data:")]
    assert asked == [(folder / "memory.html").resolve().as_uri()]
    assert page.messages == []
    assert page.eval("document.querySelectorAll('figure.chart canvas').length") == page.eval(
        "document.querySelectorAll('figure.chart').length"
    )


@pytest.mark.parametrize("dark", [False, True])
def test_areas_are_drawn_in_the_colours_of_the_theme(browser: Browser, folder: Path, dark: bool) -> None:
    browser.open(folder / "memory.html", dark=dark)
    paper = browser.eval("getComputedStyle(document.body).backgroundColor")
    assert [int(number) for number in paper[4:-1].split(",")] == rgb(ON_PAGE["paper"][dark])
    assert pixel(browser, 20, 50 << 20) == rgb(ON_PAGE["blue"][dark]), "main is the lowest area"


def test_hover_shows_the_amounts_of_that_moment(page: Browser, folder: Path) -> None:
    page.mouse("Moved", *middle(page, "figure.chart .u-over"))
    page.wait_for("document.querySelector('.u-series .u-value').textContent.includes('train')")
    at, *values = page.eval(f"{LEGEND}.slice(0, 8).map((one) => one.textContent)")
    moments = read_history(folder).last.main.moments
    at_s = float(at.removeprefix("at").split()[0])
    moment = min(moments, key=lambda one: abs(one.at_s - at_s))
    assert moment.u is not None
    assert [one.endswith(format_bytes(moment.u)) for one in values if one.startswith("U ")] == [True]
    assert f"workers{format_bytes(moment.workers or 0)}" in values


def test_click_on_a_name_hides_its_area_and_restacks(page: Browser) -> None:
    top = f"{FIRST}.plot.data[1 + {FIRST}.series.findIndex((one) => one.name === 'workers')][60]"
    before = page.eval(top)
    main_bytes = page.eval(f"{FIRST}.series.find((one) => one.name === 'main').y[60]")
    row = f"{LEGEND}.find((one) => one.textContent.startsWith('main')).querySelector('th').click()"
    page.eval(row)
    assert page.eval(top) == before - main_bytes
    page.eval(row)
    assert page.eval(top) == before


def test_names_of_marks_are_above_plot(page: Browser) -> None:
    top, marks = page.eval(f"[{FIRST}.plot.bbox.top / devicePixelRatio, {FIRST}.marks.length]")
    assert marks == 2
    assert top >= 12 + 15 * marks


def test_legend_has_no_colon_without_value(page: Browser) -> None:
    content = "getComputedStyle(document.querySelector('.u-legend th'), '::after').content"
    assert page.eval(content) in ("none", '""')


def test_drag_zooms_all_charts_of_an_attempt(page: Browser) -> None:
    whole = ranges(page)
    x, y = middle(page, "figure.chart .u-over")
    for kind, by in (("Moved", 0), ("Pressed", 0), ("Moved", 120), ("Released", 120)):
        page.mouse(kind, x + by, y)
    zoomed = ranges(page)
    assert len(zoomed) == 2
    assert zoomed[0] == pytest.approx(zoomed[1])
    assert whole[0][0] < zoomed[0][0] < zoomed[0][1] < whole[0][1]
    page.eval(f"{FIRST}.plot.root.focus()")
    page.key("0")
    assert ranges(page) == whole


def test_click_on_a_stage_zooms_to_it(page: Browser) -> None:
    click(page, "figure.chart .band")
    assert [one == pytest.approx([0, 1], abs=0.01) for one in ranges(page)] == [True, True]


def test_keys_step_and_zoom(page: Browser) -> None:
    page.eval(f"{FIRST}.plot.root.focus()")
    seen: list[Any] = []
    for key in ("End", "ArrowLeft", "Home"):
        page.key(key)
        seen.append(page.eval("document.querySelector('[aria-live]').textContent"))
    assert len({*seen}) == 3
    assert seen[-1].startswith("at0 s")
    page.key("+")
    (low, high), _ = ranges(page)
    assert high - low == pytest.approx(36.2 / 2, rel=0.02)


def test_every_control_is_reached_by_the_keyboard(page: Browser) -> None:
    controls = "button:not([hidden]), .uplot, .u-series:not(:first-child) th, summary"
    assert page.eval(f"[...document.querySelectorAll('{controls}')].every((one) => one.tabIndex >= 0)")
    assert page.eval("[...document.querySelectorAll('.uplot')].every((one) => one.ariaLabel)")


def test_click_on_a_title_sorts_the_table(page: Browser) -> None:
    rows = "[...document.querySelector('table.sortable').tBodies[0].rows]"
    names = f"{rows}.map((row) => row.cells[0].textContent)"
    first = page.eval(names)
    seconds = (
        "[...document.querySelectorAll('th button')].find((one) => one.textContent === 'seconds').click()"
    )
    page.eval(seconds)
    assert page.eval(names)[:2] == ["train", "build"]
    page.eval(seconds)
    assert page.eval(names)[-1] == "train"
    page.eval(seconds)
    assert page.eval(names) == first


def test_no_sideways_scrolling_on_a_telephone(browser: Browser, folder: Path) -> None:
    browser.open(folder / "memory.html", width=390, height=800)
    assert browser.eval("document.documentElement.scrollWidth") <= 390


def test_it_prints(page: Browser) -> None:
    assert page.pdf().startswith(b"%PDF")


def test_text_of_a_hostile_run_stays_text(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page_with(HOSTILE))
    browser.open(tmp_path / "page.html")
    assert browser.requests[0].startswith("file://")
    assert [one for one in browser.requests[1:] if not one.startswith("data:")] == []
    assert browser.messages == []
    assert browser.eval("document.querySelectorAll('img[src=x], [onerror]').length") == 0
    assert browser.eval("document.title") == HOSTILE


def test_no_script_but_its_own_can_run(browser: Browser, tmp_path: Path) -> None:
    torn = page_with("x").replace("</main>", "<script>document.title = 'taken'</script></main>")
    (tmp_path / "page.html").write_text(torn)
    browser.open(tmp_path / "page.html")
    assert browser.eval("document.title") == "x"
    assert any("Security" in message for message in browser.messages)


def test_two_runs_share_one_time_axis(browser: Browser, folder: Path, tmp_path: Path) -> None:
    assert main(["compare", str(folder), str(folder), "--html", "--output", str(tmp_path)]) == 0
    browser.open(tmp_path / "memory-compared.html")
    found = ranges(browser)
    assert len(found) == 3
    assert found[0] == found[1] == found[2]
    assert browser.messages == []
