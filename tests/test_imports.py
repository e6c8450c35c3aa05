"""Imports run one way: entries, analysis, slurm, core, training, the rooms, conf, memory, base."""

from __future__ import annotations

import ast
import functools
import importlib
import tomllib
from pathlib import Path

import pytest

MAY_IMPORT = {
    "experiment_utils": set(),
    "memory": {"experiment_utils"},
    "conf": {"memory", "experiment_utils"},
    "data_loading": {"conf", "memory", "experiment_utils"},
    "models": {"conf", "memory", "experiment_utils"},
}
MAY_IMPORT["training"] = set(MAY_IMPORT)
MAY_IMPORT["core"] = {*MAY_IMPORT["training"], "training"}
MAY_IMPORT["slurm"] = {*MAY_IMPORT["core"], "core"}
MAY_IMPORT["analysis"] = {*MAY_IMPORT["core"], "core", "slurm"}
MAY_IMPORT["hydra_plugins"] = {"slurm"}
MAY_IMPORT["experiments"] = {*MAY_IMPORT["core"], "core", "slurm", "analysis"}
MAY_IMPORT["highwater"] = {*MAY_IMPORT["core"], "core", "slurm", "analysis", "experiments"}
MAY_IMPORT["pretokenize_dataset"] = {*MAY_IMPORT["core"], "core", "slurm", "analysis"}

LOADED_WHERE_NEEDED = {
    "torch", "transformers", "tokenizers", "fastokens", "tiktoken", "datasets", "matplotlib",
    "hydra", "submitit", "rich", "obstore", "scipy", "tensorboard", "wandb",
}  # fmt: skip
FILES_OF_TORCH = {
    "models",
    "training/optimizers",
    "training/own_parts/contracts.py",
    "training/own_parts/own_callback.py",
    "training/own_parts/own_metric.py",
    "training/own_parts/try_parts.py",
    "training/own_parts/own_model.py",
    "training/own_parts/own_optimizer.py",
    "training/own_parts/own_step.py",
    "training/own_parts/step_view.py",
    "training/step/weight_average.py",
    "training/run/init_from_checkpoint.py",
    "training/evaluation/dead_units.py",
    "training/checkpoint/train_state.py",
}
"""Where torch may be imported at the top: files that only a training process loads."""


def sources(root: Path) -> list[tuple[str, Path]]:
    found = [(room, root / f"{room}.py") for room in MAY_IMPORT if (root / f"{room}.py").exists()]
    for room in MAY_IMPORT:
        found += [(room, path) for path in sorted((root / room).rglob("*.py"))]
    return found


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "import by the full name"
            names.add(node.module.split(".")[0])
    return names


def test_every_room_is_looked_at(root: Path) -> None:
    assert {room for room, _ in sources(root)} == set(MAY_IMPORT)


def test_rooms_import_one_way(root: Path) -> None:
    wrong = [
        f"{path.relative_to(root)} imports {name}"
        for room, path in sources(root)
        for name in sorted(imported(parsed(path)) & set(MAY_IMPORT))
        if name != room and name not in MAY_IMPORT[room]
    ]
    assert wrong == []


def test_heavy_packages_are_imported_where_they_are_needed(root: Path) -> None:
    wrong = []
    for _, path in sources(root):
        place = path.relative_to(root).as_posix()
        if any(place == allowed or place.startswith(f"{allowed}/") for allowed in FILES_OF_TORCH):
            continue
        top = ast.Module(
            body=[node for node in parsed(path).body if isinstance(node, ast.Import | ast.ImportFrom)],
            type_ignores=[],
        )
        loaded_by = {"hydra"} if place.startswith("hydra_plugins/") else set()  # it is Hydra that imports it
        wrong += [
            f"{place} imports {name} at its top"
            for name in sorted((imported(top) & LOADED_WHERE_NEEDED) - loaded_by)
        ]
    assert wrong == []


@pytest.mark.parametrize("taken", ["experiments", "core"])
def test_no_folder_stands_beside_a_file_of_its_name(root: Path, taken: str) -> None:
    assert not (root / taken).is_dir()


@pytest.mark.parametrize(
    "room",
    ["analysis", "conf", "data_loading", "experiment_utils", "memory", "models", "slurm", "training"],
)
def test_every_name_of_a_rooms_face_is_there(room: str) -> None:
    face = importlib.import_module(room)
    for name in getattr(face, "__all__", ()):
        assert getattr(face, name) is not None


def test_every_package_is_installed(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    named = project["tool"]["setuptools"]["packages"]
    there = {path.parent.relative_to(root) for path in root.glob("*/**/__init__.py")}
    ours = {".".join(path.parts) for path in there if path.parts[0] not in ("tests", "benchmarks", ".venv")}
    assert sorted(named) == sorted([*ours, "hydra_plugins"]), "Hydra's is a namespace package"
