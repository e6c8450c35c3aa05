"""Plugins that cannot be used: one message with file and line, before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from experiment_utils.errors import UserError
from tests.own_plugins import MODEL, OPTIMIZER, SCHEDULE, forget_plugins, own_config, write_plugin
from training.own_parts.own_data import with_own_data, write_part
from training.plan.run_plan import make_plan


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    forget_plugins()
    yield
    forget_plugins()


def changed(old: str, new: str) -> list[str]:
    """The three parts with one of them changed."""
    assert old in MODEL + OPTIMIZER + SCHEDULE
    return [source.replace(old, new) for source in (MODEL, OPTIMIZER, SCHEDULE)]


GOOD = [MODEL, OPTIMIZER, SCHEDULE]
BAD = {
    "exits": ([*GOOD, "import sys\nsys.exit(0)"], "plugin-exits"),
    "prints": ([*GOOD, 'print("hello")'], "plugin-prints"),
    "seeds": ([*GOOD, "torch.manual_seed(1)"], "plugin-draws"),
    "draws": ([*GOOD, "import random\nrandom.random()"], "plugin-draws"),
    "lacks a package": ([*GOOD, "import no_such_package"], "plugin-needs-package"),
    "fails": ([*GOOD, "1 / 0"], "plugin-fails"),
    "output of another shape": (changed("return x + ", "return x[:, 1:] + 0 *"), "part-fails"),
    "output of another width": (changed("x + self.dropout", "self.up(x) + 0 * self.dropout"), "part-fails"),
    "one position less": (
        changed(
            "return x + self.dropout(self.down(torch.relu(self.up(x))))",
            "return x[:, 1:]",
        ),
        "model-output",
    ),
    "no tensor": (changed("return x + self.dropout", "return None and self.dropout"), "model-output"),
    "head of another vocabulary": (
        changed("size.d_model, vocab_size, bias", "size.d_model, 7, bias"),
        "model-head",
    ),
    "no module": (changed("class Tiny(nn.Module)", "class Tiny(dict)"), "model-no-module"),
    "constructor": (
        changed("def __init__(self, options, size,", "def __init__(self, options,"),
        "part-fails",
    ),
    "no optimizer": (changed("return torch.optim.SGD", "return dict"), "part-fails"),
    "optimizer of nothing": (
        changed("return torch.optim.SGD(groups, lr=optimizer.lr, momentum=0.9)", "return 3"),
        "no-optimizer",
    ),
    "optimizer of other groups": (
        changed("SGD(groups,", 'SGD([{"params": group["params"]} for group in groups],'),
        "optimizer-groups",
    ),
    "optimizer with other state": (
        changed(
            "return torch.optim.SGD(groups, lr=optimizer.lr, momentum=0.9)",
            "found = torch.optim.SGD(groups, lr=0.1)\n    found.state['all'] = {'k': 1}\n    return found",
        ),
        "optimizer-state",
    ),
    "schedule below 0": (changed("1 - step / total_steps", "-1.0"), "schedule-value"),
    "schedule of text": (changed("1 - step / total_steps", "'x'"), "schedule-value"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_message_with_file_and_line(tmp_path: Path, case: str) -> None:
    sources, code = BAD[case]
    plugin = write_plugin(tmp_path, *sources)
    with pytest.raises(UserError) as refused:
        make_plan(own_config(tmp_path, plugin), tokenize=True)
    (problem,) = refused.value.problems
    assert problem.code == code
    file, _, line = problem.where.partition(":")
    assert file == str(plugin)
    assert code == "plugin-draws" or 0 < int(line) <= len(plugin.read_text().splitlines())
    assert not list(tmp_path.glob("runs/*/*"))


DATA = '@register.dataset("words")\ndef words(options):\n    {}\n'
TOKENIZER = '@register.tokenizer("words")\ndef words(options):\n    {}\n'
BAD_DATA = {
    "no text": (DATA.format("yield 3"), "document-no-text"),
    "empty": (DATA.format("yield from ()"), "dataset-empty"),
    "fails": (DATA.format("yield 1 / 0"), "part-fails"),
    "no tokenizer": (TOKENIZER.format("return 3"), "no-tokenizer"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_data_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    from conf.own_parts.load import load_plugins

    monkeypatch.chdir(tmp_path)
    source, code = BAD_DATA[case]
    plugin = write_plugin(tmp_path, source)
    config = own_config(tmp_path, plugin)
    if "dataset" in source:
        config = replace(config, dataset=replace(config.dataset, source="words"))
    else:
        config = replace(config, tokenizer=replace(config.tokenizer, name="words"))
    load_plugins([str(plugin)])
    with pytest.raises(UserError) as refused:
        with_own_data(config, write_part)
    assert refused.value.codes == [code]
    assert not [one for one in tmp_path.rglob("Datasets/*") if one.is_file()]
