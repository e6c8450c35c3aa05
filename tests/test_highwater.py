"""`highwater`, and what an editable install makes of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import highwater
from tests.golden_text import Golden


@pytest.mark.parametrize("room", highwater.ROOMS)
def test_each_room_has_its_face(room: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        highwater.main([room, "--help"])
    assert left.value.code == 0
    assert f"python -m {room}" in capsys.readouterr().out


def test_every_room_with_a_face_is_there(root: Path) -> None:
    assert {path.parent.name for path in root.glob("*/__main__.py")} == set(highwater.ROOMS)


def test_exit_codes_are_those_of_the_room(capsys: pytest.CaptureFixture[str]) -> None:
    assert highwater.main(["memory", "explain", "no-such-run"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_help_names_the_rooms(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert highwater.main(words) == 0
    told = capsys.readouterr().out
    assert all(f"  {room} " in told for room in highwater.ROOMS)
    assert ["memory", "run"] in [line.split()[1:3] for line in told.splitlines()]


def test_no_such_room(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert highwater.main(["memroy"]) == 2
    golden.text(capsys.readouterr().err)


def test_no_room_is_loaded_before_it_is_asked_for(root: Path) -> None:
    code = "import sys, highwater; highwater.main(['--help']); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=240)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {*highwater.ROOMS, "conf", "torch", "argparse"}


@pytest.mark.slow
def test_after_an_editable_install_it_works_from_any_folder(root: Path, tmp_path: Path) -> None:
    """As `make` does it, without a network, in an environment of its own that sees this one's packages."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed: make install")
    place, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=240)
    python = place / "bin" / "python"
    told = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip())
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    line = next(line for line in (root / "Makefile").read_text().splitlines() if line.endswith(" -e ."))
    install = line.split("$(PIP_INSTALL) ")[1].split()
    subprocess.run(
        [python, "-m", "pip", "install", "--no-index", "--ignore-installed", *install],
        cwd=root, check=True, timeout=240,
    )  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=240
        )

    assert typed(str(place / "bin" / "highwater"), "memory").returncode == 0
    assert typed(str(python), "-m", "memory").returncode == 0
    program = "from memory import black_box; print(black_box.__file__)"
    assert typed(str(python), "-c", program).stdout == f"{root / 'memory' / 'record' / 'black_box.py'}\n"
    done = typed(
        str(place / "bin" / "highwater"), "memory", "run", "--output", "mem", "--", str(python), "-c", program
    )
    assert done.stdout == f"{root / 'memory' / 'record' / 'black_box.py'}\n", "in a program that it runs, too"
    assert (elsewhere / "mem" / "outcome.json").exists()
    entry = typed(
        str(python),
        str(root / "experiments.py"),
        "model=32d",
        "dataset=dummy",
        "tokenizer=bytes",
        "plan=true",
    )
    assert entry.returncode == 0, entry.stderr
