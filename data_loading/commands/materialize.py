"""`python -m data_loading materialize NAME`: a dataset of the hub as a token set below Datasets/."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

EXAMPLES = """\
examples:
  python -m data_loading materialize tiny_shakespeare --tokenizer bytes
  python -m data_loading materialize fineweb-edu --max-tokens 1B
  python -m data_loading materialize hf://ORG/NAME:CONFIG --output Datasets/mine.npy

If it is interrupted, the same command resumes. pretokenize_dataset.py hf://... does the same with more
options (shards, cleaning, duplicates, other formats).
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to those of `python -m data_loading`."""
    parser = subparsers.add_parser(
        "materialize",
        help="tokenize a dataset of the hub once",
        description="Tokenize a dataset of the hub once, into a token set below Datasets/.",
        epilog=EXAMPLES,
    )
    parser.add_argument("source", metavar="NAME", help="a known name, or hf://ORG/NAME[:CONFIG][@REVISION]")
    parser.add_argument("--tokenizer", default="gpt2", metavar="NAME_OR_FOLDER", help="default: gpt2")
    parser.add_argument("--output", metavar="FILE.npy", help="default: Datasets/NAME.npy")
    parser.add_argument("--split", metavar="NAME", help="default: train")
    parser.add_argument("--text-field", metavar="NAME", help="the field with the text (default: text)")
    parser.add_argument("--max-tokens", metavar="N", help="end with the document of token N, such as 1B")
    parser.add_argument("--max-documents", metavar="N", help="end after N documents, such as 1M")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: all cores; 0: none)")
    parser.add_argument("--overwrite", action="store_true", help="replace a set made from something else")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Tokenize and print a summary; returns the exit status. Raises UserError."""
    from data_loading.hub_stream.materializing import materialize
    from data_loading.pretokenizer.inputs.cli_flags import count_of
    from data_loading.pretokenizer.summary import facts_of, summary_of

    limits = {
        name: None if given is None else count_of(given, f"--{name.replace('_', '-')}", 1)
        for name, given in (("max_tokens", arguments.max_tokens), ("max_documents", arguments.max_documents))
    }
    result = materialize(
        arguments.source,
        arguments.tokenizer,
        arguments.output,
        split=arguments.split,
        text_field=arguments.text_field,
        workers=arguments.workers,
        overwrite=arguments.overwrite,
        log=lambda line: print(line, file=sys.stderr, flush=True),
        **limits,
    )
    print(json.dumps(facts_of(result), indent=2) if arguments.json else summary_of(result))
    return 0
