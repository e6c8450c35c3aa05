"""`python -m training eval RUN`: the loss of a trained model on any tokens of its vocabulary."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.schema import Dataset
from experiment_utils.errors import UserError
from experiment_utils.quantities import parse_count
from training.commands.arguments import add_run, opened

if TYPE_CHECKING:
    from data_loading import Data, MixedData
    from training.evaluation.evaluate import Evaluation
    from training.run.load_run import SavedRun

ALL = "all"
BATCH_TOKENS = 4096
"""Default size of a batch."""

EXAMPLES = """\
examples:
  python -m training eval 1a2b3c4d                 its val split
  python -m training eval 1a2b3c4d --tokens all    all of it
  python -m training eval 1a2b3c4d --by-position --json
  python -m training eval 1a2b3c4d --dataset code.txt --split train
  python -m training eval 1a2b3c4d --harness lm-eval --tasks arc_easy

A text of --dataset is tokenized with the tokenizer of the run.
Bits a byte compare models of different tokenizers; loss and perplexity do
not."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of `eval`."""
    parser = subparsers.add_parser(
        "eval",
        help="loss, perplexity and bits a byte of a trained model",
        description="Loss, perplexity and bits a byte of a trained model, in fp32, over windows in order.",
        epilog=EXAMPLES,
    )
    add_run(parser)
    parser.add_argument(
        "--dataset",
        metavar="WHAT",
        help="value of dataset= or dataset.path= (default: that of the run, at the version it began with)",
    )
    parser.add_argument("--split", default="val", metavar="NAME", help="val (default), test or train")
    parser.add_argument(
        "--tokens", metavar="N", help="most tokens to read, or all (default: training.eval_tokens of the run)"
    )
    parser.add_argument(
        "--seq-len", type=int, metavar="N", help="length of a window (default: that of the run)"
    )
    parser.add_argument("--batch-size", type=int, metavar="N", help="windows per batch; changes no result")
    parser.add_argument(
        "--by-position", action="store_true", help="also show the loss by position in the window"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    harness = parser.add_argument_group(
        "tasks of another harness, run on the model exported for transformers"
    )
    harness.add_argument("--harness", choices=("lm-eval",), help="EleutherAI's lm-eval, if it is installed")
    harness.add_argument("--tasks", metavar="A,B", help="tasks of the harness")
    harness.add_argument("--num-fewshot", type=int, metavar="N", help="examples before each question")
    harness.add_argument("--limit", type=float, metavar="N", help="examples of each task; below 1: a share")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print.

    Raises:
        UserError: the run, checkpoint, data or split does not exist.
    """
    if options.harness is not None:
        return _by_harness(options)
    for name in ("tasks", "num_fewshot", "limit"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} goes with --harness lm-eval")
    for name in ("seq_len", "batch_size"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} {getattr(options, name)}: expected 1 or more")
    tokens = _tokens(options.tokens)
    saved, device = opened(options)
    config = saved.config
    seq_len = options.seq_len or config.training.seq_len
    longest = config.arch.max_positions or config.training.seq_len
    if seq_len > longest:
        raise UserError(
            f"--seq-len {seq_len}: the model has {longest:,} positions (arch.max_positions, else "
            "training.seq_len of the run)"
        )
    model = saved.model().to(device.torch_device)
    with saved.at_home() if options.dataset is None else nullcontext():
        data = _data(saved, options.dataset)
        if options.split not in ("train", *data.splits):
            raise UserError(f"--split {options.split}: choices are {', '.join(data.splits)}")

        from training.evaluation.evaluate import evaluate, evaluation_windows, held_out, mean_of

        config = replace(config, training=replace(config.training, seq_len=seq_len))
        sets = held_out(data, options.split, config)
        wanted = tokens or config.training.eval_tokens
        found = [
            evaluate(
                model,
                one.dataset,
                windows=len(one.dataset)
                if tokens == 0
                else evaluation_windows(len(one.dataset), wanted, seq_len),
                batch_size=options.batch_size or max(1, BATCH_TOKENS // seq_len),
                loss_chunk=int(saved.facts["auto"]["loss_chunk"]),
                device=device,
                bytes_per_id=one.bytes_per_id,
                by_position=options.by_position,
            )
            for one in sets
        ]
        path = Path(shown := str(data.describe()["path"]))
        place = path.absolute() if path.exists() and not path.is_absolute() else None
    mean = found[0] if len(sets) == 1 else mean_of(sets, found)
    if place is not None:
        shown = os.path.relpath(place)  # relative to the user's folder, no longer to that of the run
    by_source = {one.source: of for one, of in zip(sets, found, strict=True)}
    if options.json:
        head = {
            "run": str(saved.folder),
            "identity": saved.facts.get("identity"),
            "step": saved.step,
            "is_best": saved.is_best,
            "data": shown,
            "split": options.split,
            "seq_len": seq_len,
        }
        print(json.dumps(_as_json(head, by_source, mean), indent=2))
    else:
        print(saved.words())
        print(
            f"{shown}, {options.split}: {mean.tokens:,} tokens in windows of {seq_len:,}, "
            f"{mean.seconds:.1f} s"
        )
        print("\n".join(_page(by_source, mean)))
    return 0


def _by_harness(options: argparse.Namespace) -> int:
    """Measure tasks of lm-eval and store the results in the folder of the run."""
    from training.commands.lm_eval import measure, words
    from training.run.load_run import open_run

    if not options.tasks:
        raise UserError("--harness lm-eval needs --tasks A,B. Tasks: python -m lm_eval --tasks list")
    for name in ("dataset", "tokens", "seq_len", "threads", "by_position"):
        if getattr(options, name):
            raise UserError(
                f"--{name.replace('_', '-')} does not go with --harness: the tasks decide what is read"
            )
    saved = open_run(options.given, options.checkpoint)
    given = {name: getattr(options, name) for name in ("tasks", "num_fewshot", "limit", "batch_size")}
    path, results = measure(saved, given | {"device": None if options.device == "auto" else options.device})
    if options.json:
        facts = {"run": str(saved.folder), "identity": saved.facts.get("identity"), "step": saved.step}
        print(json.dumps({**facts, "file": str(path), "results": results}, indent=2))
    else:
        print("\n".join([saved.words(), *words(results), f"kept in {path}"]))
    return 0


def _tokens(given: str | None) -> int | None:
    """Number of tokens; None: that of the run, 0: all."""
    if given is None:
        return None
    if given == ALL:
        return 0
    try:
        found = parse_count(given)
    except ValueError as error:
        raise UserError(f"--tokens {given}: {error}. Or all") from error
    if found < 1:
        raise UserError(f"--tokens {given}: expected 1 or more, or all")
    return found


def _data(saved: SavedRun, given: str | None) -> Data | MixedData:
    from data_loading import named_source, prepare_run

    config = saved.config
    if given is None:
        kept = (saved.facts.get("data") or {}).get("sets", ())
        data = prepare_run(config.dataset, config.tokenizer, tokenize=False, versions=kept)
    else:
        # Documents and labels are cut as in the run; only the place of the tokens is another.
        elsewhere = replace(config.dataset, val_path=None, dtype=Dataset().dtype)
        data = prepare_run(
            named_source(elsewhere, given),
            saved.tokenizer_config,
            tokenize=config.dataset.auto_tokenize,
        )
    if data.vocab_size != saved.vocab_size:
        raise UserError(
            f"{given or 'the data of the run'} has {data.vocab_size:,} ids and the model "
            f"{saved.vocab_size:,}: tokenize it with the run's tokenizer, {config.tokenizer.name}"
        )
    return data


def _as_json(head: dict[str, Any], found: Mapping[str, Evaluation], mean: Evaluation) -> dict[str, Any]:
    """The printed object. head: run, checkpoint and data. found: source -> its evaluation."""
    sources = {"sources": {source: _numbers(of) for source, of in found.items()}} if len(found) > 1 else {}
    return {**head, **_numbers(mean), **sources}


def _numbers(of: Evaluation) -> dict[str, Any]:
    return {
        "loss": of.loss,
        "perplexity": of.perplexity,
        "bits_per_byte": of.bits_per_byte,
        "bytes_per_token": of.bytes_per_token,
        "eval_tokens": of.tokens,
        "seconds": round(of.seconds, 3),
        **({"by_position": list(of.by_position)} if of.by_position else {}),
    }


def _page(found: Mapping[str, Evaluation], mean: Evaluation) -> list[str]:
    """Lines with the losses, those of sources first, and tables by position."""
    lines = [f"{source:<16}{_words(of)}" for source, of in found.items()] if len(found) > 1 else []
    lines.append(_words(mean))
    for source, of in found.items():
        if of.by_position:
            lines += ["", f"{'position':<14}{'loss':>8}{'tokens':>12}  {source}"]
        lines += [
            f"{_range(bucket):<14}{bucket['loss']:>8.4f}{bucket['tokens']:>12,}" for bucket in of.by_position
        ]
    return lines


def _words(of: Evaluation) -> str:
    bits = "" if of.bits_per_byte is None else f", {of.bits_per_byte:.4f} bits a byte"
    return f"loss {of.loss:.4f} nats a token (perplexity {of.perplexity:.4g}{bits})"


def _range(bucket: dict[str, Any]) -> str:
    first, last = bucket["first"], bucket["last"]
    return f"{first:,}" if first == last else f"{first:,}-{last:,}"
