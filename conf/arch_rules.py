"""What options of `arch` ask of other groups. What they ask of each other stands in `models.combinations`."""

from __future__ import annotations

from conf.errors import Problem
from conf.schema import Config

ADAM_LIKE = ("adamw", "adam", "lion", "schedule_free")
BY_SIZE = ("mup", "completep")


def optimizer_of_a_parametrization(config: Config) -> list[Problem]:
    """The factors of muP and CompleteP are for steps that do not follow the size of gradients, as Adam's."""
    if config.arch.init not in BY_SIZE or config.optimizer.name in ADAM_LIKE:
        return []
    return [
        Problem(
            "arch.init",
            f"{config.arch.init}'s factors on the learning rate are those of Adam, not of "
            f"optimizer={config.optimizer.name}. Use optimizer=adamw, or arch.init=default",
        )
    ]


def optimizer_of_experts(config: Config) -> list[Problem]:
    """Muon turns single matrices, and those of experts are one tensor."""
    if config.arch.n_experts is None or config.optimizer.name != "muon":
        return []
    return [
        Problem(
            "arch.n_experts",
            "optimizer=muon makes single matrices orthogonal, and those of experts lie in one tensor. Use "
            "optimizer=adamw, or no arch.n_experts",
        )
    ]


def experts_are_not_traced(config: Config) -> list[Problem]:
    """On shapes alone, and compiled, it is not known how many tokens each expert gets."""
    if config.arch.n_experts is None:
        return []
    asked = [("memory.trace", config.memory.trace), ("training.compile", config.training.compile)]
    return [
        Problem(key, "true: how many tokens each expert (arch.n_experts) gets depends on the data. Use false")
        for key, is_on in asked
        if is_on
    ]


def rows_that_go_on(config: Config) -> list[Problem]:
    """A state is carried to where its text goes on."""
    if config.arch.state_reset is None or config.dataset.windows == "streams":
        return []
    return [
        Problem(
            "arch.state_reset",
            f"states go on in rows that do, and dataset.windows={config.dataset.windows} has none. Add "
            "dataset.windows=streams, or take it away",
        )
    ]


def scan_is_not_compiled(config: Config) -> list[Problem]:
    """The loops of the scan would be unrolled for every length."""
    if config.arch.family != "mingru" or not config.training.compile:
        return []
    return [Problem("training.compile", "true: the scan of arch.family=mingru is not compiled. Use false")]


def kernel_of_an_lstm(config: Config) -> list[Problem]:
    """torch's LSTM is one kernel over whole windows: nothing looks into it or stops inside."""
    if config.arch.family != "lstm":
        return []
    problems = [
        Problem(key, f"true: an LSTM (arch.family=lstm) {why}. Use false")
        for key, is_on, why in (
            ("memory.trace", config.memory.trace, "keeps a workspace that shapes do not tell"),
            ("training.compile", config.training.compile, "is one kernel that is not compiled"),
            ("training.dead_units", config.training.dead_units, "has no feed-forward part to look at"),
        )
        if is_on
    ]
    if config.dataset.documents != "across":
        problems.append(
            Problem(
                "dataset.documents",
                f"{config.dataset.documents}: the kernel of an LSTM (arch.family=lstm) cannot begin anew "
                "inside a window. Use dataset.documents=across",
            )
        )
    return problems
