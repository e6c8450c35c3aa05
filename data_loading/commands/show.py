"""`python -m data_loading show SET`: what a run reads of a set, and a batch of it as text."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    from data_loading.dataset.streaming_dataset import StreamingDataset
    from data_loading.hub_stream.hub_stream import HubStream
    from data_loading.tokenizers.tokenizer import Tokenizer

ROWS, CHARACTERS = 4, 240

EXAMPLES = """\
examples:
  python -m data_loading show Datasets/c4 --batch 0
  python -m data_loading show Datasets/c4.npy --split val --seq-len 128 --batch-size 2 --rows 2
  python -m data_loading show Datasets/c4 --batch 3 --json
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to those of `python -m data_loading`."""
    parser = subparsers.add_parser(
        "show",
        help="splits, lengths and a decoded batch of a dataset",
        description="Show what a run reads of a dataset, and print a batch of it as text.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "source", metavar="SET", help="as dataset.path: a token set, or a text with one; hf://ORG/NAME"
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
    """Print it; returns the exit status. Raises UserError."""
    from data_loading.hub.hub_uri import PREFIX

    for name in ("seq_len", "batch_size", "rows", "val_tokens"):
        given = getattr(arguments, name)
        if given is not None and given < 1:
            raise UserError(
                f"--{name.replace('_', '-')} {given}: expected 1 or more",
                code="flag-below-one",
            )
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed}: expected 0 or more", code="seed-negative")
    is_stream = arguments.source.startswith(PREFIX) and arguments.split == "train"
    facts, lines = _of_stream(arguments) if is_stream else _of_set(arguments)
    if arguments.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        print("\n".join([*lines, *_batch_lines(facts)]))
    return 0


def _of_set(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Return (facts, lines about the set) of tokens in files."""
    from data_loading.dataset.streaming_dataset import StreamingDataset
    from data_loading.hub.hub_uri import PREFIX

    split, seq_len, batch_size = arguments.split, arguments.seq_len, arguments.batch_size
    is_stream = arguments.source.startswith(PREFIX)
    dataset = StreamingDataset(
        _stream(arguments).held_out_data() if is_stream else arguments.source,
        split,
        seq_len,
        arguments.seed,
        val=None if is_stream else arguments.val_tokens,
        order=arguments.order,
    )
    batches = -(-len(dataset) // batch_size)
    if not 0 <= arguments.batch < batches:
        raise UserError(
            f"--batch {arguments.batch}: epoch 0 of {split} has {batches:,} batches of {batch_size}, counted "
            "from 0",
            code="batch-out-of-range",
        )
    first, data = arguments.batch * batch_size, dataset.data
    batch = dataset.read(0, first, min(first + batch_size, len(dataset)))
    known = data.describe()
    splits = {
        name: {"tokens": data.tokens(name), "windows": data.windows(name, seq_len)} for name in data.splits
    }
    facts = {
        **{name: known[name] for name in ("path", "tokens", "dtype", "documents", "tokenizer", "vocab_size")},
        "splits": splits,
        "split": split,
        "seq_len": seq_len,
        "batch_size": batch_size,
        "order": arguments.order,
        "epoch_windows": len(dataset),
        "epoch_batches": batches,
        "unread_tokens": data.tokens(split) - len(dataset) * seq_len,
        "reader": dataset.reader,
        **_batch_facts(arguments, batch, _tokenizer(dataset, arguments.tokenizer)),
    }
    documents = "" if known["documents"] is None else f", {known['documents']:,} documents"
    lines = [
        f"{known['path']}: {known['tokens']:,} tokens ({known['dtype']}){documents}, tokenizer "
        f"{known['tokenizer']} of {known['vocab_size']:,} ids"
    ]
    for name, sizes in splits.items():
        lines.append(f"{name:<8}{sizes['tokens']:,} tokens = {sizes['windows']:,} windows of {seq_len:,}")
    lines.append(
        f"epoch 0 {len(dataset):,} windows of {split}, each once, {arguments.order}: {batches:,} "
        f"batch{'es' * (batches != 1)} of {batch_size}; {facts['unread_tokens']:,} tokens at the ends fill "
        "no window"
    )
    return facts, [*lines, f"reader  {dataset.reader}"]


def _of_stream(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Return (facts, lines about the stream) of hf://..., as far as they are known before its end."""
    if arguments.batch < 0:
        raise UserError(f"--batch {arguments.batch}: batches are counted from 0", code="batch-negative")
    stream = _stream(arguments)
    batch = next(islice(stream.loader(arguments.batch_size), arguments.batch, None), None)
    if batch is None:
        raise UserError(
            f"--batch {arguments.batch}: epoch 0 has fewer batches of {arguments.batch_size}",
            code="batch-out-of-range",
        )
    tokenizer, own = stream.tokenizer, stream.val_split
    facts = {
        "path": str(stream.name),
        "revision": stream.revision,
        "tokens": None,
        "tokenizer": tokenizer.name,
        "vocab_size": tokenizer.vocab_size,
        "val_split": own,
        "split": "train",
        "seq_len": arguments.seq_len,
        "batch_size": arguments.batch_size,
        "order": arguments.order,
        **_batch_facts(arguments, batch, tokenizer),
    }
    return facts, [
        f"{stream.name} at {stream.revision[:12]}: its number of tokens is known at its end, tokenizer "
        f"{tokenizer.name} of {tokenizer.vocab_size:,} ids",
        f"val     its split {own}" if own else "val     its first documents, which train skips",
        f"reader  streamed, {arguments.order}; nothing of it is stored on this machine",
    ]


def _stream(arguments: argparse.Namespace) -> HubStream:
    from data_loading.hub_stream.open_stream import open_stream

    return open_stream(
        arguments.source,
        arguments.seq_len,
        arguments.seed,
        tokenizer=arguments.tokenizer or "gpt2",
        val=arguments.val_tokens,
        order=arguments.order,
    )


def _batch_facts(
    arguments: argparse.Namespace, batch: dict[str, torch.Tensor], tokenizer: Tokenizer | None
) -> dict[str, Any]:
    rows = zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True)
    return {
        "batch": arguments.batch,
        "rows": [
            {"input_ids": ids, "labels": labels, "text": tokenizer.decode(ids) if tokenizer else None}
            for ids, labels in islice(rows, arguments.rows)
        ],
        "shape": list(batch["input_ids"].shape),
    }


def _batch_lines(facts: dict[str, Any]) -> list[str]:
    lines = [
        f"batch {facts['batch']} of {facts['split']}: input_ids and labels {tuple(facts['shape'])}, int64"
    ]
    for number, row in enumerate(facts["rows"]):
        text = row["text"]
        if text is not None and len(text) > CHARACTERS:
            text = text[:CHARACTERS] + "..."
        shown = f"{row['input_ids'][:20]}..." if text is None else repr(text)
        lines.append(f"  row {number}  {shown}")
    return lines


def _tokenizer(dataset: StreamingDataset, given: str | None) -> Tokenizer | None:
    """Return the tokenizer of --tokenizer, else the copy in the set, None if there is none."""
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
    return read_tokenizer(folder, tokens.tokenizer_name) if holds_tokenizer(folder) else None
