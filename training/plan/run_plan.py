"""The plan of a run: a function of its configuration and its data, without torch.

What would run, what it costs, what it is called. `core.train` follows the very plan that
`plan=true` prints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from conf import Config
from conf.between_keys.ensembles import is_ensemble
from conf.between_keys.restore_rules import milestone_tokens
from conf.budget import Budget, effective_batch, resolve_budget
from conf.budget import milestones as milestones_of
from conf.composing.run_identity import identity as identity_of
from conf.composing.run_identity import run_name
from conf.per_model_slurm import settle
from conf.schema import AUTO, Arch, Dataset, Optimizer, Schedule, Study, Tokenizer, Training
from conf.seeding import seeds
from conf.sizes import size_name
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted, format_count
from memory import format_bytes
from memory.estimate.available import Room
from memory.estimate.available import room as room_here
from memory.estimate.constants import ENTRY, FRAMEWORK_BASE
from models.options.family_keys import is_own
from training.attempt.begin import CodeChanged, check_code
from training.attempt.run_files import run_folder, state_of
from training.devices.device import available_threads, other_bits
from training.devices.gpu_check import foreseen_problem, may_have_gpu
from training.evaluation.evaluate import evaluation_windows
from training.own_parts.facts import facts_of, make_own_data
from training.own_parts.model_counts import flop_counts, parameter_counts
from training.own_parts.own_data import with_own_data
from training.plan.data_facts import count_train_windows, describe, problems_with_data
from training.plan.describe import besides, learning_words, model_words
from training.plan.memory_parts import expected_device
from training.plan.memory_plan import ALL_THE_SAME, DOES_NOT_FIT, MemoryNeeds, MemoryPlan
from training.plan.mixture import (
    budget_words,
    is_mixture,
    milestone_lines,
    repeats,
    source_lines,
    with_plain_weights,
)
from training.plan.optimizer_memory import checkpoint_bytes
from training.plan.plan_problems import problems_with_place, problems_with_ranks
from training.plan.restore_source import Origin, find_origin
from training.plan.smaller_vocabulary import SmallerVocabulary, smaller_vocabulary

if TYPE_CHECKING:
    from data_loading import Data, MixedData

FREE_RATES = ("lr", "weight_decay", "beta1", "beta2")
"""Keys of the optimizer that change neither memory nor cost."""
REFUSED_HERE = "It would be refused here"
"""Beginning of a need that nothing can meet: the run itself must be another."""


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """Budget, needs and size of a run. Runs of one shape (`shape_of`) have the same."""

    parameters: int
    non_embedding: int
    """Parameters in the matrices of the blocks."""
    flops_per_token: float
    """FLOPs of training, forward and backward."""
    head_share: float
    """Share of the output head in them."""
    vocab_size: int
    budget: Budget
    evaluations: list[int]
    """Steps after which the run is evaluated."""
    checkpoint_bytes: int
    data: dict[str, Any] | None
    """Facts of the data; None while the text is not tokenized."""
    text: str | None
    """The text that is not tokenized yet."""
    needs: tuple[str, ...]
    """Steps to take before it can start, as sentences."""
    memory: MemoryPlan = field(compare=False)
    """Memory that it needs, and that is free at this moment."""
    milestones: tuple[int, ...] = ()
    """Steps whose checkpoints are kept for good."""
    smaller_vocabulary: SmallerVocabulary | None = None
    """Savings of a smaller vocabulary, if most of a step is the head."""
    together: int = field(default=1, compare=False)
    """Runs of an ensemble that are one program with it."""


@dataclass(frozen=True, kw_only=True)
class Plan(RunCost):
    """Plan of one run: its cost, its configuration and its folder."""

    config: Config
    """Resolved."""
    identity: str | None
    """None while the text is not tokenized, as is `folder`."""
    folder: Path | None
    restored: Origin | None = None
    """Checkpoint of another run that it begins with."""

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values; `state` is that of an existing run of this identity, else None."""
        from conf.composing.check import to_plain

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
            "smaller_vocabulary": asdict(self.smaller_vocabulary) if self.smaller_vocabulary else None,
            "vocab_size": self.vocab_size,
            **asdict(self.budget),
            "evaluations": self.evaluations,
            "checkpoint_bytes": self.checkpoint_bytes,
            "data": self.data,
            "not_tokenized": self.text,
            "memory": self.memory.to_json(),
            "needs": list(self.needs),
            "restored": asdict(self.restored) if self.restored else None,
            "milestones": list(self.milestones),
        }

    @property
    def total_flops(self) -> float:
        return self.flops_per_token * self.budget.tokens

    @property
    def most_checkpoints(self) -> int:
        """The last ones, the best, the milestones, and that which a spike would be gone back from to."""
        training = self.config.training
        back = 1 if training.on_spike == "rollback" else 0
        return training.keep_checkpoints + 1 + len(self.milestones) + back

    @property
    def sources(self) -> list[str]:
        """Names of the sources of a mixture; none where the data are one set."""
        return [source["name"] for source in (self.data or {}).get("sources", ())]

    @property
    def eval_tokens(self) -> int:
        """Tokens read at each evaluation."""
        training = self.config.training
        if self.data is None or self.data["val_windows"] is None:
            return training.eval_tokens
        return sum(
            evaluation_windows(part["val_windows"], training.eval_tokens, training.seq_len) * training.seq_len
            for part in self.data.get("sources", [self.data])
        )

    @property
    def state(self) -> str | None:
        """State of the run that already has this identity, if there is one."""
        return state_of(self.folder) if self.folder else None

    def render(self) -> str:
        """The plan as a page for a terminal."""
        config, budget = self.config, self.budget
        training = config.training
        name = run_name(config, self.identity) if self.identity else size_name(config.model)
        rows = [
            ("run", name if self.identity else f"{name} (identity after tokenizing)"),
            ("folder", f"{self.folder or '-'}" + (f" ({self.state})" if self.state else "")),
            (
                "model",
                f"{model_words(config)}: {self.parameters:,} parameters "
                f"({self.non_embedding:,} in the matrices of the blocks)",
            ),
            *([("begins", self.restored.line())] if self.restored else []),
            ("data", self._describe_data()),
            *(("", line) for line in self.source_lines()),
            (
                "budget",
                f"{format_count(budget.tokens)} tokens = {counted(budget.steps, 'step')} of "
                f"{budget.effective_batch} x {training.seq_len}"
                + (f" (epochs: {budget.epochs:.3g})" if self.data and self.data["train_windows"] else "")
                + f"; {budget.tokens / self.parameters:.3g} tokens a parameter",
            ),
            (
                "step",
                f"micro-batch {budget.micro_batch} x {budget.accumulation} accumulated"
                + (f" x {budget.ranks} ranks ({training.parallel})" if budget.ranks > 1 else "")
                + f"; {learning_words(config, budget)}",
            ),
            *(("", line) for line in besides(config, budget)),
            (
                "cost",
                f"{self.total_flops:.3g} FLOPs ({self.flops_per_token:.3g} a token, "
                f"{self.head_share:.0%} of it the head)",
            ),
            *([("", self.smaller_vocabulary.line())] if self.smaller_vocabulary else []),
            (
                "val",
                f"{counted(len(self.evaluations), 'evaluation')} of "
                f"{counted(self.eval_tokens, 'token')}, the first after step {self.evaluations[0]:,}: "
                f"{len(self.evaluations) * self.eval_tokens / budget.tokens:.0%} of what training reads"
                if self.evaluations
                else "nothing is held out, no evaluations",
            ),
            (
                "disk",
                f"{format_bytes(self.checkpoint_bytes)} a checkpoint, up to {self.most_checkpoints} kept",
            ),
            *self.memory.rows(),
        ]
        return "\n".join(f"{label:<8}{text}" for label, text in rows)

    def source_lines(self) -> list[str]:
        """A line for each source of a mixture, and one of its milestones."""
        if self.data is None or "sources" not in self.data:
            return []
        dataset = self.config.dataset
        return [*source_lines(self.data, dataset.when_dry), *milestone_lines(dataset, self.budget.tokens)]

    def _describe_data(self) -> str:
        if self.data is None:
            return f"{self.text} (not tokenized yet)"
        if self.data["tokens"] is None:
            val = self.data["val_path"] or "its first documents"
            return (
                f"{self.data['path']}: streamed, how many tokens it has is not known; val: {val}; tokenizer "
                f"{self.data['tokenizer']} of {self.vocab_size:,} ids"
            )
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
    from models.options.shape import resolve_shape

    config = settle(with_plain_weights(config))
    shape = resolve_shape(config.model, config.arch)
    seed_init, seed_data = seeds(config)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, n_layers=shape.n_layers, n_heads=shape.n_heads),
        training=dataclasses.replace(
            config.training,
            effective_batch=effective_batch(config.training),
            batch_tokens=None,
        ),
        study=dataclasses.replace(config.study, name=config.study.name or "default"),
        seed=seed_init,  # not what was typed: `seed=3` and `seed_init=3 seed_data=3` are one run
        seed_init=seed_init,
        seed_data=seed_data,
    )


