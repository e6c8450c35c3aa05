"""Sources of a run's mixture: each is found, tokenized if needed, verified and split alone."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

from conf import schema
from conf.proportions import parse_milestone, parse_weights, weight_text
from data_loading.dataset.split_data import Data
from data_loading.find.locate import NotTokenized, locate
from data_loading.find.open_tokens import scheme_of
from data_loading.find.prepare import prepare_data
from data_loading.tokens.read_manifest import read_manifest
from experiment_utils.errors import Problem, UserError

_log = logging.getLogger("data_loading")


@dataclass(frozen=True)
class MixedData:
    """Tokens of a run of several sources."""

    is_counted: ClassVar[bool] = True
    names: list[str]
    """Names of the sources in metrics."""
    parts: list[Data]
    """Tokens of each source with their splits."""
    shares: dict[int, tuple[Fraction, ...]]
    """Weights from a number of tokens on; those from 0 on also weigh the losses on val and test."""
    when_dry: str
    fingerprint: str
    """Identity of all sources in their order."""

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """Weights from the start on."""
        return self.shares[0]

    @property
    def vocab_size(self) -> int:
        return self.parts[0].vocab_size

    @property
    def tokenizer_name(self) -> str:
        return self.parts[0].tokenizer_name

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that every source has."""
        return tuple(s for s in ("train", "val", "test") if all(s in part.splits for part in self.parts))

    def windows(self, split: str, seq_len: int, shift: int = 1) -> int:
        """Return the windows of all sources."""
        return sum(part.windows(split, seq_len, shift) for part in self.parts)

    def tokens(self, split: str) -> int:
        """Return the tokens of a split of all sources."""
        return sum(part.tokens(split) for part in self.parts)

    def describe(self) -> dict[str, Any]:
        """Return facts for run.json and for people; `sources` has those of each."""
        each = [part.describe() for part in self.parts]
        counts = ("file_bytes", "tokens", "train_tokens", "val_tokens", "test_tokens")
        documents = [facts["documents"] for facts in each]
        return {
            "path": ", ".join(facts["path"] for facts in each),
            "val_path": None,
            **{name: sum(facts[name] for facts in each) for name in counts},
            "dtype": each[0]["dtype"],
            "documents": None if None in documents else sum(documents),
            "tokenizer": self.tokenizer_name,
            "vocab_size": self.vocab_size,
            "fingerprint": self.fingerprint,
            "sets": [facts["sets"] for facts in each],
            "sources": [
                {"name": name, "weight": weight_text(weight), **facts}
                for name, weight, facts in zip(self.names, self.weights, each, strict=True)
            ],
        }


def prepare_run(
    dataset: schema.Dataset,
    tokenizer: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None] = _log.info,
    versions: Sequence[Any] = (),
) -> Data | MixedData:
    """Return the tokens of a run: `prepare_data` for its dataset, or for each source of a mixture.

    versions: `sets` that the run began with, as `describe` returns them.

    Raises:
        NotTokenized, UserError: as `prepare_data`; for a mixture, all problems of all sources.
    """
    if dataset.source == "mix":
        return prepare_mixture(dataset, tokenizer, tokenize=tokenize, log=log, versions=versions)
    return prepare_data(dataset, tokenizer, tokenize=tokenize, log=log, versions=versions)


