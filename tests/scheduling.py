"""Order in which pytest-xdist gives work to its processes: the longest first, so that none is left at last.

A unit of work is a file, whose fixtures its tests share; a page of test_docs.py is one of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

PAGES = "tests/test_docs.py::test_commands_work["
SECONDS = {
    PAGES: 30, "tests/slurm/submit/test_real_submit.py": 30, "tests/memory/explain/test_deaths_v2.py": 30,
    "tests/slurm/test_real_": 20, "tests/slurm/tokens/test_real_": 20,
    "tests/training/test_memory_limit.py": 20, "tests/training/test_compiled.py": 10,
    "tests/training/distributed/test_options_on_ranks.py": 8, "tests/memory/explain/test_deaths": 10,
    "tests/test_kills.py": 10, "tests/slurm/in_job/test_run_in_job.py": 2, "tests/test_distributed.py": 5,
    "tests/test_core.py": 4, "tests/analysis/report/test_report_browser.py": 3,
    "tests/memory/report/test_page_browser.py": 3, "tests/memory/supervision/test_supervisor": 2,
    "tests/training/ensemble/": 1, "tests/models/": 0.1,
}  # fmt: skip
"""Roughly those of a test, by the beginning of its name; half a second for the others."""


def seconds_of(test: str) -> float:
    return next((seconds for begin, seconds in SECONDS.items() if test.startswith(begin)), 0.5)


WAITING = (
    "tests/slurm/submit/test_real_submit.py", "tests/slurm/test_real_", "tests/slurm/tokens/test_real_",
    "tests/memory/explain/test_deaths_slurm.py", "tests/memory/explain/test_deaths_v2.py",
)  # fmt: skip
"""Files that mostly wait for a Slurm or a guest. One process takes them, the others use the cores."""


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Files as units, the longest first."""

    workqueue: OrderedDict[str, dict[str, bool]]

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(PAGES) else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_first = node is self.nodes[0]

        def fits(unit: str) -> tuple[bool, float]:
            return unit.startswith(WAITING) == is_first, sum(map(seconds_of, self.workqueue[unit]))

        self.workqueue.move_to_end(max(self.workqueue, key=fits), last=False)
        super()._assign_work_unit(node)
