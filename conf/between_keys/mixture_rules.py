"""What a mixture of sources must hold, before any of them is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from conf.proportions import parse_milestone, parse_weights
from conf.schema import Config, Dataset
from experiment_utils.errors import Problem
from experiment_utils.quantities import counted

KEYS_OF_A_MIXTURE = (
    "source", "sources", "weights", "curriculum", "when_dry", "path", "val_path", "repeat", "windows",
)  # fmt: skip


def whole_mixture(config: Config) -> list[Problem]:
    """A mixture has sources, as many weights as these, and nothing that belongs to one set alone."""
    dataset, plain = config.dataset, Dataset()
    if dataset.source != "mix":
        return [
            Problem(
                f"dataset.{name}", f"goes with dataset=mix, which reads several sources, not {dataset.name}"
            )
            for name in ("sources", "weights", "curriculum", "when_dry")
            if getattr(dataset, name) != getattr(plain, name)
        ]
    if not dataset.sources:
        example = "dataset.sources=[Datasets/one.npy,Datasets/other.npy] dataset.weights=[0.7,0.3]"
        return [
            Problem("dataset.sources", f"dataset={dataset.name} reads several sources: give them: {example}")
        ]
    problems = [
        Problem(f"dataset.{name}", f"dataset={dataset.name} has sources of its own: {instead}")
        for name, is_given, instead in (
            ("path", dataset.path is not None, "give it in dataset.sources"),
            ("val_path", dataset.val_path is not None, "each holds a part out (dataset.val_fraction)"),
            ("repeat", dataset.repeat, "dataset.when_dry=repeat reads them more than once"),
            ("windows", dataset.windows != "plain", "they are read in plain windows"),
        )
        if is_given
    ]
    twice = sorted({name for name in dataset.sources if dataset.sources.count(name) > 1})
    if twice:
        problems.append(
            Problem("dataset.sources", f"{', '.join(twice)} twice: give it once, with the sum of its weights")
        )
    return [*problems, *_wrong_weights(dataset)]


def _wrong_weights(dataset: Dataset) -> list[Problem]:
    n = len(dataset.sources)
    if not dataset.weights:
        equal = ",".join([f"1/{n}" if n > 1 else "1"] * n)
        told = f"{counted(n, 'source')} without weights: give one for each: dataset.weights=[{equal}]"
        return [Problem("dataset.weights", told)]
    problems: list[Problem] = []
    weights: list[tuple[Fraction, ...]] = []
    other = [*_other_number("dataset.weights", "", dataset.weights, dataset.sources)]
    try:
        weights.append(parse_weights(dataset.weights, zero=bool(dataset.curriculum)))
    except ValueError as error:
        problems += [] if other else [Problem("dataset.weights", str(error))]
    problems += other
    last = 0
    for text in dataset.curriculum:
        try:
            milestone = parse_milestone(text)
        except ValueError as error:
            problems.append(Problem("dataset.curriculum", f"{text}: {error}"))
            continue
        weights.append(milestone.weights)
        problems += _other_number("dataset.curriculum", f"{text}: ", milestone.weights, dataset.sources)
        if milestone.tokens <= last:
            what = (
                f"expected more than {last:,} tokens: dataset.weights hold from 0 on, then milestones ascend"
            )
            problems.append(Problem("dataset.curriculum", f"{text}: {what}"))
        last = milestone.tokens
    if problems:
        return problems
    return [
        Problem("dataset.weights", f"{source} has weight 0 from the start to the end: leave it out")
        for source, *its in zip(dataset.sources, *weights, strict=True)
        if not any(its)
    ]


def _other_number(
    where: str, which: str, weights: Sequence[Fraction | str], sources: Sequence[str]
) -> Iterator[Problem]:
    if len(weights) != len(sources):
        what = f"{which}{counted(len(weights), 'weight')} for {counted(len(sources), 'source')}"
        yield Problem(where, f"{what} ({', '.join(sources)}): expected one for each")
