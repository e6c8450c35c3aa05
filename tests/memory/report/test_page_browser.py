"""The page in a real browser: drawn, pointed at, zoomed, filtered, sorted, printed; nothing loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Browser
from made_pages import HOSTILE, page_with
from made_runs import make_killed

from experiment_utils.quantities import format_bytes
from memory.__main__ import main
from memory.report.colors import ON_PAGE
from memory.report.history import read_history

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


FIRST = "document.querySelector('figure.chart')"


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


def labels(page: Browser) -> list[str]:
    """Of the time axis."""
    found = page.eval(f"[...{FIRST}.querySelectorAll('.axes text')].map((one) => one.textContent)")
    return [text for text in found if not text.endswith("B")]


def test_nothing_is_loaded_and_nothing_fails(page: Browser, folder: Path) -> None:
    assert page.requests == [(folder / "memory.html").resolve().as_uri()]
    assert page.messages == []
    assert page.eval("document.querySelectorAll('figure.chart svg').length") == page.eval(
        "document.querySelectorAll('figure.chart').length"
    )
    drawn = page.eval(
        f"[...{FIRST}.querySelectorAll('path.stack')].map((one) => one.getAttribute('d').length)"
    )
    assert len(drawn) == 4
    assert min(drawn) > 50


def test_pointing_tells_the_amounts_of_that_moment(page: Browser, folder: Path) -> None:
    x, y = middle(page, "figure.chart svg")
    page.mouse("Moved", x, y)
    page.wait_for("!document.querySelector('.tip').hidden")
    told = page.eval("document.querySelector('.tip').textContent")
    at_s = page.eval("document.querySelector('.tip .when').textContent")
    track = read_history(folder).last.main
    moment = min(track.moments, key=lambda one: abs(one.at_s - float(at_s.split()[0])))
    assert moment.u is not None
    assert format_bytes(moment.u) in told
    assert format_bytes(moment.workers or 0) in told
    assert "train" in told


def test_a_series_is_toggled_by_its_button(page: Browser) -> None:
    count = f"{FIRST}.querySelectorAll('path.stack').length"
    assert page.eval(count) == 4
    before = page.eval(f"{FIRST}.querySelector('path.line').getAttribute('d')")
    click(page, "figure.chart .key")
    assert page.eval(count) == 3
    assert page.eval("document.querySelector('figure.chart .key').getAttribute('aria-pressed')") == "false"
    click(page, "figure.chart .key")
    assert page.eval(count) == 4
    assert page.eval(f"{FIRST}.querySelector('path.line').getAttribute('d')") == before


def test_dragging_zooms_and_the_whole_comes_back(page: Browser) -> None:
    whole = labels(page)
    x, y = middle(page, "figure.chart svg")
    page.mouse("Moved", x, y)
    page.mouse("Pressed", x, y)
    page.mouse("Moved", x + 120, y)
    page.mouse("Released", x + 120, y)
    assert labels(page) != whole
    assert page.eval(f"{FIRST}.querySelector('.reset').hidden") is False
    click(page, "figure.chart .reset")
    assert labels(page) == whole


def test_a_click_on_a_stage_shows_it_alone(page: Browser) -> None:
    whole = labels(page)
    click(page, "figure.chart .band")
    assert labels(page) != whole
    assert float(labels(page)[-1].split()[0]) <= 1.1


def test_charts_of_one_attempt_zoom_together(page: Browser) -> None:
    resets = "[...document.querySelectorAll('.reset')].map((one) => one.hidden)"
    page.eval(f"{FIRST}.querySelector('svg').focus()")
    page.key("+")
    assert set(page.eval(resets)) == {False}
    page.key("0")
    assert set(page.eval(resets)) == {True}


def test_keys_step_through_time(page: Browser) -> None:
    page.eval(f"{FIRST}.querySelector('svg').focus()")
    page.key("End")
    last = page.eval("document.querySelector('.tip .when').textContent")
    page.key("ArrowLeft")
    assert page.eval("document.querySelector('.tip .when').textContent") != last
    page.key("Home")
    assert page.eval("document.querySelector('.tip .when').textContent") == "0 s"
    assert page.eval("document.querySelector('[aria-live]').textContent").startswith("0 s")


def test_every_control_is_reached_by_the_keyboard(page: Browser) -> None:
    controls = "[...document.querySelectorAll('button:not([hidden]), svg, summary')]"
    reached = page.eval(f"{controls}.every((one) => one.tabIndex >= 0)")
    assert reached is True
    assert (
        page.eval("[...document.querySelectorAll('svg')].every((one) => one.getAttribute('aria-label'))")
        is True
    )


def test_a_table_is_sorted_by_its_titles(page: Browser) -> None:
    names = "[...document.querySelector('table').tBodies[0].rows].map((row) => row.cells[0].textContent)"
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


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(browser: Browser, folder: Path, dark: bool) -> None:
    browser.open(folder / "memory.html", dark=dark)

    def paper() -> str:
        return browser.eval("getComputedStyle(document.body).backgroundColor")

    def of(name: str, is_dark: bool) -> str:
        color = ON_PAGE[name][is_dark]
        return f"rgb({', '.join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))})"

    assert paper() == of("paper", dark)
    fill = f"getComputedStyle({FIRST}.querySelector('path.stack')).fill"
    assert browser.eval(fill) == of("blue", dark)
    click(browser, "button.theme")
    assert paper() == of("paper", not dark)


def test_no_sideways_scrolling_on_a_telephone(browser: Browser, folder: Path) -> None:
    browser.open(folder / "memory.html", width=390, height=800)
    assert browser.eval("document.documentElement.scrollWidth") <= 390


def test_it_prints(page: Browser) -> None:
    assert page.pdf().startswith(b"%PDF")


def test_words_of_a_hostile_run_are_words(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page_with(HOSTILE))
    browser.open(tmp_path / "page.html")
    assert browser.requests[0].startswith("file://")
    assert [one for one in browser.requests[1:] if not one.startswith("data:")] == []
    assert browser.messages == []
    assert browser.eval("document.querySelectorAll('img[src=x], [onerror]').length") == 0
    assert browser.eval("document.title") == HOSTILE


def test_no_script_but_its_own_may_run(browser: Browser, tmp_path: Path) -> None:
    torn = page_with("x").replace("</main>", "<script>document.title = 'taken'</script></main>")
    (tmp_path / "page.html").write_text(torn)
    browser.open(tmp_path / "page.html")
    assert browser.eval("document.title") == "x"
    assert any("Security" in message for message in browser.messages)


def test_two_runs_on_one_time_axis(browser: Browser, folder: Path, tmp_path: Path) -> None:
    assert main(["compare", str(folder), str(folder), "--html", "--output", str(tmp_path)]) == 0
    browser.open(tmp_path / "memory-compared.html")
    axes = browser.eval(
        "[...document.querySelectorAll('figure.chart')].map((one) => [...one.querySelectorAll('.axes text')]"
        ".map((text) => text.textContent).filter((text) => text.endsWith('s')).join())"
    )
    assert len(axes) == 3
    assert len(set(axes)) == 1
    assert browser.messages == []
