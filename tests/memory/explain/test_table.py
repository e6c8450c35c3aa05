"""The table of rows: a recording holds each, or signals on which it holds and others on which it does not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.explain.decide import find
from memory.explain.evidence.gpu_message import GpuMessage
from memory.explain.evidence.growth import Leaking
from memory.explain.evidence.log_patterns import MANAGERS
from memory.explain.evidence.own_error import OwnError
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.rules import TABLE
from memory.explain.signals import Said, SharedMemory, Signals
from memory.explain.verdict.advice import ADVICE
from memory.explain.verdict.evidence_lines import LINES
from memory.record.evidence import Evidence
from tests.memory.deaths.recorded import read_answers

GB = 1 << 30
ROWS = {row.name: row for row in TABLE}
DOCS = Path(__file__).resolve().parents[3] / "docs" / "memory-explain.md"
KILLED = {"end": "signal", "signal": "SIGKILL", "signal_is_certain": True, "has_run": True}
COUNTED = {**KILLED, "limit_at": "cgroup", "limit_bytes": GB, "kills": "counted", "kill_count": 1}


def error(kind: str) -> dict[str, Any]:
    """Signals of a run that ended by that error."""
    return {
        "end": "error",
        "exit_code": 1,
        "has_run": True,
        "error": OwnError(kind, "line", "text", "Error: line"),
    }


def gpu(**amounts: Any) -> dict[str, Any]:
    """Signals of a GPU without room."""
    parts = {f"{name}_bytes": value for name, value in amounts.items()}
    return error("gpu_message") | {"gpu": GpuMessage(**parts, line="line")}


def said(kind: str) -> dict[str, Any]:
    return {"end": "log only", "said": {kind: Said("line")}}


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "named_in_kernel_log": ("likely", said("kernel_cgroup"), {"said": {}}),
    "slurm_requeued": ("certain", said("slurm_requeued"), {"said": {}}),
    **{kind: ("likely", said(kind), {"end": "ok"})
       for kind in ("container_oom", "memory_daemon", "manager_poll", "manager_timeout")},
    "bus_error": ("unknown", {"signal": "SIGBUS"}, {"shared": SharedMemory(full=0.95, total_bytes=GB)}),
    "pinned_memory": ("likely", error("pinned_memory"), {"error": OwnError("gpu_oom", "x")}),
    "running": ("likely", {"end": "running"}, {"end": "lost"}),
    "no_evidence": ("certain", {"end": "no evidence"}, {"end": "lost"}),
    "too_small_from_the_start": ("likely", COUNTED | {"needed_bytes": 2 * GB}, {"has_made_a_step": True}),
    "swapped": ("likely", {"swap_rose_bytes": GB}, {"swap_rose_bytes": 1 << 20}),
}  # fmt: skip
"""Rows that no recording has; tests of accounting have the row of notes."""
CAUSES: dict[str, tuple[str, dict[str, Any]]] = {
    "neighbours": ("machine_full", COUNTED | {"limit_at": "host", "peak_of_host": 0.2}),
    "leak": ("gpu_full", gpu() | {"gpu_leak": Leaking("1 MB a step", "line")}),
    "neighbours of the GPU": ("gpu_full", gpu(total=16 * GB, others=12 * GB)),
    "fragmentation": ("gpu_full", gpu(asked=GB, unallocated=2 * GB, total=16 * GB)),
    "size": ("gpu_full", gpu(asked=20 * GB, total=16 * GB)),
    "growth": ("gpu_full", gpu(asked=GB, total=16 * GB, allocated=15 * GB)),
    "None": ("gpu_full", gpu()),
    "rlimit": ("memory_refused", error("memory_error") | {"rlimits": ("RLIMIT_AS is 2 GB",)}),
    "truncated_file": ("bus_error", {"signal": "SIGBUS", "shared": SharedMemory(full=0.1, total_bytes=GB)}),
    "shmem": ("bus_error", KILLED | {"signal": "SIGBUS"}),
}
"""Causes of rows that choose one."""


def signals(**values: Any) -> Signals:
    return Signals(RunFacts(Evidence(Path(os.devnull))), **values)


def test_every_row_is_held_and_described() -> None:
    fired = {rule for answer in read_answers().values() for rule in answer["rules"]}
    assert fired <= set(ROWS)
    assert {row.name for row in TABLE} - fired - {"slurm_notes"} == set(CASES)
    assert len(ROWS) == len(TABLE)
    assert all(row.sign and (row.verdict or row.cause or row.shows) for row in TABLE)
    assert {word for row in TABLE for word in row.advice.split()} <= set(ADVICE)
    known = {*LINES, *(pattern.kind for pattern in MANAGERS)}
    assert {word for row in TABLE for word in row.shows.split()} <= known


@pytest.mark.parametrize("name", CASES)
def test_row_holds_on_its_signals_alone(name: str) -> None:
    confidence, values, other = CASES[name]
    found = ROWS[name].find(signals(**values))
    assert found is not None
    assert found.confidence == confidence
    assert ROWS[name].find(replace(signals(**values), **other)) is None


@pytest.mark.parametrize("cause", CAUSES)
def test_row_chooses_cause(cause: str) -> None:
    name, values = CAUSES[cause]
    found = ROWS[name].find(signals(**values))
    assert found is not None
    assert str(found.cause) == cause.partition(" ")[0]


def test_no_row_fails_on_absent_evidence() -> None:
    assert find(signals())[1] == []


def test_docs_table_is_generated_from_rows(request: pytest.FixtureRequest) -> None:
    """`pytest --update-golden` writes it."""
    head = "| row | says | condition |\n|---|---|---|\n"
    table = head
    for row in TABLE:
        codes = ["by its evidence" if callable(value) else value for value in (row.verdict, row.cause)]
        table += (
            f"| `{row.name}` | {' '.join(filter(None, dict.fromkeys(codes))) or 'a note'} | {row.sign} |\n"
        )
    page = DOCS.read_text()
    begin = page.index(head)
    end = page.find("\n\n", begin)
    if request.config.getoption("--update-golden"):
        DOCS.write_text(page[:begin] + table.rstrip("\n") + (page[end:] if end >= 0 else "\n"))
    else:
        assert table.rstrip("\n") == page[begin : end if end >= 0 else None].rstrip("\n")
