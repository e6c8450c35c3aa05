"""Yaml files of the groups: which options there are, and which a run takes by default."""

from __future__ import annotations

import re
from pathlib import Path

from conf.suggestions import natural

CONF = Path(__file__).resolve().parent
"""Folder of the groups."""


def options_of(group: str, config_dir: Path | None = None) -> dict[str, Path]:
    """Option name to its file, in natural order."""
    folders = [folder / group for folder in (config_dir, CONF) if folder is not None]
    files = {file.stem: file for folder in folders for file in folder.glob("*.yaml")}
    return dict(sorted(files.items(), key=lambda item: natural(item[0])))


def default_options() -> dict[str, str]:
    """Group to the option that config.yaml chooses."""
    text = (CONF / "config.yaml").read_text(encoding="utf-8")
    return dict(re.findall(r"^  - (\w+): (\w+)$", text, re.MULTILINE))
