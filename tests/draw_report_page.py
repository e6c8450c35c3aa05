"""Draws docs/images/analysis-report.png: the page of a made-up sweep of 70 runs, on which everything is.

    python tests/draw_report_page.py [PNG]

Runs that died of memory, time and a full disk, one that diverged, seeds, and a law whose truth is known.
Needs Chromium. Of the table 8 rows are shown, and nothing behind the law.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from browser import Browser, find_browser  # noqa: E402 - they are found by the path above
from made_sweeps import diverged, killed_for_memory, make_sweep, outcome, say, write  # noqa: E402

from analysis.__main__ import main  # noqa: E402

PICTURE = HERE.parent / "docs" / "images" / "analysis-report.png"
WIDTHS = (32, 48, 64, 96, 128)
STEPS, NOISE = 400, 0.02
CUT = """
document.querySelectorAll("table")[0].querySelectorAll("tbody tr").forEach((row, at) => {
  if (at >= 8) row.style.display = "none";
});
let past = false;
for (const part of document.querySelectorAll("section")) {
  past = past || part.dataset.title === "Memory";
  if (past) part.style.display = "none";
}
"""


BOTTOM = (
    "Math.max(...[...document.querySelectorAll('h2, pre, svg')].map(e => e.getBoundingClientRect().bottom))"
)


def make(study: Path) -> None:
    """The runs."""
    luck = random.Random(1)
    folders = make_sweep(study, WIDTHS, seeds=2, steps=STEPS, noise=NOISE)
    for place, folder in enumerate(folders):
        _roughen(folder / "metrics.csv", luck)
        outcome(folder, peak_unreclaimable_bytes=luck.randint(270, 310) << 20)
        say(folder, tags=["baseline"] if place % 9 == 3 else [])
        config = json.loads((folder / "run.json").read_text())["config"]
        (folder / "config.yaml").write_text(yaml.safe_dump(config))  # commands are made of it
    for place in (13, 27):
        killed_for_memory(folders[place])
    for place in (10, 55):
        reason = "stopped by SIGUSR2 ahead of the time limit; checkpoint of step 266"
        _stop(folders[place], "timeout", reason)
    for place in (40, 57):
        _stop(folders[place], "failed", "cannot write the run folder: No space left on device")
    diverged(folders[-1])


def _roughen(path: Path, luck: random.Random) -> None:
    """Losses of single steps are not smooth."""
    header, *rows = path.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    for cell in cells:
        cell[2] = f"{float(cell[2]) + luck.gauss(0, 0.05):.6f}"
    path.write_text("\n".join([header, *(",".join(cell) for cell in cells)]) + "\n")


def _stop(folder: Path, state: str, reason: str) -> None:
    path = folder / "metrics.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:267]) + "\n")
    evals = (folder / "evals.jsonl").read_text().splitlines()
    (folder / "evals.jsonl").write_text("".join(f"{line}\n" for line in evals[:2]))
    status = json.loads((folder / "status.json").read_text())
    write(folder, "status.json", status | {"state": state, "step": 266, "reason": reason})


def draw(picture: Path) -> None:
    """Write it."""
    program = find_browser()
    if program is None:
        sys.exit("no Chromium here: apt-get install chromium, or set HIGHWATER_BROWSER to one")
    with tempfile.TemporaryDirectory() as made, contextlib.chdir(made):
        make(Path("runs/lr_sweep"))
        os.environ["HIGHWATER_RUNS_DIR"] = "runs"
        if main(["report", "runs/lr_sweep", "-o", "page.html"]):
            sys.exit("the report failed")
        page = Path("page.html").read_text()  # typed elsewhere, commands have the path of this checkout
        Path("page.html").write_text(page.replace(f"python {HERE.parent}/highwater", "highwater"))
        with Browser(program, Path("browser")) as browser:
            browser.open(Path("page.html"), width=1280)
            browser.eval(CUT)
            shot = browser.screenshot(Path("page.png"))
            bottom = browser.eval(BOTTOM)
            if browser.messages:
                sys.exit(f"the page said: {browser.messages}")
        _save(shot, bottom, picture)


def _save(shot: Path, bottom: float, picture: Path) -> None:
    """Without what is empty below, in colours as few as a page has."""
    from PIL import Image

    with Image.open(shot) as image:
        whole = image.crop((0, 0, image.width, min(image.height, round(bottom) + 24))).convert("RGB")
    whole.quantize(128).save(picture, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else PICTURE).resolve())
