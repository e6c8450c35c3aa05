"""`python -m training sample RUN --prompt TEXT`: text from a trained model, as it is drawn."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from experiment_utils.errors import UserError
from experiment_utils.typed_here import print_verbatim
from training.commands.arguments import add_run, opened

if TYPE_CHECKING:
    from data_loading import Tokenizer

TOKENS = 200

EXAMPLES = """\
examples:
  python -m training sample 1a2b3c4d --prompt "Once upon a time"
  python -m training sample 1a2b3c4d --tokens 500 --temperature 0.8 --top-p 0.95 --seed 1
  python -m training sample 1a2b3c4d --prompt "def " --temperature 0     always the most likely token
  python -m training sample 1a2b3c4d --prompt "17 3 5"                   of tokenizer=ids: ids"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "sample",
        help="text from a trained model",
        description="Text from a trained model, token by token, until its end of text.",
        epilog=EXAMPLES,
    )
    add_run(parser)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="what it goes on from")
    parser.add_argument(
        "--tokens", type=int, default=TOKENS, metavar="N", help=f"at most (default: {TOKENS})"
    )
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="default: 1; 0: greedy")
    parser.add_argument("--top-k", type=int, metavar="K", help="of the K most likely tokens")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="of those that have P together")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (default: 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object, at the end")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Draw and print.

    Raises:
        UserError: no such run or checkpoint, or a prompt that its tokenizer cannot read.
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

    from training.commands.generate import Choice, sample, text_of

    model = saved.model().to(device.torch_device)
    choice = Choice(options.temperature, options.top_k, options.top_p)
    generator = torch.Generator().manual_seed(options.seed)
    started = time.monotonic()
    drawn: list[int] = []
    ids = islice(sample(model, prompt, choice, generator), options.tokens)
    pieces = text_of(_until_end(ids, tokenizer, drawn), tokenizer, prompt)
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


def _until_end(ids: Iterator[int], tokenizer: Tokenizer, drawn: list[int]) -> Iterator[int]:
    """Up to the end of text; drawn: gets them."""
    for number in ids:
        if number in (tokenizer.eot_id, tokenizer.bos_id):
            return
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
