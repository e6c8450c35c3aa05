"""What keys must hold between each other: small functions, each of which returns Problems.

They need no data and no torch. A room adds a rule of its own by handing it to the entry's check
(`models.options.shape.shape_problems`), so that no formula stands twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conf import parts_table
from conf.between_keys.arch_rules import (
    experts_are_not_compiled,
    kernel_of_an_lstm,
    numbers_that_count,
    rows_that_go_on,
    scan_is_not_compiled,
    settings_of_a_parametrization,
)
from conf.between_keys.dataset_rules import (
    OF_THE_HUB,
    bound_of_a_map,
    files_of_computed_tokens,
    known_encoding,
    one_held_out_share,
    one_line_separator,
    only_of_stores,
    only_of_the_hub,
    options_of_an_order,
    text_of_stdlib,
    windows_of_one_kind,
)
from conf.between_keys.ensembles import ensemble_problems, is_ensemble, members_of
from conf.between_keys.gpu_rules import fp16_that_can_be, graph_that_can_be
from conf.between_keys.logging_rules import logger_is_installed, project_of_wandb
from conf.between_keys.mixture_rules import KEYS_OF_A_MIXTURE, whole_mixture
from conf.between_keys.optimizer_rules import (
    factor_of_a_parameter_there_is,
    free_of_a_schedule,
    no_stacked_matrices,
    one_average,
    only_what_it_has,
)
from conf.between_keys.restore_rules import (
    blocks_there_are,
    milestones_are_counts,
    only_with_a_run,
    spikes_are_looked_for,
    time_is_a_time,
    units_can_be_looked_at,
)
from conf.between_keys.schedule_rules import one_warmup, only_what_its_shape_has
from conf.between_keys.slurm_rules import text_of_a_script
from conf.schema import AUTO, DEFAULT_EFFECTIVE_BATCH, Config
from conf.step_range import parse_steps
from experiment_utils.errors import Problem

BUDGETS = ("max_tokens", "max_steps", "tokens_per_param")


@dataclass(frozen=True)
class Rule:
    """reads: the config paths or groups it looks at; it is not asked when one of them has a problem."""

    reads: tuple[str, ...]
    find: Callable[[Config], list[Problem]]


def one_budget(config: Config) -> list[Problem]:
    """At most one key sets the budget."""
    given = [name for name in BUDGETS if getattr(config.training, name) is not None]
    if len(given) < 2:
        return []
    others = " ".join(f"training.{name}=null" for name in given[1:])
    return [
        Problem(
            f"training.{given[0]}",
            f"exactly one of {', '.join(BUDGETS)} sets the budget, but {' and '.join(given)} are given. "
            f"Take all but one away; one that a file sets is taken away by, for example, {others}",
        )
    ]


def one_batch(config: Config) -> list[Problem]:
    """Windows or tokens in a step, not both."""
    training = config.training
    if training.effective_batch is None or training.batch_tokens is None:
        return []
    return [
        Problem(
            "training.batch_tokens",
            f"training.effective_batch={training.effective_batch} is given too: each says how large a step "
            "is. Take one away (=null)",
        )
    ]


def whole_windows(config: Config) -> list[Problem]:
    """batch_tokens is a whole number of windows."""
    training = config.training
    if training.batch_tokens is None or training.batch_tokens % training.seq_len == 0:
        return []
    below = training.batch_tokens // training.seq_len * training.seq_len
    choices = [str(tokens) for tokens in (below, below + training.seq_len) if tokens]
    return [
        Problem(
            "training.batch_tokens",
            f"{training.batch_tokens} tokens are no whole number of windows of {training.seq_len}; "
            f"nearest: {', '.join(choices)}",
        )
    ]


def whole_micro_batches(config: Config) -> list[Problem]:
    """The effective batch is met exactly by whole micro-batches."""
    training = config.training
    micro = training.micro_batch
    if micro == AUTO or (training.batch_tokens or 0) % training.seq_len:
        return []
    tokens = training.batch_tokens
    batch = tokens // training.seq_len if tokens else training.effective_batch or DEFAULT_EFFECTIVE_BATCH
    if batch % int(micro) == 0:
        return []
    where = "training.batch_tokens" if tokens else "training.effective_batch"
    below = batch // int(micro) * int(micro)
    unit = training.seq_len if tokens else 1
    batches = [str(windows * unit) for windows in (below, below + int(micro)) if windows]
    return [
        Problem(
            "training.micro_batch",
            f"a step of {batch} windows is no whole number of micro-batches of {micro}; nearest "
            f"micro-batches: {', '.join(map(str, nearest_divisors(batch, int(micro))))}; or "
            f"{where}={' or '.join(batches)}",
        )
    ]


def window_within_positions(config: Config) -> list[Problem]:
    """A window is no longer than the model's positions."""
    longest, seq_len = config.arch.max_positions, config.training.seq_len
    if longest is None or seq_len <= longest:
        return []
    return [
        Problem(
            "training.seq_len",
            f"a window of {seq_len} tokens is longer than the model's positions, arch.max_positions="
            f"{longest}. Use at most {longest}, or a larger arch.max_positions",
        )
    ]


def steps_to_profile(config: Config) -> list[Problem]:
    if config.training.profile is None:
        return []
    try:
        parse_steps(config.training.profile)
    except ValueError as error:
        return [Problem("training.profile", f"{config.training.profile}: {error}")]
    return []


