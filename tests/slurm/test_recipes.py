"""The recipes of docs/clusters.md are configurations of `slurm=`, and their lines are shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from slurm.cluster.job_step import PYTHON, SRUN, default_lines
from slurm.cluster.resources import setup_lines
from slurm.launch.compose_one import compose

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clusters.md"
_SECTION = re.compile(r"^## Recipes$(.*?)^## ", re.MULTILINE | re.DOTALL)
RECIPES = re.findall(r"```yaml\n(.*?)```", _SECTION.findall(PAGE.read_text())[0], re.DOTALL)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_composes_and_its_script_is_shell(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "mine.yaml").write_text(recipe)
    wanted = compose(["--config-dir", str(tmp_path), "slurm=mine", "model=32d"]).slurm
    assert wanted.python is not None
    assert len(recipe.splitlines()) <= 10
    script = "\n".join([*default_lines(), *setup_lines(wanted), f"{SRUN} {PYTHON} -m x"])
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_there_are_recipes_for_environments_and_containers() -> None:
    words = " ".join(RECIPES)
    assert all(word in words for word in ("venv", "conda", "module load", "apptainer", "--container-image"))
