"""A step on shapes alone, of a model that comes in as a function, and what is kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory.estimate.trace import traced

torch = pytest.importorskip("torch")
WIDTH, ROWS = 256, 512


def build() -> tuple[Any, Any]:
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH, bias=False)
    )
    return model, torch.optim.AdamW(model.parameters(), fused=True)


def step(model: Any, optimizer: Any) -> None:
    model(torch.zeros(ROWS, WIDTH)).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def never() -> Any:
    raise NotImplementedError


def test_a_trace_finds_the_parts_and_is_kept(tmp_path: Path) -> None:
    shape = {"width": WIDTH}
    found = traced(build, step, shape=shape, cache=tmp_path)
    matrix = 4 * WIDTH * WIDTH
    assert found.parts["parameters"] == 2 * matrix
    assert found.parts["optimizer state"] == pytest.approx(4 * matrix, rel=0.01)
    assert found.peak_bytes >= 6 * matrix + 4 * ROWS * WIDTH
    assert not found.from_cache

    again = traced(never, never, shape=shape, cache=tmp_path)
    assert again.from_cache
    assert (again.parts, again.peak_bytes) == (found.parts, found.peak_bytes)
    with pytest.raises(NotImplementedError):
        traced(never, never, shape={"width": 1}, cache=tmp_path)

    (path,) = tmp_path.iterdir()
    path.write_text("{garbage")
    assert not traced(build, step, shape=shape, cache=tmp_path).from_cache


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert traced(build, step, shape={}, cache=tmp_path / "file" / "cache").peak_bytes > 0
