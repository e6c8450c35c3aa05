"""The pages of `--help`: from the schema and the folders of yaml files, without Hydra and without yaml."""

from __future__ import annotations

import re
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

from conf import parts_table
from conf.keys import groups, keys, keys_of
from conf.option_files import default_options, options_of
from conf.parts_table import Part
from conf.schema_key import Key
from conf.suggestions import nearest
from conf.values import describe
from experiment_utils.display import columns_of, fold
from experiment_utils.errors import Problem, UserError

WIDTH = 110
"""Columns of a page that is not for a terminal."""

EXAMPLES = (
    ("model=32d", "the smallest size, embedded corpus"),
    ("model=256d plan=true", "only say what it would cost"),
    ("model=32d dataset=c4 training.max_tokens=10M", "Datasets/c4.npy, or c4.txt"),
    ("model=32d dataset=text dataset.path=my.txt", "a text of yours"),
    ("-m model=32d,64d seed=0,1", "a sweep: every combination"),
    ("-m study=lr_sweep", "a named study of conf/study"),
    ("-m study=seeds hydra.launcher.jobs=2", "two runs side by side"),
    ("--help model", "about a group or key; or model=?"),
)
FLAGS = (
    ("-m, --multirun", "run every combination of the values given"),
    ("--json", "print plans and results as JSON"),
    ("--cfg job", "print the composed configuration, run nothing"),
    ("--config-dir DIR", "a folder with group files of your own, for example DIR/model/mine.yaml"),
    ("--help [GROUP | KEY]", "this page, or what can be set there"),
    ("--version", "version of Highwater"),
    ("--info, --hydra-help", "Hydra's own"),
)
NOTES = """\
Counts: 500M, 1B, 2e9 (powers of 1000). null: none. A sweep: a,b or range(4) or glob(*); a list: [a,b].
The same command again goes on with an unfinished run and says when one is finished.
A text is tokenized at the first run, or beforehand: python pretokenize_dataset.py --help
Exit codes: 0 done, 1 a run failed, 2 the input cannot be used, 130 interrupted."""


def help_page(topics: list[str], config_dir: Path | None = None) -> str:
    """The page of these groups or keys; without any, the front page.

    Raises:
        UserError: a topic that is neither.
    """
    if not topics:
        return _front_page(config_dir)
    known = [*groups(), *keys(), *(one.name for one in parts_table.parts())]
    unknown = [topic for topic in topics if topic not in known]
    if unknown:
        raise UserError(*(Problem(topic, _no_help(topic, known)) for topic in unknown))
    return "\n\n".join(_page(topic, config_dir) for topic in topics)


def _page(topic: str, config_dir: Path | None) -> str:
    part = parts_table.part(topic)
    if topic in groups():
        return _group_page(topic, config_dir)
    return _key_page(keys()[topic]) if part is None else _part_page(part)


def _part_page(part: Part) -> str:
    """The page of a part that the user registered."""
    options = [(f"{key.path}={shown(key.default)}", _meaning(key)) for key in part.options]
    head = f"{part.name}: {part.kind} of your own, {part.place}"
    chosen = f"Choose it: {part.typed_as}" if part.chosen_at else ""
    return "\n".join(filter(None, [head, chosen, *(["", "Options", *_table(options)] if options else [])]))


def _meaning(key: Key) -> str:
    return f"{key.doc} ({describe(key)})" if key.doc else describe(key)


def _no_help(topic: str, known: list[str]) -> str:
    close = nearest(topic, known)
    return "no such group or key" + (
        f"; nearest: {', '.join(close)}" if close else f"; groups: {' '.join(groups())}"
    )


def _front_page(config_dir: Path | None) -> str:
    defaults = default_options()
    examples = [(f"python experiments.py {command}", what) for command, what in EXAMPLES]
    chosen = [(group, _names(group, defaults, config_dir)) for group in groups()]
    top = [(f"{key.name}={shown(key.default)}", key.doc) for key in keys_of("")]
    return "\n".join(
        [
            "Highwater runs experiments on small language models and knows where the memory is.",
            "",
            *_table(examples),
            "",
            "Usage: python experiments.py [-m] [--json] [GROUP=OPTION] [KEY=VALUE] ...",
            "",
            "Groups (* is what a run takes by default; a dataset brings its tokenizer)",
            *_table(chosen),
            "",
            "Keys outside of the groups",
            *_table(top),
            *_own_parts(),
            "",
            "Flags",
            *_table(FLAGS),
            "",
            NOTES,
        ]
    )


def _own_parts() -> list[str]:
    """Lines of the front page about the parts that the user registered; none without plugins."""
    rows = [(one.typed_as, f"{one.kind}, {one.place}") for one in parts_table.parts()]
    return ["", "Parts of your own (options: --help NAME)", *_table(rows)] if rows else []


def _names(group: str, defaults: dict[str, str], config_dir: Path | None) -> str:
    return " ".join(
        f"{name}*" if name == defaults.get(group) else name for name in options_of(group, config_dir)
    )


def _group_page(group: str, config_dir: Path | None) -> str:
    default = default_options().get(group)
    options = [
        (f"{name}*" if name == default else name, describe_option(group, name, file))
        for name, file in options_of(group, config_dir).items()
    ]
    settings = [
        (f"{key.path}={shown(key.default)}", f"{key.doc} ({describe(key)})") for key in keys_of(group)
    ]
    return "\n".join(
        [
            f"{group}=OPTION (* is the default)" if default else f"{group}=OPTION (none by default)",
            *_table(options),
            "",
            "Keys, at the default of the schema; an option may set them otherwise",
            *_table(settings),
        ]
    )


def _key_page(key: Key) -> str:
    return "\n".join(
        [
            f"{key.path}: {key.doc}",
            *_table([("expected", describe(key)), ("default", shown(key.default))]),
        ]
    )


def describe_option(group: str, name: str, file: Path) -> str:
    """What an option's file says of itself: its first comment up to an empty line, else its settings."""
    lines = [
        line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("# @package")
    ]
    first = takewhile(lambda line: line != "#", lines)
    said = [line.removeprefix("# ") for line in first if line.startswith("# ")]
    settings = [line.replace(": ", "=") for line in lines if re.match(r"\w+: \S", line)]
    words = " ".join(said) if said else ", ".join(settings)
    return f"{words}. {_where_data_lie(name, lines)}" if group == "dataset" else words


def _where_data_lie(name: str, lines: list[str]) -> str:
    text = "\n".join(lines)
    tokenizer = re.search(r"override /tokenizer\S*: (\w+)", text)
    path = re.search(r"^path: (\S+)", text, re.MULTILINE)
    if path is not None:
        where = path.group(1)
    elif "source: mix" in text:
        where = "dataset.sources say where they lie"
    elif "source: stdlib" in text:
        where = f"{name}*.npy in Datasets/, made at the first run"
    else:
        where = f"Datasets/{name}*.txt or .npy"
    return f"Tokenizer {tokenizer.group(1) if tokenizer else 'bytes'}; {where}"


def _width() -> int:
    return min(WIDTH, columns_of(sys.stdout) or WIDTH)


def _table(rows: Any) -> list[str]:
    """Two columns; the second one wraps."""
    rows = list(rows)
    left = max(len(first) for first, _ in rows) + 2
    return [line for first, second in rows for line in fold(f"  {first:<{left}}{second}".rstrip(), _width())]


def shown(value: Any) -> str:
    """A value as one would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value) if value != "" else "''"
