"""The plan of a run: a function of its configuration and its data, without torch.

What would run, what it costs, what it is called. `core.train` follows the very plan that
`plan=true` prints.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import experiment_utils
from conf import Config, Problem, UserError
from conf.quantities import counted, format_count
from conf.schema import Arch, Dataset, Tokenizer
from conf.sizes import size_name
from memory import format_bytes
from training.device import may_have_gpu
from training.evaluation import evaluation_windows
from training.mixture import (
    budget_words,
    is_mixture,
    mean_floor,
    repeats,
    source_facts,
    source_lines,
    with_plain_weights,
)

if TYPE_CHECKING:
    from data_loading import BatchOptions, Data, MixedData

ADAM_STATE_COPIES = 3
"""A checkpoint holds the weights and two moments of each, in fp32."""


@dataclass(frozen=True)
class Plan:
    """What a run will do. Tokens, steps and windows are counts; flops are of training, forward and backward.

    identity and folder are None while the text is not tokenized: then `text` says which, and the
    numbers that need the data (`data`, `budget.epochs`) are None as well.
    needs: what must be done before it can start, as sentences; empty where nothing is in the way.
    """

    config: Config
    parameters: int
    non_embedding: int
    flops_per_token: float
    head_share: float
    vocab_size: int
    budget: experiment_utils.Budget
    evaluations: list[int]
    checkpoint_bytes: int
    data: dict[str, Any] | None
    text: str | None
    identity: str | None
    folder: Path | None
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values; `state` is that of an existing run of this identity, else None."""
        from conf.check import to_plain

        return {
            "config": to_plain(self.config),
            "identity": self.identity,
            "folder": str(self.folder) if self.folder else None,
            "state": self.state,
            "parameters": self.parameters,
            "non_embedding": self.non_embedding,
            "flops_per_token": self.flops_per_token,
            "total_flops": self.total_flops,
            "head_share": self.head_share,
            "vocab_size": self.vocab_size,
            **asdict(self.budget),
            "evaluations": self.evaluations,
            "checkpoint_bytes": self.checkpoint_bytes,
            "data": self.data,
            "not_tokenized": self.text,
            "needs": list(self.needs),
        }

    @property
    def total_flops(self) -> float:
        return self.flops_per_token * self.budget.tokens

    @property
    def sources(self) -> list[str]:
        """Names of the sources of a mixture; none where the data are one set."""
        return [source["name"] for source in (self.data or {}).get("sources", ())]

    @property
    def eval_tokens(self) -> int:
        """Tokens read at each evaluation."""
        training = self.config.training
        if self.data is None:
            return training.eval_tokens
        return sum(
            evaluation_windows(part["val_windows"], training.eval_tokens, training.seq_len) * training.seq_len
            for part in self.data.get("sources", [self.data])
        )

    @property
    def state(self) -> str | None:
        """State of the run that already has this identity, if there is one."""
        return experiment_utils.state_of(self.folder) if self.folder else None

    def render(self) -> str:
        """The plan as a page for a terminal."""
        config, budget = self.config, self.budget
        model, training = config.model, config.training
        name = experiment_utils.run_name(config, self.identity) if self.identity else size_name(model)
        rows = [
            ("run", name if self.identity else f"{name} (identity after tokenizing)"),
            ("folder", f"{self.folder or '-'}" + (f" ({self.state})" if self.state else "")),
            (
                "model",
                f"{config.arch.name}, width {model.d_model}, {counted(model.n_layers or 0, 'layer')}, "
                f"{counted(model.n_heads or 0, 'head')}: "
                f"{self.parameters:,} parameters ({self.non_embedding:,} in the matrices of the blocks)",
            ),
            ("data", self._describe_data()),
            *(("", line) for line in self.source_lines()),
            (
                "budget",
                f"{format_count(budget.tokens)} tokens = {counted(budget.steps, 'step')} of "
                f"{budget.effective_batch} x {training.seq_len}"
                + (f" (epochs: {budget.epochs:.3g})" if self.data else "")
                + f"; {budget.tokens / self.parameters:.3g} tokens a parameter",
            ),
            (
                "step",
                f"micro-batch {budget.micro_batch} x {budget.accumulation} accumulated; lr "
                f"{config.optimizer.lr:g}, {config.schedule.name}",
            ),
            (
                "cost",
                f"{self.total_flops:.3g} FLOPs ({self.flops_per_token:.3g} a token, "
                f"{self.head_share:.0%} of it the head)",
            ),
            (
                "val",
                f"{counted(len(self.evaluations), 'evaluation')} of "
                f"{counted(self.eval_tokens, 'token')}, the first after step {self.evaluations[0]:,}: "
                f"{len(self.evaluations) * self.eval_tokens / budget.tokens:.0%} of what training reads",
            ),
            (
                "disk",
                f"{format_bytes(self.checkpoint_bytes)} a checkpoint, "
                f"up to {training.keep_checkpoints + 1} kept",
            ),
        ]
        return "\n".join(f"{label:<8}{text}" for label, text in rows)

    def source_lines(self) -> list[str]:
        """A line for each source of a mixture, and one of its milestones."""
        if self.data is None or "sources" not in self.data:
            return []
        milestones = self.config.dataset.curriculum
        curriculum = [f"other weights: {', '.join(milestones)}"] if milestones else []
        return [*source_lines(self.data, self.config.dataset.when_dry), *curriculum]

    def _describe_data(self) -> str:
        if self.data is None:
            return f"{self.text} (not tokenized yet)"
        test, floor = self.data["test_tokens"], self.data["floor_loss"]
        packed = self.data.get("packing_efficiency")
        return (
            f"{self.data['path']}: {format_count(self.data['tokens'])} tokens, "
            f"{format_count(self.data['train_tokens'])} train, {format_count(self.data['val_tokens'])} val, "
            + (f"{format_count(test)} test, " if test else "")
            + (f"windows {packed['train']:.1%} full of documents, " if packed else "")
            + f"tokenizer {self.data['tokenizer']} of {self.vocab_size:,} ids"
            + (f", floor of the val loss {floor:.4f}" if floor is not None else "")
        )