def shape_of(config: Config) -> Config:
    """A resolved configuration without what changes neither memory nor cost: seeds, rates, names."""
    plain = Optimizer()
    optimizer = dataclasses.replace(config.optimizer, **{name: getattr(plain, name) for name in FREE_RATES})
    return dataclasses.replace(
        config, optimizer=optimizer, schedule=Schedule(), study=Study(), seed=0, seed_init=0, seed_data=0,
        tags=[], notes="",
    )  # fmt: skip


def make_plan(
    config: Config,
    *,
    tokenize: bool,
    log: Callable[[str], None] = lambda line: None,
    prepare: Callable[..., Data | MixedData] | None = None,
    cost: Callable[..., RunCost] | None = None,
    restored: Mapping[str, Any] | None = None,
    **place: Any,
) -> Plan:
    """Plan a checked configuration against its data.

    Args:
        tokenize: Make missing token files first (if dataset.auto_tokenize allows it). Otherwise a text
            without a token file gives a plan without identity.
        prepare: Replaces `data_loading.prepare_run`.
        cost: Replaces `run_cost`.
        restored: From run.json, if the run begins with another one and has begun.
        place: Where it runs: keyword arguments of `run_cost`.

    Raises:
        UserError: The data cannot be used, or the configuration does not fit them or the place.
    """
    from data_loading import NotTokenized, prepare_run

    config = resolve(with_own_data(config, make_own_data))
    problems = [*problems_with_place(config), *problems_with_ranks(config, place.get("ranks", 1))]
    if is_ensemble(config):  # each of its runs is planned
        problems.append(Problem("ensemble", "here one run is started. Start its runs with experiments.py"))
    if problems:
        raise UserError(*problems)
    data, missing = None, None
    try:
        data = (prepare or prepare_run)(config.dataset, config.tokenizer, tokenize=tokenize, log=log)
    except NotTokenized as error:
        if tokenize:
            raise
        missing = error
    found = (cost or run_cost)(shape_of(config), data, missing, **place)
    facts_of(config, found.vocab_size)  # also parts that cost nothing are tried
    training = config.training
    if (training.max_tokens, training.max_steps, training.tokens_per_param) == (None, None, None):
        training = dataclasses.replace(training, max_tokens=found.budget.tokens)
        config = dataclasses.replace(config, training=training)
    origin = find_origin(config, found.budget, data.fingerprint if data else None, restored)
    if origin is not None:
        taken = dataclasses.replace(config.restore, from_=origin.folder, step=origin.step)
        config = dataclasses.replace(config, restore=taken)
    first_step, fingerprint = (origin.first_step, origin.fingerprint) if origin else (0, None)
    run_identity = identity_of(config, data.fingerprint, fingerprint) if data else None
    folder = run_folder(config, run_identity) if run_identity else None
    own = {
        "evaluations": [step for step in found.evaluations if step > first_step],
        "needs": (*found.needs, *_of_other_code(config, folder)),
    }
    return Plan(
        config=config, identity=run_identity, folder=folder, restored=origin, **{**vars(found), **own}
    )


