"""Pictures show the specification of a chart: parts, limit, stages and events in their places."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from made_runs import MB, MadeStages, make_killed, sample_of, write_outcome, write_ring

from memory.report.chart import DASHES, PATTERNS, Chart, Series
from memory.report.data.history import read_history
from memory.report.drawing import charts_figure, own_style
from memory.report.run_charts import by_process, by_rank, over_time
from memory.report.run_report import attempt_figure, pictures
from tests.golden_text import Golden


def figure_of(folder: Path) -> Any:
    history = read_history(folder)
    with own_style(), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = attempt_figure(history, history.last)
        figure.draw_without_rendering()
    return figure


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_gid(): line for line in axes.get_lines()}


def marked(axes: Any) -> list[float]:
    return sorted(line.get_xdata()[0] for line in axes.get_lines() if line.get_gid() == "mark")


def test_death_in_the_loop(tmp_path: Path, golden: Golden) -> None:
    figure = figure_of(make_killed(tmp_path / "killed"))
    _, _, setup, loop = figure.axes
    assert [label.get_text() for label in setup.get_xticklabels()] == ["start", "build"]
    assert max(next(line for gid, line in lines(loop).items() if gid.startswith("U ")).get_ydata()) == 900
    assert list(setup.get_xlim()) == [0, 3]
    assert (marked(setup), marked(loop)) == ([], pytest.approx([36.0, 36.2]))
    assert set(lines(loop)["limit"].get_ydata()) == {900}
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    golden.text("\n".join([figure.get_suptitle(), loop.get_xlabel(), setup.get_ylabel(), *named]))


def test_setup_stages_have_one_width(tmp_path: Path) -> None:
    made = MadeStages(tmp_path / "memory.jsonl")
    made.stage("start", 0.5, 2.6, 50, 100)
    made.stage("load", 2.6, 2.7, 100, 110)
    made.record("begin", "first_step", 2.7, 110)
    write_ring(tmp_path, [sample_of(0.2 * i, 30 + 10 * i) for i in range(25)])
    write_outcome(tmp_path, 5.0)
    _, setup = figure_of(tmp_path).axes
    assert [label.get_text() for label in setup.get_xticklabels()] == ["start", "load", "first_step"]
    edges = [setup.transData.transform((x, 0))[0] for x in (0.5, 2.6, 2.7, 5.0)]
    assert edges[1] - edges[0] == pytest.approx(edges[2] - edges[1]) == pytest.approx(edges[3] - edges[2])
    assert marked(setup) == [5.0]


def test_long_title_is_wrapped(tmp_path: Path) -> None:
    folder = tmp_path / "128d-modern-lr0.003-wd0.1-seed0-0123abcd"
    folder.mkdir()
    made = MadeStages(folder / "memory.jsonl", attempt=12)
    made.stage("start", 0.0, 1.0, 20, 100, limit=64_000 * MB)
    write_outcome(folder, 1.0, attempt=12)
    figure = figure_of(folder)
    (title,) = (text for text in figure.texts if text.get_text() == figure.get_suptitle())
    assert title.get_window_extent().x1 <= figure.bbox.x1


def test_rss_of_many_workers_does_not_flatten_the_rest(tmp_path: Path) -> None:
    samples = [sample_of(i, 300, (100,)) for i in range(5)]
    many = [
        type(one)(**{name: getattr(one, name) for name in one.__slots__} | {"tree_rss_bytes": 9000 * MB})
        for one in samples
    ]
    write_ring(tmp_path, many)
    _, axes = figure_of(tmp_path).axes
    assert axes.get_ylim()[1] * MB < 2 * 900 * MB


def test_processes_and_ranks_have_pictures(tmp_path: Path) -> None:
    for rank in range(4):
        name = "memory.jsonl" if rank == 0 else f"memory.rank{rank}.jsonl"
        MadeStages(tmp_path / name, rank=rank).stage("train", 0.0, 5.0, 100, 100 + 150 * rank)
    ranks, killed = read_history(tmp_path), read_history(make_killed(tmp_path / "killed"))
    assert list(pictures(killed, killed.last)) == ["memory.png", "memory-processes.png"]
    assert list(pictures(ranks, ranks.last)) == ["memory.png", "memory-ranks.png"]
    assert by_process(ranks.last.main) is None
    assert by_rank(killed.last.tracks) == []
    charts = by_rank(ranks.last.tracks)
    assert [name for name, _ in charts] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert {(chart.y_axis.end, chart.x_axis.end) for _, chart in charts} == {(562 * MB, 5.0)}
    assert pictures(killed, killed.last) == pictures(killed, killed.last), "the same bytes"


def test_legend_fits_into_picture() -> None:
    names = [f"python 1991{n} (main), in sum" for n in range(9)]
    chart = Chart("by process", [0, 1], [Series(name, [1, 2]) for name in names])
    figure = charts_figure([("", chart)], "")
    figure.canvas.draw()
    (legend,) = figure.legends
    extent = legend.get_window_extent()
    assert len(legend.get_texts()) == len(names)
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.width


def test_series_differ_in_grey(tmp_path: Path) -> None:
    track = read_history(make_killed(tmp_path / "killed")).last.main
    areas = [one.pattern for one in over_time(track).series if one.kind == "stack"]
    processes = by_process(track)
    assert processes is not None
    dashes = [one.dash for one in processes.series]
    assert len(set(areas)) == len(areas) == 5
    assert {*areas} <= {*PATTERNS}
    assert len(set(dashes)) == len(dashes) == 3
    with own_style():
        axes = charts_figure([("", processes)], "x").axes[1]
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in axes.get_lines()}) == 3
    assert {*dashes} <= {*DASHES}


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"anon.* 3 .* 2 "):
        Chart("x", [0.0, 1.0], [Series("anon", [1, 2, 3])])


def test_unknown_numbers_are_gaps() -> None:
    found = Chart("x", [0.0, 1.0, 2.0], [Series("y", [float("nan"), float("inf"), 3])]).to_json()
    assert found["series"][0]["y"] == [None, None, 3]
