"""Jobs that wait in a queue since before an upgrade still find the function that starts them."""

from __future__ import annotations

import pickle

from slurm.queue import job_entry


def test_pickles_of_earlier_versions_load() -> None:
    by_reference = b"cslurm.in_job.start\nstart\n."  # protocol 0: GLOBAL module, name
    assert pickle.loads(by_reference) is job_entry.start
