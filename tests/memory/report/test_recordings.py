"""Every recorded run has a report: parts add up, text fits 80 columns, numbers are JSON."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from experiment_utils.errors import UserError
from memory.report.data.ending import ending, events
from memory.report.data.history import read_history
from memory.report.data.moments import PARTS
from memory.report.data.run_json import run_json
from memory.report.run_charts import over_time
from memory.report.run_report import lines_of, page_of
from tests.memory.deaths.recorded import read_answers, unpack


def test_every_recorded_run_has_a_report(tmp_path: Path) -> None:
    answers = read_answers()
    found: Counter[str] = Counter()
    for folder in unpack(tmp_path):
        try:
            history = read_history(folder / "run")
        except UserError as error:
            found[error.code or ""] += 1
            continue
        end, bad = ending(history, history.last), answers[folder.name]["verdict"] != "healthy"
        found["agree" if end.is_bad == bad else "differ"] += 1
        times = [one.at_s for one in events(history, history.last)]
        assert times == sorted(times), folder.name
        for attempt in history.attempts:
            assert max(map(len, lines_of(history, attempt))) <= 80, folder.name
            for moment in (moment for track in attempt.tracks for moment in track.moments):
                assert moment.u in (None, sum(getattr(moment, part) or 0 for part in PARTS)), folder.name
            over_time(attempt.main).to_json()
        json.dumps(run_json(history), allow_nan=False)
        page = page_of(history, command="x")
        assert page.count("<details>") == page.count("</details>")
    assert found.keys() <= {"agree", "differ", "no-records"}
    assert found["agree"] >= 0.95 * found.total() > 100
