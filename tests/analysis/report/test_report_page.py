"""`python -m analysis report`: what the page and its summary tell, and that nothing in a run can harm it."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_pages import HOSTILE
from made_sweeps import RATES, best_rate, diverged, killed_for_memory, make_one, make_sweep, say

from analysis.__main__ import main
from analysis.report.summary_text import QUESTIONS
from tests.golden_text import Golden

Captured = pytest.CaptureFixture[str]


def summary_of(capsys: Captured, *arguments: str) -> dict[str, Any]:
    """Of --json, and that it went well."""
    capsys.readouterr()
    assert main(["report", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def about(told: dict[str, Any], key: str) -> str:
    """Lines of one question of the summary."""
    return "\n".join(
        line for one in told["summary"] if one["about"] == QUESTIONS[key] for line in one["lines"]
    )


def cells(page: str) -> list[list[str]]:
    """Of the table of runs."""
    body = re.search(r'class="filter".*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    assert body is not None
    rows = re.findall(r"<tr>(.*?)</tr>", body[1], re.DOTALL)
    return [
        [html.unescape(re.sub("<[^>]*>", "", one)) for one in re.findall(r"<td.*?</td>", row)] for row in rows
    ]


@pytest.fixture(autouse=True)
def _empty_folder() -> None:
    """Commands on pages are as they are typed in the checkout."""


def test_every_run_is_a_row_and_the_file_lies_beside_them(
    tmp_path: Path, capsys: Captured, golden: Golden
) -> None:
    folders = make_sweep(tmp_path / "sweep", seeds=2)
    killed_for_memory(folders[3])
    assert main(["report", str(tmp_path / "sweep")]) == 0
    page = (tmp_path / "sweep" / "report.html").read_text()
    assert sorted(row[0].removesuffix(" ★") for row in cells(page)) == sorted(one.name for one in folders)
    told = capsys.readouterr().out
    golden.text(told, numbers=False)


def test_what_died_is_told_with_its_reason(tmp_path: Path, capsys: Captured, golden: Golden) -> None:
    folders = make_sweep(tmp_path / "sweep")
    killed_for_memory(folders[1])
    diverged(folders[6])
    told = summary_of(capsys, str(tmp_path / "sweep"))
    golden.text(about(told, "failures"), numbers=False)
    page = Path(told["report"]).read_text()
    assert f"python -m memory explain {folders[1]}" in page


def test_the_best_rate_of_each_size_is_the_one_that_was_put_there(tmp_path: Path, capsys: Captured) -> None:
    make_sweep(tmp_path / "sweep", widths=(32, 48, 64, 96), seeds=2, noise=0.002)
    told = about(summary_of(capsys, str(tmp_path / "sweep")), "rates")
    for width in (32, 48, 64, 96):
        best, low, high = map(float, re.search(rf"{width}d: (\S+) \((\S+) to (\S+)\)", told).groups())  # type: ignore[union-attr]
        assert low <= best_rate(width) <= high
        assert best == pytest.approx(best_rate(width), rel=0.1)
    exponent = re.search(r"width\^(\S+)", told)
    assert exponent is not None
    assert float(exponent[1]) == pytest.approx(-0.9, abs=0.1)


def test_the_loss_that_a_killed_run_had_so_far_bends_no_curve(tmp_path: Path, capsys: Captured) -> None:
    folders = make_sweep(tmp_path / "sweep", widths=(32,))
    killed_for_memory(folders[4])  # at the very rate that is the best
    told = json.dumps({"version": 1, "step": 5, "tokens": 20480, "source": "val", "loss": 5.0})
    (folders[4] / "evals.jsonl").write_text(told + "\n")
    lines = about(summary_of(capsys, str(tmp_path / "sweep")), "rates")
    found = re.search(r"32d: (\S+) \(.* 6 ", lines)
    assert found is not None
    assert float(found[1]) == pytest.approx(best_rate(32), rel=0.1)


def test_a_best_rate_at_the_edge_is_told_with_the_command_that_goes_beyond(
    tmp_path: Path, capsys: Captured, golden: Golden
) -> None:
    make_sweep(tmp_path / "sweep", widths=(32,), rates=(0.00125, 0.0025, 0.005))
    told = summary_of(capsys, str(tmp_path / "sweep"))
    golden.text(about(told, "rates"), numbers=False)
    assert any("optimizer.lr=0.01,0.02" in one["command"] for one in told["next"])


def test_other_rates_than_the_best_are_no_points_of_the_law(tmp_path: Path, capsys: Captured) -> None:
    make_sweep(tmp_path / "sweep", widths=(32, 48, 64, 96, 128))
    told = about(summary_of(capsys, str(tmp_path / "sweep")), "scaling")
    assert " 5 " in told
    exponent = re.search(r"x\^-(\S+)", told)
    assert exponent is not None
    assert float(exponent[1]) == pytest.approx(0.14, abs=0.03)


def test_losses_of_different_data_have_no_best_run(tmp_path: Path, capsys: Captured, golden: Golden) -> None:
    folders = make_sweep(tmp_path / "sweep", widths=(32,))
    run = json.loads((folders[0] / "run.json").read_text())
    run["data"]["fingerprint"] = "00" * 32
    (folders[0] / "run.json").write_text(json.dumps(run))
    told = summary_of(capsys, str(tmp_path / "sweep"))
    assert told["best"] is None
    golden.text(about(told, "best"), numbers=False)
    assert about(told, "rates") == ""


def test_best_run_of_different_budgets_is_named_with_them_and_not_starred(
    tmp_path: Path, capsys: Captured, golden: Golden
) -> None:
    study = tmp_path / "sweep"
    make_one(study, 32, 0.01, 0)
    make_one(study, 64, 0.01, 0)
    golden.text(about(summary_of(capsys, str(study)), "best"))
    assert "★" in (study / "report.html").read_text()
    make_one(study, 96, 0.01, 0, steps=400)
    golden.text(about(summary_of(capsys, str(study)), "best"))
    assert "★" not in (study / "report.html").read_text()


def test_a_run_that_is_there_twice_is_told_and_counts_once(
    tmp_path: Path, capsys: Captured, golden: Golden
) -> None:
    folders = make_sweep(tmp_path / "sweep", widths=(32,))
    shutil.copytree(folders[2], tmp_path / "sweep" / "copy")
    told = summary_of(capsys, str(tmp_path / "sweep"))
    golden.text(about(told, "trust"), numbers=False)


def test_words_of_a_hostile_run_are_words(tmp_path: Path) -> None:
    study = tmp_path / "a<b>&'\"c"
    folder = make_one(study, 32, 0.01, 0)
    say(folder, notes=HOSTILE, tags=[HOSTILE, "b"], dataset={"name": HOSTILE})
    folder.rename(study / "<img src=x onerror=alert(3)>")
    make_one(study, 32, 0.02, 0)
    assert main(["report", str(study), "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    scripts = re.findall(r"<script([^>]*)>", page)
    assert scripts.count("") == 1
    assert set(scripts) == {"", ' type="application/json"'}
    assert "<img" not in page
    assert "alert(1)" not in re.sub(r"&lt;script&gt;alert\(1\)|u003ealert\(1\)", "", page)
    assert any(HOSTILE in row for row in cells(page))
    for block in re.findall(r"<script[^>]*json.>(.*?)</script>", page, re.DOTALL):
        json.loads(block)


def test_the_page_asks_for_nothing(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", widths=(32, 64))
    assert main(["report", str(tmp_path / "sweep")]) == 0
    page = (tmp_path / "sweep" / "report.html").read_text()
    assert set(re.findall(r"https?://[^\s\"'<>)]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'; script-src 'sha256-" in page
    assert "connect-src" not in page


def test_the_same_study_makes_the_same_bytes(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", widths=(32,), seeds=2)
    for name in "ab":
        assert main(["report", str(tmp_path / "sweep"), "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_where_it_came_from_and_what_differs(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", widths=(32, 64), rates=(0.01,), seeds=2)
    main(["report", str(tmp_path / "sweep")])
    page = (tmp_path / "sweep" / "report.html").read_text()
    for fact in (
        "c0ffee" * 6 + "abcd",
        "72" * 32,
        "Datasets/stdlib.npy",
        "python experiments.py model=64d",
        "32 (2), 64 (2)",
    ):
        assert fact in page


def test_what_is_half_written_is_listed_and_the_rest_is_told(
    tmp_path: Path, capsys: Captured, golden: Golden
) -> None:
    folders = make_sweep(tmp_path / "sweep", widths=(32,))
    with open(folders[0] / "metrics.csv", "a") as file:
        file.write("41,1679")
    (folders[1] / "run.json").write_text("{")
    (folders[2] / "metrics.csv").unlink()
    (folders[3] / "metrics.csv").write_text("")
    lost = tmp_path / "sweep" / "lost"
    lost.mkdir()
    (lost / "metrics.csv").touch()
    told = summary_of(capsys, str(tmp_path / "sweep"))
    notes = "\n".join(told["notes"])
    assert all(name in notes for name in (str(lost), folders[0].name, folders[1].name))
    golden.text(notes, numbers=False)
    assert len(cells(Path(told["report"]).read_text())) == 7


def test_csvs_of_other_programs(tmp_path: Path, capsys: Captured) -> None:
    for width in (32, 48, 64, 96, 128):
        rows = [f"{i * 1e9:g},{2 + 30 * (i * width * 1e9) ** -0.2}" for i in range(1, 20)]
        (tmp_path / f"{width}d.csv").write_text("\n".join(["flops,loss", *rows]) + "\n")
    out = str(tmp_path / "r.html")
    told = summary_of(capsys, str(tmp_path), "--pattern", "{model}.csv", "--x", "flops", "-o", out)
    assert told["best"] == "128d"
    assert 'class="curves"' in Path(out).read_text()
    summary_of(capsys, str(tmp_path), "--pattern", "{model}.csv", "-o", out)
    assert 'class="curves"' not in Path(out).read_text()
    assert "--y COLUMN" in Path(out).read_text()


def test_an_e_that_the_data_do_not_hold_is_no_number(
    tmp_path: Path, capsys: Captured, golden: Golden
) -> None:
    for place in range(6):
        flops = 1e15 * 1.3**place
        off = 0.02 * (-1) ** place
        (tmp_path / f"m{place}.csv").write_text(
            f"flops,loss\n{flops / 2:g},9\n{flops:g},{2.5 + 300 * flops**-0.15 + off}\n"
        )
    told = summary_of(capsys, str(tmp_path), "--x", "flops", "-o", str(tmp_path / "r.html"))
    lines = about(told, "scaling")
    assert "loss = E + " in lines
    golden.text(lines, numbers=False)


def test_what_seeds_alone_may_do_to_two_runs(tmp_path: Path, capsys: Captured) -> None:
    """Student's t of the difference of two runs: twice the deviation of one is passed by luck too often."""
    from scipy import stats

    make_sweep(tmp_path / "s", widths=(32,), rates=RATES[3:6], seeds=2, noise=0.001)
    line = about(summary_of(capsys, str(tmp_path / "s")), "trust")
    deviation, difference = [float(number) for number in re.findall(r"\d\.\d+(?:e-\d+)?", line)][:2]
    assert difference == pytest.approx(stats.t.ppf(0.975, 3) * 2**0.5 * deviation, rel=0.01)


