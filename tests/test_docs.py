"""The commands of README and docs work on a copy of this checkout, in the order of the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from preloaded_python import preloaded_python
from tiny_run import make_run, run_here, tiny_config

from conf import Config
from conf.composing.run_identity import HOW_IT_IS_COMPUTED, WHERE_IT_RUNS
from training.attempt.run_files import read_run, read_status
from training.report.metrics import COLUMNS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NOT_A_PAGE = ("docs/PAGE.md", "docs/a.md", "docs/interface.md")
"""Made up, or of another program."""
NOT_RUN = (
    "sudo ",
    "apt ",
    "make test",
    "make soak",
    "make check",
    "source .venv",
)
"""Lines that set a machine up or run this very suite."""
SMALL_STEPS = "effective_batch: 8\neval_tokens: 4000\n"
"""Defaults of the copy: a step has a fourth of the tokens, an evaluation a twenty-fifth."""
SMALL_BUDGET = "\ndefault_max_tokens: 20000\n"
"""Default of the copy for runs without a budget, a hundredth."""
BUDGETS = ("training.max_tokens=", "for budget in ")
"""What lines with budgets of tokens have; those of runs are an eighth here."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this checkout in a folder of their own, with this environment as its .venv."""
    copy = tmp_path_factory.mktemp("docs") / "highwater"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / "conf" / "training" / "default.yaml").write_text(SMALL_STEPS)
    with open(copy / "conf" / "dataset" / "stdlib.yaml", "a") as stdlib:
        stdlib.write(SMALL_BUDGET)
    (copy / ".venv").symlink_to(sys.prefix)
    return copy


@pytest.fixture(scope="module")
def environment(checkout: Path) -> Iterator[dict[str, str]]:
    with preloaded_python(checkout.with_name("preloaded"), checkout) as programs:
        path = f"{programs}:{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
        yield os.environ | {"PATH": path, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}


def shortened(line: str) -> str:
    if "plan=true" in line or not any(budget in line for budget in BUDGETS):
        return line
    return re.sub(r"\b(\d+)[Kk]\b", lambda thousands: f"{125 * int(thousands[1])}", line)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the README's runs, next to other tests on two cores
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_work(page: Path, checkout: Path, environment: dict[str, str]) -> None:
    for block in BLOCK.findall(page.read_text()):
        lines = [shortened(line) for line in block.splitlines() if not line.startswith(NOT_RUN)]
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
            cwd=checkout, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{page.name}:\n{block}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Files exist, and `#anchor` is a heading of the page (anchors as on GitHub, also in mkdocs.yml)."""
    text = FENCED.sub("", page.read_text())
    missing = []
    for target, anchor in LINK.findall(text):
        path = page.parent / target if target else page
        if "://" in target or target.startswith("mailto:"):
            continue
        if not path.exists() or (anchor and anchor not in anchors(path)):
            missing.append(f"{target}#{anchor}")
    outside = [target for target, _ in LINK.findall(text) if target.startswith("..")]
    assert missing + (outside if page.parent.name == "docs" else []) == []  # the site has docs/ alone


def anchors(page: Path) -> set[str]:
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(anchor if anchor not in found else f"{anchor}-1")
    return found


def test_pages_that_the_code_names_exist() -> None:
    """Messages and comments name pages as docs/PAGE.md, some with an anchor."""
    named = subprocess.run(
        ["git", "grep", "-ohP", r"(?<![\w/-])docs/[\w-]+\.md(#[\w-]+)?", "--", "*.py", "*.sh", "*.yaml"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    wrong = []
    for name in sorted(set(named)):
        path, _, anchor = name.partition("#")
        if path not in NOT_A_PAGE and (
            not (ROOT / path).exists() or (anchor and anchor not in anchors(ROOT / path))
        ):
            wrong.append(name)
    assert len(named) > 10
    assert wrong == []


def test_the_site_shows_every_page() -> None:
    listed = re.findall(r"^ *- .*: ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/style.md"])
def test_files_that_the_page_names_exist(page: str) -> None:
    named = re.findall(r"`((?:[\w.]+/)+[\w.]*)`", (ROOT / page).read_text())
    missing = [name for name in named if not re.search("[A-Z]{4}", name) and not (ROOT / name).exists()]
    assert named
    assert missing == []


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_runs_of_the_tours_have_a_study_each(page: str) -> None:
    """`fit`, `compare` and `report` of a study refuse runs of different data or budgets."""
    text = "\n".join(BLOCK.findall((ROOT / page).read_text())).replace("\\\n", " ")
    commands = [line for line in text.splitlines() if line.startswith("python experiments.py")]
    trained = [line for line in commands if "plan=true" not in line and "--help" not in line]
    studies = [re.findall(r"study\.name=(\w+)", line) for line in trained]
    assert len(trained) >= 2
    assert [len(names) for names in studies] == [1] * len(trained)
    by_study = {names[0]: set() for names in studies}
    for command, names in zip(trained, studies, strict=True):
        by_study[names[0]].add(command.partition("#")[0].strip())
    assert {len(commands) for commands in by_study.values()} == {1}  # the same command again


def test_the_run_folder_page_names_everything_a_run_writes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "run-folder.md").read_text()
    folder = make_run(tiny_config(tmp_path))
    assert run_here(folder, "--quiet").returncode == 0
    evaluation = json.loads((folder / "evals.jsonl").read_text().splitlines()[0])
    names = [
        *(path.name for path in folder.iterdir() if path.is_file()),
        *COLUMNS,
        *read_status(folder),
        *read_run(folder),
        *evaluation,
        *(path.name for path in (folder / "checkpoints" / "best").iterdir()),
    ]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_run_folder_page_names_what_is_not_in_the_identity() -> None:
    page = (ROOT / "docs" / "run-folder.md").read_text()
    schema_keys = {"plan", "study", "runs_dir", "tags", "notes", "memory", "logging"}
    assert schema_keys <= set(WHERE_IT_RUNS)
    for key in schema_keys:
        assert f"`{key}`" in page
    for key in HOW_IT_IS_COMPUTED:
        group, name = key.split(".")
        if hasattr(getattr(Config(), group), name):
            assert f"`{key}`" in page
