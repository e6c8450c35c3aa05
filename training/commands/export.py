"""`python -m training export RUN --to hf`: write a trained model as a folder that transformers loads."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from experiment_utils.errors import UserError
from training.commands.arguments import add_checkpoint
from training.run.load_run import open_run

EXAMPLES = """\
examples:
  python -m training export 1a2b3c4d --to hf
  python -m training export 1a2b3c4d --to hf --output models/mine --checkpoint last

then:
  python -c "from transformers import pipeline; print(pipeline('text-generation', 'models/mine')('The'))"
  lm_eval --model hf --model_args pretrained=models/mine --tasks lambada_openai"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of `export`."""
    parser = subparsers.add_parser(
        "export",
        help="write a trained model for transformers",
        description="Write a trained model as one of transformers' own (llama, mistral, qwen2, qwen3, gpt2), "
        "read it back and compare its logits. An architecture that none of them computes is refused.",
        epilog=EXAMPLES,
    )
    add_checkpoint(parser)
    parser.add_argument("--to", choices=("hf",), default="hf", help="hf: a folder for transformers")
    parser.add_argument(
        "--output", metavar="DIR", help="folder to write (default: hf-step-N in the folder of the run)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Export and print the result.

    Raises:
        UserError: the run or checkpoint does not exist, transformers has no such model, or the folder exists
            or cannot be written.
    """
    from training.export.hugging_face import export

    saved = open_run(options.given, options.checkpoint)
    output = (
        Path(options.output).expanduser() if options.output else saved.folder / f"hf-step-{saved.step:08d}"
    )
    try:
        found = export(saved, output)
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"{output} cannot be written: {why}. Choose another folder with --output") from error
    if options.json:
        print(json.dumps({"output": str(output), **found}, indent=2))
        return 0
    place = shlex.quote(str(output))
    print(saved.words())
    print(
        f"{output}: a {found['model_type']} model of transformers. Read back, its logits are ours to "
        f"{found['largest_difference']:.1e} over {found['compared_tokens']} tokens"
    )
    print(f"next: lm_eval --model hf --model_args pretrained={place} --tasks lambada_openai")
    return 0
