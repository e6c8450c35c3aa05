"""The command `highwater`, the package that users import, and what an install makes of them."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

import highwater
from highwater.__main__ import COMMANDS, ROOMS, main
from tests.golden_text import Golden

TINY = ["model=32d", "dataset=dummy", "tokenizer=bytes", "training.max_steps=2", "training.eval_tokens=512"]


@pytest.mark.parametrize("room", ROOMS)
def test_each_package_has_its_commands(room: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([room, "--help"])
    assert left.value.code == 0
    assert f"python -m {room}" in capsys.readouterr().out


def test_every_package_with_commands_is_there(root: Path) -> None:
    with_commands = {path.parent.name for path in root.glob("*/__main__.py")}
    assert with_commands == {*ROOMS, "highwater"}


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("run", "sweep", "plan")])
def test_each_command_is_one_of_its_package(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0


def test_run_and_sweep_explain_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "sweep", "plan"):
        assert main([command, "--help"]) == 0
        assert "optimizer" in capsys.readouterr().out


def test_plan_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *TINY, f"runs_dir={tmp_path}"]) == 0
    assert "needs" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_exit_codes_are_those_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "explain", "no-such-run"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_help_names_all_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    page = capsys.readouterr().out
    assert all(f"  {name} " in page for name in [*ROOMS, *COMMANDS])
    assert max(map(len, page.splitlines())) <= 80
    assert ["memory", "run"] in [line.split()[1:3] for line in page.splitlines()]


def test_no_such_command(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert main(["memroy"]) == 2
    golden.text(capsys.readouterr().err)


def test_nothing_is_loaded_before_it_is_asked_for(root: Path) -> None:
    code = "import sys, highwater.__main__ as h; h.main(['--help']); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=240)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {*ROOMS, "conf", "torch", "argparse"}


def test_names_of_the_package_are_those_of_its_parts() -> None:
    from data_loading import StreamingDataset
    from memory import stage

    assert highwater.StreamingDataset is StreamingDataset
    assert highwater.stage is stage
    assert all(getattr(highwater, name) is not None for name in highwater.__all__)


def test_a_plan_from_python_is_that_of_the_command(tmp_path: Path) -> None:
    plans = highwater.plan([*TINY, "seed=0,1", f"runs_dir={tmp_path}"])
    assert [plan.config.seed for plan in plans] == [0, 1]
    assert len({plan.identity for plan in plans}) == 2


def test_mistakes_from_python_are_exceptions() -> None:
    with pytest.raises(highwater.UserError) as refused:
        highwater.run(["modle=32d"])
    assert [problem.where for problem in refused.value.problems] == ["modle"]
    with pytest.raises(highwater.UserError):
        highwater.sweep(["hydra/launcher=slurm"])


@pytest.mark.slow
def test_a_run_from_python_is_a_run(tmp_path: Path) -> None:
    outcome = highwater.run([*TINY, f"runs_dir={tmp_path}"])
    assert (outcome.state, outcome.exit_code) == ("done", 0)
    assert outcome.val_loss is not None
    both = highwater.sweep([*TINY, "seed=0,1", f"runs_dir={tmp_path}"])
    assert [one.state for one in both] == ["done", "done"]
    assert both[0].val_loss == outcome.val_loss


def build_step(root: Path) -> ModuleType:
    """setup.py, without setting anything up."""
    tree = ast.parse((root / "setup.py").read_text())
    tree.body = [node for node in tree.body if not isinstance(node, ast.Expr) or node is tree.body[0]]
    module = ModuleType("build_step")
    exec(compile(tree, "setup.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from conf import Config\n", "from highwater.conf import Config\n"),
        ("if 1:\n  from conf.keys import (\n  A)\n", "if 1:\n  from highwater.conf.keys import (\n  A)\n"),
        ("import conf.keys as keys\n", "import highwater.conf.keys as keys\n"),
        ("import os, sys\nfrom confection import x\n", None),
        ("from . import conf\nx = 'from conf import y'\n", None),
    ],
)  # fmt: skip
def test_build_prefixes_imports_of_our_modules_alone(root: Path, before: str, after: str | None) -> None:
    assert build_step(root).with_prefix(before, {"conf", "core"}, "x.py") == (after or before)


def test_build_refuses_an_import_that_binds_a_name(root: Path) -> None:
    with pytest.raises(SyntaxError, match=r"x.py:1"):
        build_step(root).with_prefix("import conf.keys\n", {"conf"}, "x.py")


class Environment:
    """A virtual environment that sees the packages of this one, but not this checkout."""

    def __init__(self, place: Path) -> None:
        self.bin, self.elsewhere = place / "venv" / "bin", place / "elsewhere"
        self.elsewhere.mkdir()
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", self.bin.parent], check=True, timeout=240
        )
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        printed = subprocess.run(
            [self.bin / "python", "-c", code], check=True, capture_output=True, text=True
        )
        self.packages = Path(printed.stdout.strip())
        (self.packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def install(self, *words: str, cwd: Path) -> None:
        pip = [self.bin / "python", "-m", "pip", "install", "--no-index", "--ignore-installed", *words]
        subprocess.run(pip, cwd=cwd, check=True, timeout=240)

    def typed(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of its bin folder, in a folder elsewhere."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(self.bin / words[0]), *words[1:]]
        return subprocess.run(
            command, cwd=self.elsewhere, env=variables, capture_output=True, text=True, timeout=240
        )


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed: make install")
    return Environment(tmp_path)


@pytest.mark.slow
def test_after_an_editable_install_it_works_from_any_folder(root: Path, environment: Environment) -> None:
    """As `make` does it, without a network."""
    line = next(line for line in (root / "Makefile").read_text().splitlines() if line.endswith(" -e ."))
    environment.install(*line.split("$(PIP_INSTALL) ")[1].split(), cwd=root)
    assert environment.typed("highwater", "memory").returncode == 0
    assert environment.typed("python", "-m", "memory").returncode == 0
    program = "from memory import black_box; print(black_box.__file__)"
    expected = f"{root / 'memory' / 'record' / 'black_box.py'}\n"
    assert environment.typed("python", "-c", program).stdout == expected
    python = str(environment.bin / "python")
    done = environment.typed("highwater", "memory", "run", "--output", "mem", "--", python, "-c", program)
    assert done.stdout == expected, "in a program that it runs, too"
    assert (environment.elsewhere / "mem" / "outcome.json").exists()
    entry = environment.typed("python", str(root / "experiments.py"), *TINY, "plan=true")
    assert entry.returncode == 0, entry.stderr


OWN_NAMES = ("conf", "models", "slurm", "training", "analysis")


@pytest.mark.slow
def test_a_wheel_works_beside_a_project_with_our_names(
    root: Path, environment: Environment, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", ":!tests", ":!benchmarks"],
        cwd=root, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((root / name).read_bytes())
    environment.install("--no-deps", "--no-build-isolation", ".", cwd=source)
    ours = {path.name for path in environment.packages.iterdir() if not path.name.endswith((".pth", "-info"))}
    assert ours - {"__pycache__"} == {"highwater", "hydra_plugins"}

    project = environment.elsewhere
    for name in ("core.py", "memory.py", "experiments.py"):
        (project / name).write_text("raise SystemExit('a module of the project')\n")
    for name in OWN_NAMES:
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("raise SystemExit('a package of the project')\n")
    run = environment.typed("highwater", "run", *TINY)
    assert run.returncode == 0, run.stderr
    sweep = environment.typed("highwater", "sweep", *TINY, "seed=0,1", "study.name=both")
    assert sweep.returncode == 0, sweep.stderr
    assert "python experiments.py" not in run.stdout + sweep.stdout
    status = environment.typed("highwater", "slurm", "status", "both", "--json")
    assert status.stdout.count('"done"') >= 2, status.stderr
    assert environment.typed("highwater", "report", "both").returncode == 0
    (project / "text.txt").write_text("one line\n" * 200)
    tokenized = environment.typed("highwater", "tokenize", "text.txt", "--tokenizer", "bytes")
    assert (tokenized.returncode, (project / "text.npy").exists()) == (0, True), tokenized.stderr
    program = (
        "from highwater import StreamingDataset, stage\nwith stage('x'): print(StreamingDataset.__module__)"
    )
    python = str(environment.bin / "python")
    done = environment.typed(
        "highwater", "memory", "run", "--output", "mem", "--", python, "-P", "-c", program
    )
    assert done.stdout == "highwater.data_loading.dataset.streaming_dataset\n", done.stderr
    from_python = environment.typed(
        "python", "-P", "-c", f"import highwater; print(highwater.run({TINY!r}).state)"
    )
    assert from_python.stdout == "done\n", from_python.stderr
