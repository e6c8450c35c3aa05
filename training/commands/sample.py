"""`python -m training sample RUN --prompt TEXT`: print text of a trained model while it is drawn."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import islice

from experiment_utils.errors import UserError
from experiment_utils.typed_here import print_verbatim
from training.commands.arguments import add_run, opened

TOKENS = 200

EXAMPLES = """\
examples:
  python -m training sample 1a2b3c4d --prompt "Once upon a time"
  python -m training sample 1a2b3c4d --temperature 0.8 --top-p 0.95
  python -m training sample 1a2b3c4d --temperature 0     most likely tokens
  python -m training sample 1a2b3c4d --prompt "17 3 5"   tokenizer=ids: ids"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of `sample`."""
    parser = subparsers.add_parser(
        "sample",
        help="text from a trained model",
        description="Draw text from a trained model, token by token, up to its end of text.",
        epilog=EXAMPLES,
    )
    add_run(parser)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="text to continue")
    parser.add_argument(
        "--tokens", type=int, default=TOKENS, metavar="N", help=f"most tokens to draw (default: {TOKENS})"
    )
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="default: 1; 0: greedy")
    parser.add_argument("--top-k", type=int, metavar="K", help="draw from the K most likely tokens")
    parser.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        metavar="P",
        help="draw from the most likely tokens with probability P together",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the draws (default: 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object, at the end")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Draw and print.

    Raises:
        UserError: the run or checkpoint does not exist, or its tokenizer cannot encode the prompt.
    """
    _check(options)
    saved, device = opened(options)
    tokenizer = saved.tokenizer()
    prompt = [int(number) for number in tokenizer.encode(options.prompt)]
    if not prompt:
        begin = tokenizer.eot_id if tokenizer.bos_id is None else tokenizer.bos_id
        if begin is None:
            raise UserError(
                f"--prompt: tokenizer {tokenizer.name} has no end of text that a document could begin "
                'after: give a beginning, for example --prompt "The"'
            )
        prompt = [begin]

    import torch

    from training.evaluation.generate import Choice, sample, text_of, until_end

    model = saved.model().to(device.torch_device)
    choice = Choice(options.temperature, options.top_k, options.top_p)
    generator = torch.Generator().manual_seed(options.seed)
    started = time.monotonic()
    drawn: list[int] = []
    ids = islice(sample(model, prompt, choice, generator), options.tokens)
    pieces = text_of(_noted(until_end(ids, tokenizer), drawn), tokenizer, prompt)
    if not options.json:
        print_verbatim(options.prompt)
        sys.stdout.flush()
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
        return 0
    text = "".join(pieces)
    result = {
        "run": str(saved.folder),
        "step": saved.step,
        "prompt": options.prompt,
        "text": text,
        "ids": drawn,
        "ended": len(drawn) < options.tokens,
        "tokens_per_s": round(len(drawn) / (time.monotonic() - started), 1),
    }
    print(json.dumps(result, indent=2, ensure_ascii=False))
    return 0


def _noted(ids: Iterator[int], drawn: list[int]) -> Iterator[int]:
    """The same ids, each added to `drawn`."""
    for number in ids:
        drawn.append(number)
        yield number


def _check(options: argparse.Namespace) -> None:
    if options.tokens < 1:
        raise UserError(f"--tokens {options.tokens}: expected 1 or more")
    if not options.temperature >= 0:
        raise UserError(f"--temperature {options.temperature}: expected 0 (greedy) or more")
    if options.top_k is not None and options.top_k < 1:
        raise UserError(f"--top-k {options.top_k}: expected 1 or more")
    if not 0 < options.top_p <= 1:
        raise UserError(f"--top-p {options.top_p}: expected more than 0, at most 1")
    if not 0 <= options.seed < 2**63:
        raise UserError(f"--seed {options.seed}: expected 0 to 2^63 - 1")
