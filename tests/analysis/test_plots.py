"""The pictures are whole PNG files with what they should show in them."""

from __future__ import annotations

import errno
import math
import os
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.figures import smoothed
from analysis.plots import draw_run, loss_chart, loss_figure, memory_figure
from experiment_utils.run_folder import RunFolder
from memory.report.colors import BLUE, GREEN, ON_PAGE, ORANGE, PURPLE, VERMILLION
from memory.report.drawing import DPI
from tests.golden_text import Golden

NEW_RUN = Callable[..., Any]
PIXELS_PER_METRE = round(DPI / 0.0254)


def pixels(path: Path) -> np.ndarray:
    """(height, width, 3) uint8."""
    from PIL import Image

    with Image.open(path) as image:
        image.verify()
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def share_of(picture: np.ndarray, color: str) -> float:
    wanted = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return float((np.abs(picture.astype(int) - wanted).max(axis=-1) <= 2).mean())


def texts(figure: Any) -> str:
    from matplotlib.text import Text

    found = (text.get_text() for text in figure.findobj(Text))
    return "\n".join(text for text in found if text)


def test_both_pictures_of_a_finished_run(done_run: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw_run(done_run.path)
    assert drawn == [done_run.path / "loss.png", done_run.path / "memory.png"]
    assert not list(done_run.path.glob(".*.tmp"))
    for path, height in zip(drawn, (562, 600), strict=True):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">II", content[16:24]) == (960, height)
        at = content.index(b"pHYs") + 4
        assert struct.unpack(">II", content[at : at + 8]) == (PIXELS_PER_METRE, PIXELS_PER_METRE)
    loss, memory = (pixels(path) for path in drawn)
    assert share_of(loss, BLUE) > 0.003
    assert share_of(loss, VERMILLION) > 0.0005
    assert 0.8 < share_of(loss, "#FFFFFF") < 0.99
    assert share_of(memory, BLUE) > 0.2
    assert share_of(memory, ON_PAGE["tint0"][0]) > 0.0005


def test_the_loss_chart_shows_what_the_run_measured(done_run: Any, golden: Golden) -> None:
    run = RunFolder(done_run.path)
    chart, figure = loss_chart(run), loss_figure(run)
    assert chart is not None
    assert figure is not None
    golden.text(texts(figure), numbers=False)
    series = {(one.name, one.kind): one for one in chart.series}
    val = series["val", "points"]
    assert (val.x, val.y) == (
        [record["tokens"] for record in run.evals],
        [record["loss"] for record in run.evals],
    )
    assert series["train, each step", "line"].y == run.column("train_loss")
    assert [limit.value for limit in chart.limits] == [2.4384]


def test_a_loss_that_is_lost_is_marked_where_it_was(diverged_run: Any) -> None:
    chart = loss_chart(RunFolder(diverged_run.path))
    assert chart is not None
    assert [(mark.at, mark.is_bad) for mark in chart.marks] == [(40 * 4096, True)]


def test_steps_that_a_rollback_undid_are_shaded(small_run: Any) -> None:
    rows = ['{"step": 9, "undone": [5, 9]}', '{"undone": [400, 410]}', '{"undone": "x"}', "{}", "torn"]
    (small_run.path / "rollbacks.jsonl").write_text("\n".join(rows))
    chart = loss_chart(RunFolder(small_run.path))
    assert chart is not None
    assert [(mark.at, mark.until) for mark in chart.marks] == [(5 * 4096, 9 * 4096)]
    assert loss_figure(RunFolder(small_run.path)) is not None


def test_a_loss_that_exploded_leaves_the_rest_to_be_seen(new_run: NEW_RUN) -> None:
    made = new_run()
    made.run()
    made.losses(50)
    with open(made.path / "metrics.csv", "a") as file:
        file.write("51,208896,1e9,,0.003,1.2,5.1e10,6.4,32768.0,0.21\n")
    figure = loss_figure(RunFolder(made.path))
    assert figure is not None
    assert 8 < figure.axes[0].get_ylim()[1] < 9
    assert figure.axes[0].get_ylim()[0] > 0


def test_the_legend_lies_on_no_line(diverged_run: Any) -> None:
    figure = loss_figure(RunFolder(diverged_run.path))
    assert figure is not None
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert legend.get_window_extent().y0 >= figure.axes[0].get_window_extent().y1


