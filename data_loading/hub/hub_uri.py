"""hf://ORG/NAME[:CONFIG][@REVISION]: names of datasets on the hub, or of folders laid out as one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from data_loading.hub.named_datasets import REGISTRY, known_repository
from experiment_utils.errors import UserError

PREFIX = "hf://"
EXPECTED = (
    f"{PREFIX}ORG/NAME[:CONFIG][@REVISION], {PREFIX}NAME of a known dataset, or {PREFIX}/PATH/OF/FOLDER"
)
_NAME = re.compile(
    r"(?P<repository>[\w.-]+(/[\w.-]+)?)(:(?P<config>[\w.-]+))?(@(?P<revision>[\w.-][\w./-]*))?"
)
_FOLDER = ("/", "./", "../", "~")


@dataclass(frozen=True)
class HubName:
    """Name of a dataset on the hub, or path of a folder."""

    repository: str
    """ORG/NAME, or the path of a folder."""
    config: str | None = None
    """None: the default one."""
    revision: str | None = None
    """Branch, tag or commit; None: the newest. A folder has none."""
    known: str | None = None
    """Name of the registry that was given."""

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder on this machine."""
        return self.repository.startswith("/")

    @property
    def text_field(self) -> str:
        """Field of its rows that holds the text: as the registry says, else `text`."""
        known = REGISTRY.get(self.known or "") or known_repository(self.repository)
        return known.text_field if known else "text"

    @property
    def short(self) -> str:
        """Short form, for the names of files."""
        if self.known is not None:
            return self.known
        return "-".join(filter(None, (self.repository.rstrip("/").rsplit("/", 1)[-1], self.config)))

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{PREFIX}{self.repository}{config}{revision}"


def hub_source(name: str) -> str:
    """Return `hf://...` for a URI or a name of the registry.

    Raises:
        UserError: neither.
    """
    if name.startswith(PREFIX):
        return name
    if name in REGISTRY:
        return f"{PREFIX}{name}"
    raise UserError(
        f"{name}: expected hf://ORG/NAME[:CONFIG][@REVISION], or one of {', '.join(REGISTRY)}",
        code="hub-name-invalid",
    )


def parse(argument: str, config: str | None = None) -> HubName:
    """Return the parts of `hf://...`. config: given in addition (`--subset`).

    Raises:
        UserError: no such name, a folder that is not there, or two configurations.
    """
    text = argument.removeprefix(PREFIX)
    name = _folder(argument, text) if text.startswith(_FOLDER) else _repository(argument, text)
    if config in (None, name.config):
        return name
    if name.config is not None and name.known is None:
        raise UserError(
            f"{argument} names the configuration {name.config}, and --subset {config} another",
            code="hub-config-twice",
        )
    return replace(name, config=config, known=None)


def _folder(argument: str, text: str) -> HubName:
    path, config = Path(text).expanduser(), None
    if not path.exists() and ":" in path.name:
        stem, config = str(path).rsplit(":", 1)
        path = Path(stem)
    if not path.is_dir():
        raise UserError(f"{argument}: no such folder. Expected {EXPECTED}", code="hub-folder-missing")
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        raise UserError(
            f"{argument} was written by save_to_disk, which is no layout of the hub. Make a token set of it: "
            f"python pretokenize_dataset.py {path} --output Datasets/{path.name}.npy",
            code="hub-saved-to-disk",
        )
    return HubName(str(path.resolve()), config)


def _repository(argument: str, text: str) -> HubName:
    found = _NAME.fullmatch(text)
    if found is None:
        raise UserError(f"{argument}: expected {EXPECTED}", code="hub-name-invalid")
    repository, config, revision = found["repository"], found["config"], found["revision"]
    known = REGISTRY.get(repository)
    if known is None:
        return HubName(repository, config, revision)
    is_as_known = config in (None, known.config) and revision in (None, known.revision)
    return HubName(
        known.repository,
        config or known.config,
        revision or known.revision,
        repository if is_as_known else None,
    )