def open_data(dataset: Dataset, tokenizer: Tokenizer, versions: Sequence[Any] = ()) -> Data | MixedData:
    """The data of a run whose plan was made: nothing is tokenized here. versions: as in prepare_run."""
    from data_loading import prepare_run

    return prepare_run(dataset, tokenizer, tokenize=False, versions=versions)


def max_positions(config_arch: Arch, seq_len: int) -> int:
    """Positions the model has: arch.max_positions, else the length of a window."""
    return config_arch.max_positions or seq_len


def run_cost(
    shape: Config,
    data: Data | MixedData | None,
    missing: Any,
    *,
    room: Room | None = None,
    kept: Mapping[str, Any] | None = None,
    after_oom: bool = False,
    ranks: int = 1,
    ranks_here: int = 1,
    together: int = 1,
) -> RunCost:
    """The cost of all runs of a shape.

    Args:
        shape: From `shape_of`.
        missing: The NotTokenized error, if there are no data yet.
        room: Memory that it can have; None: what this machine has now.
        kept: What `auto` became in earlier attempts, given by the run itself.
        after_oom: The last of them ran out of memory.
        ranks: Processes of the run.
        ranks_here: Ranks on one node, which share its memory.
        together: Runs of this shape that are one program, whose memory it is then.

    Raises:
        UserError: The configuration does not fit the data.
    """
    training, model, arch = shape.training, shape.model, shape.arch
    vocab_size = data.vocab_size if data else missing.vocab_size
    positions = max_positions(arch, training.seq_len)
    counted = parameter_counts(shape, vocab_size, positions)
    is_counted = data is not None and data.is_counted
    problems = problems_with_data(shape, data) if data and is_counted else []
    if problems:
        raise UserError(*problems)
    is_here = room is None
    if room is None:
        room = _room_here(training, kept, ranks_here)
    kept = kept or {}
    needs = MemoryNeeds(
        shape, room, vocab_size=vocab_size, data=data.describe() if data else None, kept=kept,
        ranks=ranks, ranks_here=ranks_here, together=together,
    )  # fmt: skip
    micro = needs.micro_batch(pinned=kept.get("micro_batch"), after_oom=after_oom)
    budget = resolve_budget(
        training,
        micro=micro,
        ranks=ranks,
        parameters=counted.total,
        train_windows=count_train_windows(shape, data) if data and is_counted else 0,
        repeat=repeats(shape) or not is_counted,
        default_max_tokens=shape.dataset.default_max_tokens,
        **(budget_words(shape, cast("MixedData", data)) if is_mixture(shape) and data else {}),
    )
    flops = flop_counts(shape, vocab_size)
    memory = needs.plan(micro)
    has_val = data is None or "val" in data.splits
    return RunCost(
        parameters=counted.total,
        non_embedding=counted.non_embedding,
        flops_per_token=flops.total,
        head_share=flops.head / flops.total,
        vocab_size=vocab_size,
        budget=budget,
        evaluations=milestones_of(budget.steps, training.evals, training.eval_spacing) if has_val else [],
        checkpoint_bytes=checkpoint_bytes(shape, vocab_size, positions),
        data=describe(shape, data, budget) if data else None,
        text=str(missing.text_path) if missing else None,
        needs=tuple(_needs(shape, missing, memory, is_here=is_here)),
        memory=memory,
        milestones=_milestones(shape, budget),
        together=together,
        smaller_vocabulary=None
        if is_own(arch)
        else smaller_vocabulary(model, arch, vocab_size, positions, training.seq_len, shape.tokenizer.name),
    )


