"""Jobs find the function that starts them, whichever version submitted them or copied the code."""

from __future__ import annotations

import importlib
import pickle

import cloudpickle

from slurm.queue import job_entry

NAME = "slurm.in_job.start"


def test_pickles_name_the_module_of_earlier_code() -> None:
    importlib.import_module(NAME)
    made = cloudpickle.dumps(job_entry.start)
    assert NAME.encode() in made
    assert b"job_entry" not in made
    assert len(made) < 200, "by reference, not as code"


def test_pickles_of_earlier_versions_load() -> None:
    by_reference = f"c{NAME}\nstart\n.".encode()  # protocol 0: GLOBAL module, name
    assert pickle.loads(by_reference) is job_entry.start
