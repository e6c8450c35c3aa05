"""Rules between keys of `arch` and others; those within `arch`: `models.options.option_conflicts`."""

from __future__ import annotations

from typing import Any

from conf import parts_table
from conf.option_files import options_of
from conf.schema import Arch, Config
from experiment_utils.errors import Problem

ADAM_LIKE = ("adamw", "adam", "lion", "schedule_free")
BY_SIZE = ("mup", "completep")
WITH_OWN_DEVIATIONS = ("gpt2", "transformer_scaled")
"""Values of arch.init that do not look at arch.init_std."""


def settings_of_a_parametrization(config: Config) -> list[Problem]:
    """The factors of muP and CompleteP are for steps that do not follow the size of gradients, as Adam's, and
    are all there is that follows the width.
    """
    init, optimizer = config.arch.init, config.optimizer
    if init not in BY_SIZE:
        return []
    if optimizer.name not in ADAM_LIKE:
        return [
            Problem(
                "arch.init",
                f"{init}'s factors on the learning rate are those of Adam, not of "
                f"optimizer={optimizer.name}. Use optimizer=adamw, or arch.init=default",
            )
        ]
    problems = []
    if config.schedule.name == "transformer":
        problems.append(
            Problem(
                "schedule",
                f"transformer lowers its peak with the width, which arch.init={init} does besides. Use "
                "schedule=inverse_sqrt, or arch.init=default",
            )
        )
    if optimizer.name == "adam" and optimizer.weight_decay:
        problems.append(
            Problem(
                "optimizer.weight_decay",
                f"adam adds it to gradients, which shrink with the width under arch.init={init}, so that it "
                "means another decay at every width. Use optimizer=adamw, or 0",
            )
        )
    if optimizer.grad_noise:
        problems.append(
            Problem(
                "optimizer.grad_noise",
                f"gradients shrink with the width under arch.init={init}, and the noise does not. Take it "
                "away, or use arch.init=default",
            )
        )
    return problems


def numbers_that_count(config: Config) -> list[Problem]:
    """No number is given that nothing of this model looks at: two values would be two runs, and the same.

    One that an option of arch brings was not given: `arch=llama arch.positions=rotary,alibi` is a sweep.
    """
    arch, plain = config.arch, Arch()
    has_norm = arch.norm != "none" or arch.final_norm not in ("same", "none") or arch.qk_norm
    drops = bool(arch.dropout_embedding or arch.dropout_residual)
    rows: list[tuple[tuple[str, ...], bool, str]] = [
        (("norm_eps",), has_norm, "there is no norm"),
        (("init_std",), arch.init not in WITH_OWN_DEVIATIONS, f"arch.init={arch.init} has another"),
    ]
    if arch.family == "transformer":  # what a recurrence has no use for: models.options.family_keys
        rotates = arch.positions == "rotary"
        is_llama3 = arch.rope_scaling == "llama3"
        of_llama3 = ("rope_original_positions", "rope_low_frequency", "rope_high_frequency")
        rows += [
            (("rope_theta", "rope_factor"), rotates, f"arch.positions={arch.positions} rotates nothing"),
            (of_llama3, is_llama3, "it is of arch.rope_scaling=llama3"),
        ]
    else:
        rows += [(("dropout_locked",), drops, "arch.dropout_embedding and dropout_residual are 0")]
    if arch.family != "lstm":
        rows += [
            (
                ("balance_loss", "balance_over"),
                arch.n_experts is not None,
                "there are no experts (arch.n_experts)",
            )
        ]
    found = [(name, why) for names, is_read, why in rows if not is_read for name in names]
    given = [(name, why) for name, why in found if getattr(arch, name) != getattr(plain, name)]
    brought = _of_option(arch.name) if given else {}
    return [
        Problem(f"arch.{name}", f"{_typed(value)}: {why}. Take it away (arch.{name}={_typed(usual)})")
        for name, why in given
        if (value := getattr(arch, name)) != (usual := brought.get(name, getattr(plain, name)))
    ]


def _of_option(name: str) -> dict[str, Any]:
    """What is in conf/arch/NAME.yaml."""
    import yaml

    path = options_of("arch").get(name)
    return {} if path is None else yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def _typed(value: float | bool | str) -> str:
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def experts_are_not_compiled(config: Config) -> list[Problem]:
    """Refuse training.compile with experts: the number of tokens of each depends on the data."""
    if config.arch.n_experts is None or not config.training.compile:
        return []
    why = "true: how many tokens each expert (arch.n_experts) gets depends on the data. Use false"
    return [Problem("training.compile", why)]


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


def own_model_alone(config: Config) -> list[Problem]:
    """Refuse settings that a model of the user's does not go with."""
    if config.arch.family not in parts_table.names_at("arch.family"):
        return []
    training, documents = config.training, config.dataset.documents
    settings = [
        ("dataset.documents", documents, documents != "across", "across"),
        ("training.activation_checkpointing", "true", bool(training.activation_checkpointing), "false"),
        ("training.parallel", training.parallel, training.parallel == "fsdp", "ddp"),
        ("training.dead_units", "true", training.dead_units, "false"),
    ]
    return [
        Problem(
            key, f"{value} does not go with {config.arch.family}, a model of your own. Use {use}", "own-model"
        )
        for key, value, is_set, use in settings
        if is_set
    ]