def test_report_and_best_lr_give_the_same_interval(tmp_path: Path, capsys: Captured) -> None:
    make_sweep(tmp_path / "s", widths=(32, 64), seeds=2, noise=0.01)
    lines = about(summary_of(capsys, str(tmp_path / "s")), "rates").splitlines()
    assert main(["best-lr", str(tmp_path / "s"), "--json"]) == 0
    for one in json.loads(capsys.readouterr().out):
        interval = f"{one['best_lr']:.4g} ({one['low']:.4g} to {one['high']:.4g})"
        assert any(line.startswith(f"{one['model']}: {interval}") for line in lines)


def test_what_half_diverged_is_told_as_best_lr_tells_it(
    shared_data: Path, tmp_path: Path, capsys: Captured
) -> None:
    given = [str(shared_data / "lr_sweep"), "--pattern", "{model}_lr_{log10_lr}.csv"]
    out = str(tmp_path / "r.html")
    lines = about(summary_of(capsys, *given, "-o", out), "rates").splitlines()
    assert main(["best-lr", *given]) == 0
    rows = capsys.readouterr().out.splitlines()
    for told in (lines, rows):
        assert [line.partition(" ")[0].strip(":") for line in told if "diverged: 0.0562 (half)" in line] == [
            "64d"
        ]
    assert Path(out).read_text().count(">0.0562 (half)</td>") == 1