def resolve(config: Config) -> Config:
    """Fill in every key whose value follows from others, so that the config says all that will be done."""
    from models.shape import resolve_shape

    config = with_plain_weights(config)
    shape = resolve_shape(config.model, config.arch)
    seed_init, seed_data = experiment_utils.seeds(config)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, n_layers=shape.n_layers, n_heads=shape.n_heads),
        training=dataclasses.replace(
            config.training,
            effective_batch=experiment_utils.effective_batch(config.training),
            batch_tokens=None,
        ),
        study=dataclasses.replace(config.study, name=config.study.name or "default"),
        seed=seed_init,  # not what was typed: `seed=3` and `seed_init=3 seed_data=3` are one run
        seed_init=seed_init,
        seed_data=seed_data,
    )


def make_plan(
    config: Config,
    *,
    tokenize: bool,
    log: Callable[[str], None] = lambda line: None,
    prepare: Callable[..., Data | MixedData] | None = None,
) -> Plan:
    """Plan a checked configuration against its data.

    tokenize: make missing token files first (where dataset.auto_tokenize allows it). Otherwise a
    text without token file gives a plan without identity. prepare: stands for
    `data_loading.prepare_run`.

    Raises:
        UserError: whatever is wrong with the data, or with the configuration in view of the data.
    """
    from data_loading import NotTokenized, prepare_run

    config = resolve(config)
    problems = _problems_with_place(config)
    if problems:
        raise UserError(*problems)
    try:
        data = (prepare or prepare_run)(config.dataset, config.tokenizer, tokenize=tokenize, log=log)
    except NotTokenized as missing:
        if tokenize:
            raise
        return _plan(config, None, missing)
    return _plan(config, data, None)


def open_data(dataset: Dataset, tokenizer: Tokenizer, versions: Sequence[Any] = ()) -> Data | MixedData:
    """The data of a run whose plan was made: nothing is tokenized here. versions: as in prepare_run."""
    from data_loading import prepare_run

    return prepare_run(dataset, tokenizer, tokenize=False, versions=versions)


def max_positions(config_arch: Arch, seq_len: int) -> int:
    """Positions the model has: arch.max_positions, else the length of a window."""
    return config_arch.max_positions or seq_len


def _plan(config: Config, data: Data | MixedData | None, missing: Any) -> Plan:
    """missing: the NotTokenized, where there is no data yet."""
    from models import counts

    training = config.training
    vocab_size = data.vocab_size if data else missing.vocab_size
    positions = max_positions(config.arch, training.seq_len)
    counted = counts.count_parameters(config.model, config.arch, vocab_size, positions)
    problems = _problems_with_data(config, data) if data else []
    if problems:
        raise UserError(*problems)
    budget = experiment_utils.resolve_budget(
        training,
        parameters=counted.total,
        train_windows=_train_windows(config, data) if data else 0,
        repeat=repeats(config) or data is None,
        default_max_tokens=config.dataset.default_max_tokens,
        **(budget_words(config, cast("MixedData", data)) if is_mixture(config) and data else {}),
    )
    if (training.max_tokens, training.max_steps, training.tokens_per_param) == (None, None, None):
        training = dataclasses.replace(training, max_tokens=budget.tokens)
        config = dataclasses.replace(config, training=training)
    flops = counts.flops_per_token(config.model, config.arch, vocab_size, training.seq_len)
    run_identity = experiment_utils.identity(config, data.fingerprint) if data else None
    return Plan(
        config=config,
        parameters=counted.total,
        non_embedding=counted.non_embedding,
        flops_per_token=flops.total,
        head_share=flops.head / flops.total,
        vocab_size=vocab_size,
        budget=budget,
        evaluations=experiment_utils.milestones(budget.steps, training.evals, training.eval_spacing),
        checkpoint_bytes=ADAM_STATE_COPIES * 4 * counted.total,
        data=_describe(config, data, budget) if data else None,
        text=str(missing.text_path) if missing else None,
        identity=run_identity,
        folder=experiment_utils.run_folder(config, run_identity) if run_identity else None,
        needs=tuple(_needs(config, missing)),
    )