def findable_tokenizer(config: Config) -> list[Problem]:
    """A tokenizer is bytes or ids, or says where its files are; where nothing is read, nothing is given."""
    tokenizer = config.tokenizer
    if tokenizer.name in ("bytes", "ids"):
        return [
            Problem(
                f"tokenizer.{name}",
                f"tokenizer={tokenizer.name} reads no files. For the tokenizer of {value}: tokenizer=custom "
                f"tokenizer.{name}={value}",
            )
            for name, value in (("path", tokenizer.path), ("repo", tokenizer.repo))
            if value is not None
        ]
    is_own = tokenizer.name in parts_table.names_at("tokenizer.name")
    if is_own or tokenizer.path or tokenizer.local_folder or tokenizer.repo:
        return []
    return [
        Problem(
            "tokenizer.path",
            f"tokenizer={tokenizer.name} needs tokenizer.path=FOLDER (with tokenizer.json, or vocab.json "
            "and merges.txt) or tokenizer.repo=ORG/NAME or tiktoken:NAME",
        )
    ]


def nearest_divisors(number: int, wanted: int, count: int = 3) -> list[int]:
    """The divisors of `number` nearest to `wanted`, ascending."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    divisors = {*small, *(number // n for n in small)}
    return sorted(sorted(divisors, key=lambda n: (abs(n - wanted), n))[:count])


OF_ONE = (
    Rule(tuple(f"training.{name}" for name in BUDGETS), one_budget),
    Rule(("training.effective_batch", "training.batch_tokens"), one_batch),
    Rule(("training.batch_tokens", "training.seq_len"), whole_windows),
    Rule(
        ("training.micro_batch", "training.effective_batch", "training.batch_tokens", "training.seq_len"),
        whole_micro_batches,
    ),
    Rule(("training.seq_len", "arch.max_positions"), window_within_positions),
    Rule(("training.profile",), steps_to_profile),
    Rule(("tokenizer",), findable_tokenizer),
    Rule(
        tuple(
            f"dataset.{name}"
            for name in ("val_path", "val_tokens", "val_fraction", "test_tokens", "test_fraction")
        ),
        one_held_out_share,
    ),
    Rule(
        tuple(
            f"dataset.{name}"
            for name in ("path", "val_path", "sources", "disk_budget", "download_workers", "part_size")
        ),
        only_of_stores,
    ),
    Rule(
        tuple(f"dataset.{name}" for name in ("order", "block_windows", "shard_windows", "documents")),
        options_of_an_order,
    ),
    Rule(
        tuple(
            f"dataset.{name}" for name in ("source", "document_separator", "encoding", "errors", "val_path")
        ),
        text_of_stdlib,
    ),
    Rule(
        tuple(f"dataset.{name}" for name in ("windows", "documents", "stride", "shift", "order")),
        windows_of_one_kind,
    ),
    Rule(
        tuple(f"dataset.{name}" for name in KEYS_OF_A_MIXTURE),
        whole_mixture,
    ),
    Rule(("dataset.max_resident", "dataset.reader"), bound_of_a_map),
    Rule(
        tuple(f"dataset.{name}" for name in ("source", "path", *OF_THE_HUB)),
        only_of_the_hub,
    ),
    Rule(
        tuple(f"dataset.{name}" for name in ("path", "reader", "max_resident", "verify", "documents")),
        files_of_computed_tokens,
    ),
    Rule(("dataset.encoding",), known_encoding),
    Rule(("dataset.document_separator",), one_line_separator),
    Rule(("restore",), only_with_a_run),
    Rule(("training.milestones",), milestones_are_counts),
    Rule(("training.max_time",), time_is_a_time),
    Rule(("training.activation_checkpointing", "model"), blocks_there_are),
    Rule(("training.dead_units", "training.compile"), units_can_be_looked_at),
    Rule(
        (
            *(
                f"training.{name}"
                for name in ("on_spike", "spike_threshold", "spike_window", "rollback_every")
            ),
            "restore",
        ),
        spikes_are_looked_for,
    ),
    Rule(("schedule",), one_warmup),
    Rule(("schedule",), only_what_its_shape_has),
    Rule(("optimizer",), only_what_it_has),
    Rule(("optimizer", "arch.tied_head"), factor_of_a_parameter_there_is),
    Rule(("optimizer.name", "schedule"), free_of_a_schedule),
    Rule(("optimizer.name", "training.ema"), one_average),
    Rule(("optimizer.name", "arch.n_experts"), no_stacked_matrices),
    Rule(("arch",), numbers_that_count),
    Rule(("arch.init", "optimizer", "schedule"), settings_of_a_parametrization),
    Rule(("arch.n_experts", "training.compile"), experts_are_not_compiled),
    Rule(("arch.family", "training.compile", "training.dead_units", "dataset.documents"), kernel_of_an_lstm),
    Rule(("arch.family", "training.compile"), scan_is_not_compiled),
    Rule(("arch.state_reset", "dataset.windows"), rows_that_go_on),
    Rule(("training", "optimizer", "arch", "dataset.documents"), graph_that_can_be),
    Rule(("training",), fp16_that_can_be),
    Rule(("logging",), logger_is_installed),
    Rule(("logging",), project_of_wandb),
    Rule(("slurm",), text_of_a_script),
)

OF_ENSEMBLES = ("ensemble", "arch", "optimizer", "schedule", "training", "memory", "dataset", "slurm")


def sound_members(config: Config) -> list[Problem]:
    """What an ensemble cannot be of; and each of its runs could run by itself."""
    problems = ensemble_problems(config)
    if problems or not is_ensemble(config):
        return problems
    of_all = {problem for rule in OF_ONE for problem in rule.find(config)}
    of_members = [
        problem for member in members_of(config) for rule in OF_ONE for problem in rule.find(member)
    ]
    return [problem for problem in dict.fromkeys(of_members) if problem not in of_all]


RULES = (*OF_ONE, Rule(OF_ENSEMBLES, sound_members))
