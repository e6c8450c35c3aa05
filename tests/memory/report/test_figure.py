"""The picture of a run's memory: parts, limit, stages and death where they were."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import MB, MadeStages, make_killed, sample_of, write_outcome, write_ring

from memory.report.drawing import own_style
from memory.report.figure import attempt_figure, picture
from memory.report.history import read_history
from memory.report.small_figures import pictures, process_figure, rank_figure
from tests.golden_text import Golden


def figure_of(folder: Path) -> Any:
    history = read_history(folder)
    with own_style(), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = attempt_figure(history, history.last)
        figure.draw_without_rendering()
    return figure


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_gid() or line.get_label(): line for line in axes.get_lines()}


def marked(axes: Any) -> list[float]:
    """Where kills and the end are drawn."""
    return sorted(line.get_xdata()[0] for line in axes.get_lines() if line.get_gid() == "mark")


def test_a_death_in_the_loop(tmp_path: Path, golden: Golden) -> None:
    figure = figure_of(make_killed(tmp_path / "killed"))
    _, _, setup, loop = figure.axes
    assert [label.get_text() for label in setup.get_xticklabels()] == ["start", "build"]
    u = lines(loop)["unreclaimable"]
    assert max(u.get_ydata()) == 900
    for axes in (setup, loop):
        x = list(lines(axes)["unreclaimable"].get_xdata())
        assert x == sorted(x)
    assert (marked(setup), marked(loop)) == ([], pytest.approx([36.0, 36.2]))
    assert set(lines(loop)["limit"].get_ydata()) == {900}
    named = [text.get_text() for text in loop.get_legend().get_texts()]
    golden.text("\n".join([figure.get_suptitle(), loop.get_xlabel(), *named]))


def test_a_death_in_the_setup_is_drawn_within_its_stage(tmp_path: Path) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    made.stage("start", 0.5, 2.6, 50, 100)
    made.stage("load", 2.6, 2.7, 100, 110)
    made.record("begin", "first_step", 2.7, 110)
    write_ring(tmp_path, [sample_of(0.2 * i, 30 + 10 * i) for i in range(25)])
    write_outcome(tmp_path, 5.0)
    _, setup = figure_of(tmp_path).axes
    assert [label.get_text() for label in setup.get_xticklabels()] == ["start", "load", "first_step"]
    x = list(lines(setup)["unreclaimable"].get_xdata())
    assert x == sorted(x)
    assert x[0] == 0
    assert 2.9 < x[-1] < 3, "the last sample is 0.2 s older than its death"
    assert marked(setup) == [3]


def test_a_long_title_is_not_cut_off(tmp_path: Path, golden: Golden) -> None:
    folder = tmp_path / "128d-modern-lr0.003-wd0.1-seed0-0123abcd"
    folder.mkdir()
    made = MadeStages(folder / "memory.jsonl", attempt=12)
    made.stage("start", 0.0, 1.0, 20, 100, limit=64_000 * MB)
    write_outcome(folder, 1.0, attempt=12)
    figure = figure_of(folder)
    (title,) = (text for text in figure.texts if text.get_text() == figure.get_suptitle())
    golden.text(figure.get_suptitle())
    assert title.get_window_extent().x1 <= figure.bbox.x1


def test_a_foreign_command_is_drawn_over_time(tmp_path: Path) -> None:
    write_ring(tmp_path, [sample_of(60.0 * i, 100) for i in range(300)])
    _, axes = figure_of(tmp_path).axes
    assert "hours" in axes.get_xlabel()
    assert list(lines(axes)["unreclaimable"].get_xdata())[-1] == pytest.approx(299 / 60)


def test_rss_of_many_workers_does_not_flatten_the_rest(tmp_path: Path) -> None:
    samples = [sample_of(i, 300, (100,)) for i in range(5)]
    many = [
        type(one)(**{name: getattr(one, name) for name in one.__slots__} | {"tree_rss_bytes": 9000 * MB})
        for one in samples
    ]
    write_ring(tmp_path, many)
    _, axes = figure_of(tmp_path).axes
    assert axes.get_ylim()[1] * MB < 2 * 900 * MB


def test_the_same_run_makes_the_same_picture(tmp_path: Path) -> None:
    history = read_history(make_killed(tmp_path / "killed"))
    assert picture(history, history.last) == picture(history, history.last)


def test_processes_and_ranks_have_pictures_of_their_own(tmp_path: Path) -> None:
    history = read_history(make_killed(tmp_path / "killed"))
    with own_style():
        figure = process_figure(history.last.main, "x")
        assert rank_figure(history.last, "x") is None
    assert figure is not None
    found = lines(figure.axes[0])
    assert list(found) == ["python 100 (main)", "worker0 101", "worker1 102"]
    assert np.nanmax(found["worker0 101"].get_ydata()) == 608
    assert list(pictures(history, history.last)) == ["memory-processes.png"]


def test_ranks_share_their_axes(tmp_path: Path) -> None:
    for rank in range(4):
        name = "memory.jsonl" if rank == 0 else f"memory.rank{rank}.jsonl"
        MadeStages(tmp_path / name, rank=rank).stage("train", 0.0, 5.0, 100, 100 + 150 * rank)
    history = read_history(tmp_path)
    with own_style():
        figure = rank_figure(history.last, "x")
        assert process_figure(history.last.main, "x") is None
    assert figure is not None
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in shown] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert {axes.get_ylim() for axes in shown} == {shown[0].get_ylim()}
    assert list(pictures(history, history.last)) == ["memory-ranks.png"]
