"""How soon `python -m analysis report` writes the page of 1,000 run folders of 1,000 rows each, and how soon
a browser shows it.

Folders as those of analysis_table.py. Cold: no index of the study. Warm: with the index of the call before.
Each round is a process of its own, timed from outside, page cache warm. Loading: from the start of the
navigation to the end of the load event in headless Chromium, which includes drawing; without one left out.

    python benchmarks/analysis_report.py [--rounds 5] [--runs 1000] [--rows 1000] [--no-save]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import Browser, find_browser

from analysis.reading.index import NAME
from benchmarks.analysis_table import make_study, timed
from benchmarks.environment import save, summary

GOALS = {"cold": 5.0, "warm": 5.0, "load": 3.0}
_LOADED = "performance.timing.loadEventEnd - performance.timing.navigationStart"


def loaded(page: Path, home: Path, rounds: int) -> list[float]:
    """Seconds of each round; none where there is no browser."""
    program = find_browser()
    if program is None:
        return []
    found = []
    with Browser(program, home) as browser:
        for _ in range(rounds):
            browser.open(page)
            browser.wait_for("performance.timing.loadEventEnd > 0")
            if browser.messages:
                raise AssertionError(browser.messages[0])
            found.append(browser.eval(_LOADED) / 1000)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as place:
        study, page = Path(place) / "sweep", Path(place) / "report.html"
        make_study(study, options.runs, options.rows)
        time.sleep(2.5)  # what was written just now is not remembered
        command = [sys.executable, "-m", "analysis", "report", str(study), "-o", str(page)]
        for _ in range(options.rounds):
            (study / NAME).unlink(missing_ok=True)
            seconds["cold"].append(timed(command))
            seconds["warm"].append(timed(command))
        page_bytes = page.stat().st_size
        if times := loaded(page, Path(place) / "browser", options.rounds):
            seconds["load"] = times
    result: dict[str, Any] = {
        "runs": options.runs, "rows": options.rows, "goals_s": GOALS, "page_bytes": page_bytes,
        "seconds": {name: summary(values) for name, values in seconds.items()},
    }  # fmt: skip
    if options.no_save:
        print(json.dumps(result, indent=2))
    else:
        save("analysis_report", result)


if __name__ == "__main__":
    main()
