"""`python -m data_loading show SET`: what a run would read of it, and a batch of that as text."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    from data_loading.dataset.streaming_dataset import StreamingDataset
    from data_loading.tokenizers.tokenizer import Tokenizer

ROWS, CHARACTERS = 4, 240

EXAMPLES = """\
examples:
  python -m data_loading show Datasets/c4 --batch 0
  python -m data_loading show Datasets/c4.npy --split val --seq-len 128 --batch-size 2 --rows 2
  python -m data_loading show Datasets/c4 --batch 3 --json
"""


def add_parser(subparsers: Any) -> None:
    """The arguments of the command."""
    parser = subparsers.add_parser(
        "show",
        help="splits, lengths and a decoded batch of a dataset",
        description="Say what a run would read of a dataset, and print a batch of it as text.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "source",
        metavar="SET",
        help="what dataset.path takes: a token set, or a text with one; hf://ORG/NAME",
    )
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="which of epoch 0 (default: 0)")
    parser.add_argument("--split", default="train", metavar="NAME", help="train (default), val or test")
    parser.add_argument("--seq-len", type=int, default=1024, metavar="N", help="default: 1024")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="default: 32")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the order (default: 0)")
    parser.add_argument("--order", default="shuffled", metavar="HOW", help="shuffled (default) or sequential")
    parser.add_argument(
        "--val-tokens", type=int, metavar="N", help="held out as val (default: as the set was made; a tenth)"
    )
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help=f"shown (default: {ROWS})")
    parser.add_argument(
        "--tokenizer",
        metavar="NAME_OR_FOLDER",
        help="decodes it (default: the one in the set; of hf://: gpt2)",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON, with all ids of the rows")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print it; returns the exit status."""
    for name in ("seq_len", "batch_size", "rows", "val_tokens"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            raise UserError(
                f"--{name.replace('_', '-')} {getattr(arguments, name)}: expected 1 or more",
                code="flag-below-one",
            )
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed}: expected 0 or more", code="seed-negative")
    from data_loading.dataset.streaming_dataset import StreamingDataset
    from data_loading.hub.hub_uri import PREFIX

    if arguments.source.startswith(PREFIX) and arguments.split == "train":
        return _show_stream(arguments)
    dataset = StreamingDataset(
        arguments.source,
        arguments.split,
        arguments.seq_len,
        arguments.seed,
        val=arguments.val_tokens,
        order=arguments.order,
        tokenizer=arguments.tokenizer if arguments.source.startswith(PREFIX) else None,
    )
    batches = -(-len(dataset) // arguments.batch_size)
    if not 0 <= arguments.batch < batches:
        raise UserError(
            f"--batch {arguments.batch}: epoch 0 of {arguments.split} has {batches:,} batches of "
            f"{arguments.batch_size}, counted from 0",
            code="batch-out-of-range",
        )
    first = arguments.batch * arguments.batch_size
    batch = dataset.read(0, first, min(first + arguments.batch_size, len(dataset)))
    found = _facts(dataset, arguments, batches)
    found["rows"] = _rows(batch, arguments.rows, _tokenizer(dataset, arguments.tokenizer))
    found["shape"] = list(batch["input_ids"].shape)
    if arguments.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print("\n".join(_page(found)))
    return 0


def _show_stream(arguments: argparse.Namespace) -> int:
    """What a run would read of hf://..., as far as it is known before its end."""
    from data_loading.hub.stream import HubStream

    if arguments.batch < 0:
        raise UserError(f"--batch {arguments.batch}: batches are counted from 0", code="batch-negative")
    given = {} if arguments.tokenizer is None else {"tokenizer": arguments.tokenizer}
    stream = HubStream(
        arguments.source,
        arguments.seq_len,
        arguments.seed,
        val_tokens=arguments.val_tokens,
        order=arguments.order,
        **given,
    )
    loader = stream.loader(arguments.batch_size)
    batch = next(islice(loader, arguments.batch, None), None)
    if batch is None:
        raise UserError(
            f"--batch {arguments.batch}: epoch 0 has fewer batches of {arguments.batch_size}",
            code="batch-out-of-range",
        )
    found = {
        "path": str(stream.name),
        "revision": stream.revision,
        "tokens": None,
        "tokenizer": stream.tokenizer.name,
        "vocab_size": stream.tokenizer.vocab_size,
        "val_split": stream.val_split,
        "split": "train",
        "seq_len": arguments.seq_len,
        "batch_size": arguments.batch_size,
        "order": arguments.order,
        "batch": arguments.batch,
        "rows": _rows(batch, arguments.rows, stream.tokenizer),
        "shape": list(batch["input_ids"].shape),
    }
    if arguments.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return 0
    own = stream.val_split
    print(
        f"{stream.name} at {stream.revision[:12]}: how many tokens it has is known at its end, tokenizer ",
        end="",
    )
    print(f"{stream.tokenizer.name} of {stream.tokenizer.vocab_size:,} ids")
    print(f"val     its split {own}" if own else "val     its first documents, which train passes over")
    print(f"reader  streamed, {arguments.order}; nothing of it is kept on this machine")
    print("\n".join(_batch_lines(found)))
    return 0


def _facts(dataset: StreamingDataset, arguments: argparse.Namespace, batches: int) -> dict[str, Any]:
    data = dataset.data
    described = data.describe()
    seq_len = arguments.seq_len
    return {
        "path": described["path"],
        "tokens": described["tokens"],
        "dtype": described["dtype"],
        "documents": described["documents"],
        "tokenizer": described["tokenizer"],
        "vocab_size": described["vocab_size"],
        "splits": {
            split: {"tokens": data.tokens(split), "windows": data.windows(split, seq_len)}
            for split in data.splits
        },
        "split": arguments.split,
        "seq_len": seq_len,
        "batch_size": arguments.batch_size,
        "order": arguments.order,
        "epoch_windows": len(dataset),
        "epoch_batches": batches,
        "unread_tokens": data.tokens(arguments.split) - len(dataset) * seq_len,
        "reader": dataset.reader,
        "batch": arguments.batch,
    }


def _rows(batch: dict[str, torch.Tensor], rows: int, tokenizer: Tokenizer | None) -> list[dict[str, Any]]:
    shown = []
    for ids, labels in zip(batch["input_ids"][:rows].tolist(), batch["labels"][:rows].tolist(), strict=True):
        text = None if tokenizer is None else tokenizer.decode(ids)
        shown.append({"input_ids": ids, "labels": labels, "text": text})
    return shown


def _tokenizer(dataset: StreamingDataset, given: str | None) -> Tokenizer | None:
    """The one asked for, else the copy in the set; None where there is none."""
    from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec
    from data_loading.tokenizers.read_files import holds_tokenizer, read_tokenizer
    from data_loading.tokens.set_files import SetFiles
    from data_loading.tokens.token_set import TokenSet

    tokens, _ = dataset.data.ranges_of(dataset.split)
    if given is not None:
        found = load_tokenizer(tokenizer_spec(given))
        if found.vocab_size < tokens.vocab_size:
            raise UserError(
                f"--tokenizer {given} has {found.vocab_size:,} ids, and the set {tokens.vocab_size:,}: it "
                "was made with another one",
                code="tokenizer-vocabulary-differs",
            )
        return found
    if not isinstance(tokens, TokenSet):
        return None
    folder = SetFiles(tokens.path).tokenizer
    return read_tokenizer(folder, tokens.tokenizer_name) if holds_tokenizer(Path(folder)) else None


def _page(found: dict[str, Any]) -> list[str]:
    documents = "" if found["documents"] is None else f", {found['documents']:,} documents"
    lines = [
        f"{found['path']}: {found['tokens']:,} tokens ({found['dtype']}){documents}, tokenizer "
        f"{found['tokenizer']} of {found['vocab_size']:,} ids"
    ]
    for split, sizes in found["splits"].items():
        lines.append(
            f"{split:<8}{sizes['tokens']:,} tokens = {sizes['windows']:,} windows of {found['seq_len']:,}"
        )
    batches = f"{found['epoch_batches']:,} batch" + ("es" if found["epoch_batches"] != 1 else "")
    lines.append(
        f"epoch 0 {found['epoch_windows']:,} windows of {found['split']}, each once, {found['order']}: "
        f"{batches} of {found['batch_size']}; {found['unread_tokens']:,} tokens at the ends fill no window"
    )
    lines.append(f"reader  {found['reader']}")
    return [*lines, *_batch_lines(found)]


def _batch_lines(found: dict[str, Any]) -> list[str]:
    lines = [
        f"batch {found['batch']} of {found['split']}: input_ids and labels {tuple(found['shape'])}, int64"
    ]
    for number, row in enumerate(found["rows"]):
        text = row["text"]
        told = f"{row['input_ids'][:20]}..." if text is None else repr(_short(text))
        lines.append(f"  row {number}  {told}")
    return lines


def _short(text: str) -> str:
    return text if len(text) <= CHARACTERS else text[:CHARACTERS] + "..."
