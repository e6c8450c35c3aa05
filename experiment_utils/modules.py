"""Names of our own modules: at the top level in a checkout, below `highwater` in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PREFIX = __name__.partition("experiment_utils")[0]
IS_INSTALLED = bool(_PREFIX)
"""Whether this is an installed wheel."""
ROOT = Path(__file__).resolve().parents[1]
"""Folder of the rooms and of core.py."""
IMPORT_ROOT = ROOT.parent if IS_INSTALLED else ROOT
"""Folder for PYTHONPATH, from which `module_name` is imported."""


def module_name(name: str) -> str:
    """Name under which this program imports one of its modules.

    Args:
        name: as in a checkout: `slurm.in_job`.

    Returns:
        The same, or `highwater.slurm.in_job`: for `python -m` and importlib.
    """
    return _PREFIX + name


def rooms_in(copy: Path) -> Path:
    """Folder of the rooms in a copy of the code, which has them in it or, of an installed wheel, below it."""
    return copy / "highwater" if (copy / "highwater" / "core.py").exists() else copy


COMMAND = ["-P", "-m", "highwater"] if IS_INSTALLED else [str(ROOT / "highwater")]
"""Words after `python` for the command `highwater`, whatever modules the current folder has."""


def entry_words(name: str) -> list[str]:
    """Words after `python` that run a module which is in no package: `core`, `pretokenize_dataset`."""
    return ["-P", "-m", module_name(name)] if IS_INSTALLED else [str(ROOT / f"{name}.py")]


def version() -> str:
    """Version of the checkout, or of the installed wheel."""
    import tomllib
    from importlib import metadata

    if IS_INSTALLED:
        return metadata.version("highwater")
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
