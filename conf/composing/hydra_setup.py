"""Hydra set up the way this program uses it, and its errors as the user's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from conf import parts_table
from conf.composing.check import to_plain
from conf.option_files import CONF
from conf.parts_table import OPTION_GROUPS, Part
from conf.schema import Config
from experiment_utils.errors import Problem, UserError

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.config_store import ConfigStore

VERSION_BASE = "1.3"


def prepare_hydra(*, own_parts: bool = False) -> None:
    """Set the version Hydra is to behave like, and hand it every key of the schema at its default.

    Args:
        own_parts: also the parts that the user registered, as options of their groups, with their options.
    """
    from hydra import version
    from hydra.core.config_store import ConfigStore

    version.setbase(VERSION_BASE)
    node = to_plain(Config())
    for section in node.values():
        if isinstance(section, dict) and "name" in section:
            section["name"] = None  # becomes the name of the option
    store = ConfigStore.instance()
    if own_parts:
        node["own"] = {
            part.name: {key.name: key.default for key in part.options} for part in parts_table.parts()
        }
        add_options(store, parts_table.parts())
    store.store(name="schema", node=node)


def add_options(store: ConfigStore, parts: Iterable[Part]) -> None:
    """Make parts of the user's options of their groups: `optimizer=NAME`, `arch=NAME`."""
    for part in parts:
        group = OPTION_GROUPS.get(part.kind)
        if group is not None:
            chosen = {"name": part.name, part.chosen_at.rpartition(".")[2]: part.name}
            store.store(group=group, name=part.name, node=chosen)


def search_path(config_dir: Path | None) -> ConfigSearchPath:
    """Where Hydra looks for yaml files."""
    from hydra._internal.utils import create_config_search_path
    from hydra.core.config_search_path import SearchPathQuery

    path = create_config_search_path(f"file://{CONF}")
    if config_dir is not None:
        if not config_dir.is_dir():
            raise UserError(Problem("--config-dir", f"no such folder: {config_dir}", "no-config-dir"))
        path.prepend(
            provider="command-line",
            path=f"file://{config_dir.resolve()}",
            anchor=SearchPathQuery(provider="schema"),
        )
    return path


def first_line(error: BaseException) -> str:
    """The first line of an exception's text that is not empty, with the next one if it ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


@contextmanager
def errors_of_files() -> Iterator[None]:
    """What Hydra, OmegaConf and yaml say of a file that cannot be used, as the user's error."""
    import yaml
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except yaml.YAMLError as error:
        raise UserError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise UserError(
            "a file of the configuration holds itself: in its defaults, or by a YAML alias",
            code="circular-file",
        ) from error
    except (HydraException, OmegaConfBaseException, OSError, UnicodeDecodeError) as error:
        raise UserError(first_line(error)) from error
