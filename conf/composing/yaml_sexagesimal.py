"""Texts that yaml 1.1 takes for numbers to the base of 60: `24:00:00` is 86400 to it, `10:20` is 620."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LOOKS_SEXAGESIMAL = re.compile(r"\d:[0-5]?\d")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def put_back_texts(content: dict[Any, Any], file: Path) -> None:
    """In what was read from a yaml file, replace such numbers by the text as it stands there.

    A list that holds one becomes the texts of all its items.
    """
    text = file.read_text(encoding="utf-8")
    if _LOOKS_SEXAGESIMAL.search(text):
        import yaml

        _put_back(content, yaml.compose(text, Loader=yaml.SafeLoader))


def _put_back(content: Any, node: Any) -> None:
    import yaml

    if not isinstance(node, yaml.MappingNode) or not isinstance(content, dict):
        return
    for key, value in node.value:
        if key.value not in content:
            continue
        if isinstance(value, yaml.SequenceNode):
            if any(_is_trapped(item) for item in value.value):
                content[key.value] = [item.value for item in value.value]
        elif _is_trapped(value):
            content[key.value] = value.value
        else:
            _put_back(content[key.value], value)


def _is_trapped(node: Any) -> bool:
    return node.tag in _NUMBERS and isinstance(node.value, str) and ":" in node.value
