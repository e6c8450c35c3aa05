"""Work is given out longest first; one process takes what waits."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xdist")

from tests.scheduling import PAGES, SECONDS, WAITING, LongestFirst

UNITS = ("tests/a/test_short.py", "tests/test_kills.py", "tests/slurm/test_real_jobs.py", f"{PAGES}data.md]")


@pytest.mark.parametrize("begin", [*SECONDS, *WAITING])
def test_files_of_the_table_exist(begin: str, root: Path) -> None:
    file = begin.partition("::")[0]
    assert list(root.glob(f"{file}*"))


def test_order_of_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(
        "xdist.scheduler.LoadFileScheduling._assign_work_unit",
        lambda self, node: sent.append(self.workqueue.popitem(last=False)[0]),
    )
    scheduler: Any = LongestFirst.__new__(LongestFirst)
    scheduler.assigned_work = OrderedDict.fromkeys(["first", "second"])
    scheduler.workqueue = OrderedDict((unit, {f"{unit}::test": False}) for unit in UNITS)
    for node in ("second", "first", "second", "first"):
        scheduler._assign_work_unit(node)
    assert sent == [UNITS[3], UNITS[2], UNITS[1], UNITS[0]]
    assert scheduler._split_scope(f"{PAGES}data.md]") == f"{PAGES}data.md]"
    assert scheduler._split_scope("tests/test_docs.py::test_links[a]") == "tests/test_docs.py"