def test_memory_by_size_is_what_the_memory_command_tells(tmp_path: Path, capsys: Captured) -> None:
    folders = make_sweep(tmp_path / "sweep", seeds=2)
    killed_for_memory(folders[3])
    assert main(["memory", str(tmp_path / "sweep"), "--json"]) == 0
    sizes = {one["model"]: one for one in json.loads(capsys.readouterr().out)["sizes"]}
    assert main(["report", str(tmp_path / "sweep")]) == 0
    page = (tmp_path / "sweep" / "report.html").read_text()
    table = page[page.rindex(">Memory<") : page.rindex(">Failures<")]
    rows = re.findall(r"<tr><td.*?</tr>", table)
    assert len(rows) == len(sizes) == 2
    for row in rows:
        values = re.findall(r'data-value="([^"]*)"', row)
        size = sizes[values[0]]
        assert [float(values[at]) for at in (1, 2, 3, 5, 7)] == [
            len(size["runs"]), size["peak_bytes"], size["estimate_bytes"], size["limit_bytes"],
            size["ask_bytes"],
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["empty", "missing", "output", "no loss"])
def test_mistakes_exit_2_with_one_message(
    tmp_path: Path, kind: str, capsys: Captured, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    make_one(tmp_path / "one", 32, 0.01, 0)
    (tmp_path / "csvs").mkdir()
    (tmp_path / "csvs" / "a.csv").write_text("x,y\n1,2\n")
    given = {
        "empty": [str(tmp_path / "empty")],
        "missing": [str(tmp_path / "no")],
        "output": [str(tmp_path / "one"), "-o", str(tmp_path / "no" / "r.html")],
        "no loss": [str(tmp_path / "csvs")],
    }[kind]
    assert main(["report", *given]) == 2
    golden.text(capsys.readouterr().err)


def test_what_wrote_it_is_told_as_it_was_typed(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "curves"
    folder.mkdir()
    for place in range(5):
        flops = 10.0 ** (12 + place)
        (folder / f"m{place}.csv").write_text(f"c,l\n{flops / 2:g},9\n{flops:g},{2 + 300 * flops**-0.2}\n")
    page = tmp_path / "page.html"
    given = f"{folder} --where 'model!=m9' --pattern '{{model}}.csv'"
    typed = shlex.split(f"report {given} --x c --y l")
    assert main([*typed, "-o", str(page)]) == 0
    text = html.unescape(page.read_text())
    assert f"python -m analysis {shlex.join(typed[:1])} {given} --x c --y l" in text
    assert f"python -m analysis fit {given} --x c --y l" in text
