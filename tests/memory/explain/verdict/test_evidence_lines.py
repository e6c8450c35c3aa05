"""Evidence that a run left near its limit: its largest object, its stack, how far it had come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import MB, killed, oom, record, sample, write

from memory.explain.evidence.run_facts import RunFacts
from memory.explain.read_signals import read_signals
from memory.explain.verdict.evidence_lines import lines_of
from memory.record.evidence import Evidence


def facts_of(folder: Path, records: list[dict[str, Any]]) -> RunFacts:
    samples = [sample(0, 100), sample(9, 900)]
    return RunFacts(Evidence(write(folder, outcome=killed(**oom()), samples=samples, records=records)))


@pytest.mark.parametrize(("size_mb", "is_named"), [(800, True), (10, False)])
def test_largest_object_near_the_limit_is_named(tmp_path: Path, size_mb: int, is_named: bool) -> None:
    facts = facts_of(tmp_path, [record("begin", "train", 1, 100)])
    largest = [{"name": "loop.KEPT", "what": "9 items of a list", "bytes": size_mb * MB}]
    (facts.evidence.path / "memory.blackbox.1.json").write_text(json.dumps({"largest": largest}))
    found = lines_of(read_signals(facts), "stack")
    assert any("loop.KEPT" in line for line in found) is is_named


@pytest.mark.parametrize(("step", "has_made_a_step"), [(0, False), (1, True)])
def test_stages_of_set_up_are_no_steps(tmp_path: Path, step: int, has_made_a_step: bool) -> None:
    records = [record("end", "load_tokenizer", 1, 100, step=0), record("end", "train", 2, 200, step=step)]
    assert read_signals(facts_of(tmp_path, records)).has_made_a_step is has_made_a_step