def prepare_mixture(
    dataset: schema.Dataset,
    tokenizer: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None] = _log.info,
    versions: Sequence[Sequence[str]] = (),
) -> MixedData:
    """Find, verify and split each source of `dataset.sources`, as `prepare_data` does with one.

    versions: those of the sets of each source.

    Raises:
        NotTokenized: for the first source that is only text, if nothing else is wrong.
        UserError: all problems of all sources, each with its name; two sources are the same tokens, or have
            different vocabularies.
    """
    _check_one_vocabulary(dataset)
    parts: list[Data] = []
    problems: list[Problem] = []
    missing: NotTokenized | None = None
    for i, source in enumerate(dataset.sources):
        kept = versions[i] if i < len(versions) else ()
        try:
            alone = named_source(dataset, source)
            parts.append(
                prepare_data(alone, tokenizer, tokenize=tokenize, log=log, versions=kept, is_alone=False)
            )
            if not parts[-1].is_counted:
                raise UserError(
                    "a mixture needs the number of tokens of each source, and that of a stream is unknown. "
                    f"Make a token set of it: python -m data_loading materialize {alone.path}",
                    code="mixture-of-streams",
                )
        except NotTokenized as error:
            missing = missing or error
        except UserError as error:
            where = f"dataset.sources: {source}"
            problems += [Problem(where, str(problem), problem.code) for problem in error.problems]
    if problems:
        raise UserError(*problems)
    if missing is not None:
        raise missing
    _check_different(dataset.sources, parts)
    milestones = map(parse_milestone, dataset.curriculum)
    described = " ".join(part.fingerprint for part in parts)
    return MixedData(
        names=names_of(dataset.sources),
        parts=parts,
        shares={
            0: parse_weights(dataset.weights, zero=bool(dataset.curriculum)),
            **{milestone.tokens: milestone.weights for milestone in milestones},
        },
        when_dry=dataset.when_dry,
        fingerprint=hashlib.sha256(f"mixture {described}".encode()).hexdigest(),
    )


def names_of(sources: Sequence[str]) -> list[str]:
    """Return names for metrics: the last part of a path without its suffix, if these differ."""
    short = [Path(source).name.removesuffix(".npy").removesuffix(".txt") for source in sources]
    return short if all(short) and len(set(short)) == len(short) else list(sources)


def named_source(dataset: schema.Dataset, source: str) -> schema.Dataset:
    """Return the configuration of one source alone. source: a value of `dataset=` or `dataset.path=`."""
    is_path = scheme_of(source) is not None or "/" in source or Path(source).expanduser().exists()
    is_file = source.endswith((".npy", ".txt"))
    kind = "stdlib" if source == "stdlib" else "text"
    return replace(
        dataset,
        name=source,
        source=kind,
        path=source if (is_path or is_file) and kind == "text" else None,
        sources=[],
        weights=[],
        curriculum=[],
    )


def _check_one_vocabulary(dataset: schema.Dataset) -> None:
    """Compare the vocabularies of the sets that exist, by their manifests. Raises UserError: two differ."""
    made: dict[str, tuple[str, Path]] = {}
    for source in dataset.sources:
        alone = named_source(dataset, source)
        if alone.source == "stdlib" or (alone.path is not None and scheme_of(alone.path) is not None):
            continue
        with suppress(UserError):  # it is reported when the source itself is prepared
            place = locate(alone)[0]
            manifest = read_manifest(place.tokens) if place.is_tokenized else None
            if manifest is not None:
                facts = manifest["tokenizer"]
                made.setdefault(
                    facts["content_hash"], (f"{facts['name']} ({facts['vocab_size']:,} ids)", place.tokens)
                )
    if len(made) > 1:
        said = " and ".join(f"{path} was made with tokenizer {name}" for name, path in made.values())
        raise UserError(
            Problem(
                "dataset.sources",
                f"sources of a mixture share one vocabulary, but {said}. Make one of them again with the "
                "tokenizer of the other: python pretokenize_dataset.py TEXT --tokenizer NAME --output F.npy",
                code="mixture-tokenizers-differ",
            )
        )


def _check_different(sources: Sequence[str], parts: Sequence[Data]) -> None:
    seen: dict[str, str] = {}
    for source, part in zip(sources, parts, strict=True):
        if part.train.fingerprint in seen:
            raise UserError(
                Problem(
                    "dataset.sources",
                    f"{seen[part.train.fingerprint]} and {source} are the same tokens: give them once, "
                    "with the sum of their weights",
                    code="mixture-source-twice",
                )
            )
        seen[part.train.fingerprint] = source
        if part.vocab_size != parts[0].vocab_size:
            raise UserError(
                Problem(
                    "dataset.sources",
                    f"sources of a mixture share one vocabulary, but {sources[0]} has "
                    f"{parts[0].vocab_size:,} ids and {source} {part.vocab_size:,}",
                    code="mixture-vocabularies-differ",
                )
            )
