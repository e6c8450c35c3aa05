"""The pages of `report` and `live` in a real browser: 1,000 runs, filtered, sorted, pointed at, followed."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from made_pages import HOSTILE
from made_sweeps import BATCH_TOKENS, diverged, killed_for_memory, make_one, make_sweep, say

from analysis.__main__ import main
from analysis.live.follower import Follower
from analysis.live.server import Server
from analysis.reading import read_study
from tests.golden_text import Golden

pytestmark = pytest.mark.slow

ROWS = "[...document.querySelector('table.sortable').tBodies[0].rows]"
CURVES = "document.querySelectorAll('figure.curves path.line').length"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 28 runs: one was killed, one diverged, one has tags and notes."""
    study = tmp_path_factory.mktemp("runs") / "sweep"
    folders = make_sweep(study, seeds=2)
    killed_for_memory(folders[3])
    diverged(folders[13])
    say(folders[5], tags=["baseline"], notes=HOSTILE)
    assert main(["report", str(study)]) == 0
    return study / "report.html"


@pytest.fixture
def page(browser: Browser, report: Path) -> Browser:
    browser.open(report, width=1280)
    return browser


def type_filter(page: Browser, words: str) -> int:
    """How many rows it leaves."""
    page.eval(
        f"(() => {{ const i = document.querySelector('.filter input'); i.value = {words!r};"
        " i.dispatchEvent(new Event('input')); })()"
    )
    return int(page.eval(f"{ROWS}.filter((row) => !row.hidden).length"))


def click(page: Browser, selector: str) -> None:
    page.eval(f"document.querySelector({selector!r}).click()")


def test_nothing_is_loaded_and_nothing_fails(page: Browser, report: Path) -> None:
    assert page.requests == [report.resolve().as_uri()]
    assert page.messages == []
    assert page.eval(
        "[...document.querySelectorAll('figure:not(.filter)')].every((one) => one.querySelector('svg .axes'))"
    )
    assert page.eval(CURVES) == 28
    assert page.eval("document.querySelectorAll('img, iframe, [onerror]').length") == 0


@pytest.mark.parametrize(
    ("words", "left"),
    [("64d", 14), ("lr<0.01", 12), ("lr<=0.01 model=64d", 8), ("state!=done", 2), ("state=oom", 1),
     ("-64d seed=1", 7), ("tags=baseline", 1), ("ALERT(1)", 1), ("optimizer.lr=0.01", 28), ("", 28)],
)  # fmt: skip
def test_words_and_conditions_filter_rows_and_curves(page: Browser, words: str, left: int) -> None:
    assert type_filter(page, words) == left
    assert page.eval(CURVES) == left


def test_a_column_that_is_not_there_is_told(page: Browser, golden: Golden) -> None:
    type_filter(page, "colour=red")
    golden.text(page.eval("document.querySelector('.filter span').textContent"))


def test_a_title_sorts(page: Browser) -> None:
    values = f"{ROWS}.map((row) => +row.cells[7].dataset.value)"
    column = page.eval(
        "[...document.querySelectorAll('th')].findIndex((one) => one.textContent === 'val_loss')"
    )
    values = values.replace("7", str(column), 1)
    page.eval(f"document.querySelectorAll('th')[{column}].querySelector('button').click()")
    falling = page.eval(values)
    assert falling == sorted(falling, reverse=True)
    page.eval(f"document.querySelectorAll('th')[{column}].querySelector('button').click()")
    rising = page.eval(values)
    assert rising == sorted(rising)
    assert type_filter(page, "64d") == 14, "the filter goes on after sorting"
    assert page.eval(CURVES) == 14


def test_a_curve_is_pointed_at_and_told(page: Browser, golden: Golden) -> None:
    box = page.eval(
        "(() => { const e = document.querySelector('figure.curves svg'); e.scrollIntoView({block: 'center'});"
        " const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
    )
    for share in range(2, 19):
        page.mouse("Moved", box[0] + box[2] * 0.6, box[1] + box[3] * share / 20)
        if not page.eval("document.querySelector('figure.curves .tip').hidden"):
            break
    told = page.eval("document.querySelector('figure.curves .tip').textContent")
    assert "d-lr" in told
    golden.text(told, numbers=False)
    assert page.eval("document.querySelectorAll('figure.curves .over .lit').length") == 1


def test_runs_and_groups_are_switched_off(page: Browser) -> None:
    click(page, "table.sortable .dot")
    assert page.eval(CURVES) == 27
    click(page, "table.sortable .dot")
    assert page.eval(CURVES) == 28
    click(page, "figure.curves .legend .key")
    assert page.eval(CURVES) == 24, "those of one learning rate"