def _room_here(training: Training, kept: Mapping[str, Any] | None, ranks_here: int) -> Room:
    with_gpu = expected_device(training, kept or {})[0] == "cuda"
    # Of what others hold: the entry that waits, and the other ranks, which have loaded torch by now.
    waiting = 0 if kept is None else ENTRY.in_bytes + (ranks_here - 1) * FRAMEWORK_BASE.in_bytes
    return room_here(own=True, gpu=with_gpu, waiting_bytes=waiting)


def _milestones(config: Config, budget: Budget) -> tuple[int, ...]:
    """Steps at which so many tokens were read first, of the counts within the budget."""
    steps = (-(-tokens // budget.batch_tokens) for tokens in milestone_tokens(config.training.milestones))
    return tuple(sorted({step for step in steps if step <= budget.steps}))


def _of_other_code(config: Config, folder: Path | None) -> Iterator[str]:
    """That the run is not resumed, because its code has changed."""
    if folder is None or config.again:
        return
    try:
        check_code(folder, config.code, quiet=True)
    except CodeChanged as changed:
        yield f"{REFUSED_HERE}: {changed}"


def _needs(config: Config, missing: Any, memory: MemoryPlan, *, is_here: bool) -> Iterator[str]:
    """is_here: it is planned for this machine."""
    if missing is not None and not config.dataset.auto_tokenize:
        yield f"Tokenize the text first: {missing.command}"
    if memory.problem is not None and config.memory.refuse:
        yield f"{DOES_NOT_FIT}: {memory.problem.what}. {ALL_THE_SAME}"
    foreseen = foreseen_problem(config.training.device) if is_here else None
    if foreseen is not None:
        yield f"{REFUSED_HERE}: {foreseen}"
    if is_here and config.training.device == "cuda" and not may_have_gpu():
        yield "Start it where a GPU is: training.device=cuda, and this machine has none"
    elif is_here and (config.training.device == "cpu" or not may_have_gpu()):
        threads = config.training.threads
        problem = other_bits(config.training, "cpu", available_threads() if threads == AUTO else int(threads))
        if problem is not None:
            yield f"{REFUSED_HERE}: {problem}"