def _options(config: Config, split: str) -> BatchOptions:
    """What the batches of a split are."""
    from data_loading import BatchOptions

    if split != "train":
        return BatchOptions.held_out(config.dataset, config.training.seq_len)
    step_windows = experiment_utils.effective_batch(config.training)
    return BatchOptions.of(config.dataset, config.training.seq_len, step_windows)


def _train_windows(config: Config, data: Data | MixedData) -> int:
    """Windows of an epoch."""
    from data_loading import train_windows

    batch = experiment_utils.effective_batch(config.training)
    return train_windows(data, config.dataset, config.training.seq_len, batch)


def _describe(config: Config, data: Data | MixedData, budget: experiment_utils.Budget) -> dict[str, Any]:
    facts = {**data.describe(), **_windows(config, data.parts), "floor_loss": mean_floor(config, data)}
    if isinstance(facts.get("sources"), list):
        read = source_facts(config, cast("MixedData", data), budget)
        each = zip(facts["sources"], data.parts, read, strict=True)
        facts["sources"] = [{**one, **_windows(config, [part]), **more} for one, part, more in each]
        facts["train_windows"] = _train_windows(config, data)
    return facts


def _windows(config: Config, parts: Sequence[Data]) -> dict[str, Any]:
    """Windows of each split, and where they hold whole documents how full they are, over all parts."""
    facts: dict[str, Any] = {}
    full = {}
    for split in parts[0].splits:
        options = _options(config, split)
        counts = [options.count(part, split) for part in parts]
        packings = [options.packing(part, split) for part in parts]
        facts[f"{split}_windows"] = sum(counts)
        known = [packing.efficiency for packing in packings if packing is not None]
        if known:
            full[split] = sum(map(operator.mul, known, counts)) / sum(counts)
    return {**facts, **({"packing_efficiency": full} if full else {})}


def _needs(config: Config, missing: Any) -> Iterator[str]:
    if missing is not None and not config.dataset.auto_tokenize:
        yield f"Tokenize the text first: {missing.command}"
    if config.training.device == "cuda" and not may_have_gpu():
        yield "Start it where a GPU is: training.device=cuda, and this machine has none"


def _problems_with_place(config: Config) -> list[Problem]:
    """What stands where the run's folders are to be made, and is no folder."""
    wanted = Path(config.runs_dir) / (config.study.name or "default")
    there = next(path for path in (wanted, *wanted.parents) if path.exists() or path == path.parent)
    if there.is_dir():
        return []
    where = "study.name" if there == wanted else "runs_dir"
    return [
        Problem(
            where, f"{there} is a file, but run folders are to be made in {wanted}. Choose another {where}="
        )
    ]


def _problems_with_data(config: Config, data: Data | MixedData) -> list[Problem]:
    return [problem for part in data.parts for problem in _problems_with_part(config, part)]


def _problems_with_part(config: Config, data: Data) -> list[Problem]:
    seq_len, shift = config.training.seq_len, config.dataset.shift
    if config.dataset.documents == "separate":
        from data_loading.batch_options import too_short

        options = {split: _options(config, split) for split in data.splits}
        return [
            Problem("dataset.documents", too_short(data, split, of_split))
            for split, of_split in options.items()
            if not of_split.count(data, split)
        ]
    problems = [
        Problem(
            "training.seq_len",
            f"one window of {seq_len} needs {seq_len + shift} tokens, but the {split} split of "
            f"{data.ranges_of(split)[0].name} has {data.tokens(split):,}. Set a smaller training.seq_len or "
            "use more text",
        )
        for split in data.splits
        if not data.windows(split, seq_len, shift)
    ]
    if not problems and not _train_windows(config, data):
        problems.append(
            Problem(
                "dataset.windows",
                f"not one step of dataset.windows={config.dataset.windows} with shift {config.dataset.shift} "
                f"fits in the {data.windows('train', seq_len):,} windows of {seq_len} tokens of the train "
                "split. Set a smaller training.seq_len, batch or shift, or use more text",
            )
        )
    return problems
