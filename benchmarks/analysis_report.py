"""Measure how soon `python -m analysis report` writes the page of 1,000 run folders, and a browser shows it.

Folders as those of analysis_table.py. Cold: no index of the study. Warm: with the index of the call before.
Loading: from the start of the navigation to the end of the load event in headless Chromium, which includes
drawing; left out if there is no Chromium.

    python benchmarks/analysis_report.py
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tests")]

from browser import Browser, find_browser

from analysis.reading.index import NAME
from benchmarks.analysis_table import make_study, seconds_of_command
from benchmarks.harness import benchmark, in_turns, summaries

GOALS = {"cold": 5.0, "warm": 5.0, "load": 3.0}


def loaded(browser: Browser, page: Path) -> float:
    """Seconds until the page is shown."""
    browser.open(page)
    browser.wait_for("performance.timing.loadEventEnd > 0")
    assert not browser.messages, browser.messages[0]
    return browser.eval("performance.timing.loadEventEnd - performance.timing.navigationStart") / 1000


@benchmark(rounds=(5, 1), runs=(1000, 20), rows=(1000, 50))
def measured(chosen: Any) -> Any:
    with tempfile.TemporaryDirectory() as place:
        study, page = Path(place) / "sweep", Path(place) / "report.html"
        make_study(study, chosen.runs, chosen.rows)
        command = [sys.executable, "-m", "analysis", "report", study, "-o", page]
        cold = partial(seconds_of_command, command, without=study / NAME)
        found = in_turns({"cold": cold, "warm": partial(seconds_of_command, command)}, chosen.rounds, 1)
        if program := find_browser():
            with Browser(program, Path(place) / "browser") as browser:
                found |= in_turns({"load": partial(loaded, browser, page)}, chosen.rounds)
        page_bytes = page.stat().st_size
    facts = {"runs": chosen.runs, "rows": chosen.rows, "goals_s": GOALS, "page_bytes": page_bytes}
    return facts | {"seconds": summaries(found)}
