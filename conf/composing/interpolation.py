"""Values that refer to other values: `${training.seq_len}`, `${oc.env:USER}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiment_utils.errors import Problem


def resolve(plain: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Problem]]:
    """The nested values with every interpolation replaced by what it refers to.

    One that cannot be resolved is a problem and stays out of the result.
    """
    if "${" not in repr(plain):
        return plain, []
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    config = OmegaConf.create(dict(plain))
    problems: list[Problem] = []

    def read(values: Mapping[str, Any], node: Any, prefix: str) -> dict[str, Any]:
        resolved: dict[str, Any] = {}
        for name, text in values.items():
            try:
                if isinstance(text, Mapping) and not prefix:
                    resolved[name] = read(text, node[name], f"{name}.")
                    continue
                value = node[name]
                resolved[name] = (
                    OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
                )
            except OmegaConfBaseException as error:
                reason = str(error).splitlines()[0]
                problems.append(Problem(f"{prefix}{name}", f"cannot resolve `{text}`: {reason}"))
        return resolved

    return read(plain, config, ""), problems
