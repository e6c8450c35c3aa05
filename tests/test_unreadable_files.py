"""What cannot be read is neither absent nor damaged: nothing is replaced, removed or begun again for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_loading.import_formats.format import read_object
from data_loading.pretokenizer import journal
from data_loading.pretokenizer import train_bpe as bpe
from data_loading.pretokenizer.cleaning import duplicates
from experiment_utils import atomic_files, lock_file
from slurm.commands.removable_files import _snapshots_below
from slurm.records.checkpoint_dependencies import wanted_checkpoints
from slurm.records.start_records import read_starts
from slurm.records.submissions import Place, add_place, places, submissions
from tests.closed import ERRORS, failing_reads
from training.attempt.run_files import read_config, read_run, read_status
from training.report.metrics import MetricsFile, cut_records
from training.run.micro_batch import _was_killed

READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "status.json": ("status.json", read_status),
    "run.json": ("run.json", read_run),
    "config.yaml": ("config.yaml", read_config),
    "outcome.json": ("outcome.json", lambda folder: _was_killed(folder / "outcome.json", 1)),
    "run.lock": ("run.lock", lambda folder: lock_file.read_holder(folder / "run.lock", "it")),
    "run.lock of another host": ("run.lock", lambda folder: lock_file.version(folder / "run.lock")),
    "starts.json": ("starts.json", read_starts),
    "jobs.json": ("jobs.json", places),
    "jobs.json, added to": ("jobs.json", lambda folder: add_place(folder, Place("1", 0, 0))),
    "submission.json": (
        ".submissions/1/submission.json", lambda study: list(submissions(study, all_of_them=True))
    ),
    "metrics.csv": ("metrics.csv", lambda folder: MetricsFile(folder / "metrics.csv", 3)),
    "evals.jsonl": ("evals.jsonl", lambda folder: cut_records(folder / "evals.jsonl", 3, ())),
    "journal of a token set": ("journal.json", journal.read_job),
    "engine of a token set": ("engine.json", journal.read_engine),
    "duplicates": ("found.json", duplicates._read_found),
    "tokenizer that was trained": ("training.json", bpe._read_record),
    "set of another program": ("index.json", lambda folder: read_object(folder / "index.json")),
}  # fmt: skip


@pytest.mark.parametrize("number", ERRORS)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_cannot_be_read_is_reported_and_kept(tmp_path: Path, reader: str, number: int) -> None:
    name, read = READERS[reader]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    with failing_reads(path, number), pytest.raises(atomic_files.Unreadable) as found:
        read(tmp_path)
    assert found.value.path == path
    assert found.value.why == os.strerror(number)
    assert sorted(tmp_path.rglob("*")) == before
    assert path.read_text() == "{}"


def test_an_absent_file_is_absent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert atomic_files.read_object(tmp_path / "none") is None
    assert atomic_files.read_object(tmp_path / "file" / "below") is None


@pytest.mark.parametrize("number", ERRORS[1:])
def test_clean_does_not_guess_what_other_runs_need(tmp_path: Path, number: int) -> None:
    config = tmp_path / "study" / "run" / "config.yaml"
    submission = tmp_path / "study" / ".submissions" / "1" / "submission.json"
    for path in (config, submission):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({}))
    with failing_reads(config, number), pytest.raises(atomic_files.Unreadable):
        wanted_checkpoints(tmp_path)
    with failing_reads(submission, number), pytest.raises(atomic_files.Unreadable):
        _snapshots_below(tmp_path, {})