def test_axes_are_chosen(page: Browser, golden: Golden) -> None:
    name = "[...document.querySelectorAll('figure.curves .axisname')].map((one) => one.textContent)"
    golden.text("\n".join(page.eval(name)))
    page.eval(
        "[...document.querySelectorAll('figure.curves select')].slice(0, 2).forEach((one) => {"
        " one.selectedIndex = 1; one.dispatchEvent(new Event('change')); })"
    )
    golden.text("\n".join(page.eval(name)))
    before = page.eval("document.querySelector('figure.curves path.line').getAttribute('d')")
    click(page, "figure.curves .controls button")
    assert page.eval("document.querySelector('figure.curves path.line').getAttribute('d')") != before
    assert page.messages == []


def test_keys_step_along_a_curve_and_zoom_comes_back(page: Browser) -> None:
    page.eval("document.querySelector('figure.curves svg').focus()")
    page.key("ArrowRight")
    first = page.eval("document.querySelector('figure.curves [aria-live]').textContent")
    page.key("ArrowDown")
    assert "d-lr" in first
    assert page.eval("document.querySelector('figure.curves [aria-live]').textContent") != first


@pytest.mark.parametrize("width", [1280, 400])
def test_no_sideways_scrolling(browser: Browser, report: Path, width: int) -> None:
    browser.open(report, width=width)
    assert browser.eval("document.documentElement.scrollWidth") <= width


def test_it_prints(page: Browser) -> None:
    assert page.pdf().startswith(b"%PDF")


def test_a_thousand_runs(browser: Browser, tmp_path: Path) -> None:
    study = tmp_path / "sweep"
    make_sweep(
        study, widths=(32, 48, 64, 96, 128), seeds=28, rates=[0.001 * 1.5**i for i in range(7)], steps=40
    )
    for number in range(20):
        make_one(study, 160, 0.01, number)
    assert main(["report", str(study)]) == 0
    browser.open(study / "report.html")
    assert browser.messages == []
    assert browser.eval(f"{ROWS}.length") == 1000
    assert browser.eval(CURVES) == 1000
    assert type_filter(browser, "lr<0.002 128d") == 56
    assert browser.eval(CURVES) == 56


def test_curves_of_many_runs_are_in_panels_by_size(page: Browser) -> None:
    names = "[...document.querySelectorAll('figure.curves .panelname')].map((one) => one.textContent)"
    assert page.eval(names) == ["32d", "64d"]
    page.eval(
        "(() => { const all = document.querySelectorAll('figure.curves select'), one = all[all.length - 1];"
        " one.selectedIndex = 0; one.dispatchEvent(new Event('change')); })()"
    )
    assert page.eval(names) == []
    assert page.eval(CURVES) == 28


def test_swept_keys_are_parallel_axes(page: Browser) -> None:
    ticks = "[...document.querySelectorAll('figure.plotted')][0].querySelectorAll('path.line').length"
    assert page.eval(ticks) == 28


def test_the_live_page_follows(browser: Browser, tmp_path: Path) -> None:
    study = tmp_path / "sweep"
    folders = make_sweep(study, widths=(32,))
    follower = Follower(lambda: read_study([str(study)]), every_s=0.2)
    with Server(follower) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        browser.open(server.address)
        browser.wait_for("document.querySelector('header p.note')?.textContent.startsWith('As of')")
        assert type_filter(browser, "lr>0.002") == 6
        browser.eval("document.querySelectorAll('th')[1].querySelector('button').click()")
        names = f"{ROWS}.map((row) => row.cells[0].textContent.replace(' ★', ''))"
        order = browser.eval(names)
        with open(folders[2] / "metrics.csv", "a") as file:
            file.write(f"41,{41 * BATCH_TOKENS},3.25,,0.1,1.0,1e12,0.5,33000.0,\n")
        browser.wait_for(f"{ROWS}.some((row) => row.textContent.includes('3.2500'))")
        assert browser.eval(names) == order, "the order stays"
        assert browser.eval(CURVES) == 6, "the filter stays"
        killed_for_memory(folders[1])
        browser.wait_for("document.body.textContent.includes('oom, 1 run')")
        shutil.copytree(folders[0], study / ".zz").rename(study / "zz")
        browser.wait_for(f"{ROWS}.length === 8")
        assert browser.messages == []
        assert all(one.startswith(server.address) for one in browser.requests)
        server.shutdown()
        thread.join()
    browser.wait_for(
        "document.querySelector('header p').textContent.startsWith('No answer since') ||"
        " document.querySelector('header p.bad')?.textContent.startsWith('No answer since')"
    )


def test_a_dark_page_has_light_curves(browser: Browser, report: Path) -> None:
    found: list[Any] = []
    for dark in (False, True):
        browser.open(report, dark=dark)
        found.append(browser.eval("getComputedStyle(document.querySelector('path.line')).stroke"))
    assert found[0] != found[1]