@pytest.mark.parametrize(
    ("steps", "curves"),
    [(1, ["train"]), (99, ["train"]), (150, ["train, each step", "train, mean of 3 steps"])],
)
def test_runs_of_any_length(new_run: NEW_RUN, steps: int, curves: list[str]) -> None:
    made = new_run()
    made.losses(steps, evals=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw_run(made.path) == [made.path / "loss.png"]
    chart = loss_chart(RunFolder(made.path))
    assert chart is not None
    assert [one.name for one in chart.series] == curves


def test_nothing_to_draw(new_run: NEW_RUN) -> None:
    made = new_run()
    made.losses(1, nan_at=1)
    (made.path / "memory.jsonl").write_text("")
    assert draw_run(made.path) == []
    assert not (made.path / "loss.png").exists()


def test_memory_by_setup_stage_and_over_time(done_run: Any, golden: Golden) -> None:
    figure = memory_figure(RunFolder(done_run.path))
    assert figure is not None
    _, _, setup, loop = figure.axes
    assert [label.get_text() for label in setup.get_xticklabels()] == [
        "start", "load_tokenizer", "open_dataset", "build_model", "build_optimizer", "restore", "first_batch",
        "first_step",
    ]  # fmt: skip
    top = next(line for line in setup.get_lines() if line.get_gid().startswith("U "))
    np.testing.assert_allclose(np.asarray(top.get_ydata())[[0, 1, 2, 3]], [66 + 3, 148 + 3, 148 + 3, 148 + 3])
    rss = next(line for line in loop.get_lines() if line.get_gid() == "rss")
    assert max(np.asarray(rss.get_ydata())) == pytest.approx(20 + 1.5 * (269.125 + 7.5))
    golden.text(texts(figure), numbers=False)
    assert "limit" not in [line.get_gid() for line in loop.get_lines()]


def test_a_limit_that_is_near_is_drawn(new_run: NEW_RUN) -> None:
    made = new_run()
    made.memory(limit_mb=700)
    figure = memory_figure(RunFolder(made.path))
    assert figure is not None
    for axes in figure.axes[2:]:
        (line,) = [line for line in axes.get_lines() if line.get_gid() == "limit"]
        assert set(line.get_ydata()) == {700.0}
        assert axes.get_ylim()[1] > 700
    draw_run(made.path)
    assert share_of(pixels(made.path / "memory.png"), VERMILLION) > 0.001


@pytest.mark.parametrize(
    "options",
    [
        {"killed_in": "start"}, {"killed_in": "train"}, {"cycles": 150}, {"error_in": "first_step"},
        {"attempt": 3, "gpu": True, "limit_mb": 500},
    ],
)  # fmt: skip
def test_memory_of_runs_that_ended_anywhere(new_run: NEW_RUN, options: dict[str, Any]) -> None:
    made = new_run("größe $x_$ 模型")
    made.memory(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw_run(made.path) == [made.path / "memory.png"]
    figure = memory_figure(RunFolder(made.path))
    assert figure is not None
    gids = {line.get_gid() for axes in figure.axes for line in axes.get_lines()}
    assert ("tensors" in gids) == ("gpu" in options)
    assert (", attempt 3" in texts(figure)) == ("attempt" in options)


def test_a_process_tree_without_cgroup_has_its_parts_too(done_run: Any) -> None:
    path = done_run.path / "memory.jsonl"
    path.write_text(path.read_text().replace('"job": {', '"no_job": {'))
    figure = memory_figure(RunFolder(done_run.path))
    assert figure is not None
    top = next(line for line in figure.axes[2].get_lines() if line.get_gid().startswith("U "))
    assert next(iter(top.get_ydata())) == 66


def test_a_picture_that_cannot_be_written_leaves_the_old_one(
    done_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    draw_run(done_run.path)
    before = {path.name: path.read_bytes() for path in done_run.path.glob("*.png")}

    def torn(self: Figure, file: Any, **options: Any) -> None:
        file.write(b"\x89PNG")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Figure, "savefig", torn)
    with pytest.raises(OSError, match="full"):
        draw_run(done_run.path)
    assert {path.name: path.read_bytes() for path in done_run.path.glob("*.png")} == before
    assert not list(done_run.path.glob(".*"))


@pytest.mark.slow
def test_pictures_do_not_depend_on_who_draws_them(done_run: Any, tmp_path: Path, root: Path) -> None:
    """Another matplotlibrc, no home to write to, no font cache, no display: the same bytes, not a word."""
    draw_run(done_run.path)
    here = {path.name: path.read_bytes() for path in done_run.path.glob("*.png")}
    settings = tmp_path / "matplotlibrc"
    settings.write_text(
        "figure.facecolor: black\nfont.size: 20\nbackend: TkAgg\ntext.usetex: True\nsavefig.dpi: 50\n"
    )
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("MPL", "DISPLAY", "XDG"))
    } | {"HOME": "/proc/nowhere", "MATPLOTLIBRC": str(settings), "TMPDIR": str(tmp_path)}
    program = "import sys, pathlib, analysis.plots; analysis.plots.draw_run(pathlib.Path(sys.argv[1]))"
    drawn = subprocess.run(
        [sys.executable, "-c", program, str(done_run.path)],
        cwd=root, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (drawn.stdout, drawn.stderr) == ("", "")
    assert {path.name: path.read_bytes() for path in done_run.path.glob("*.png")} == here


def test_colours_differ_in_grey() -> None:
    def lightness(color: str) -> float:
        red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for together in ((BLUE, PURPLE, GREEN, ORANGE), (BLUE, VERMILLION)):
        levels = sorted(lightness(color) for color in together)
        assert min(np.diff(levels)) > 0.07, together


@given(st.lists(st.floats(-1e3, 1e3) | st.just(math.nan), max_size=60), st.integers(1, 20))
def test_smoothing_is_the_mean_of_what_is_known_around(values: list[float], window: int) -> None:
    result = smoothed(values, window)
    assert result.shape == (len(values),)
    for i in range(len(values)):
        around = values[max(0, i - (window - 1) // 2) : i + window // 2 + 1]
        known = [value for value in around if math.isfinite(value)]
        if known:
            assert result[i] == pytest.approx(sum(known) / len(known), abs=1e-6)
        else:
            assert math.isnan(result[i])
