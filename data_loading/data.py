"""From a configuration to tokens ready to read: found, tokenized where needed, verified, split."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import durable
from conf import AUTO, UserError, schema
from data_loading.foreign.foreign_set import open_foreign
from data_loading.foreign.layout import Asked
from data_loading.foreign.sides import foreign_paths, open_sides, refuse_dtype
from data_loading.hub_name import PREFIX as HUB
from data_loading.ids_alone import ids_of, open_ids_alone
from data_loading.ids_tokenizer import IDS
from data_loading.locate import DEFAULT_FOLDER, Place, foreign_at, locate
from data_loading.lookup import KNOWN, load_tokenizer, name_of
from data_loading.opening import open_uri, scheme_of
from data_loading.pretokenizer.find_inputs import InputOptions, open_inputs
from data_loading.pretokenizer.job import command_for, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.source import Source
from data_loading.pretokenizer.stdlib_source import StdlibSource, default_name
from data_loading.remote.address import is_remote
from data_loading.remote.for_run import open_for_run
from data_loading.set_files import SetFiles
from data_loading.splits import Share, Splits, hold_out, other_ranges, split_set, tokens_of
from data_loading.token_set import TokenSet, open_token_set
from data_loading.tokenizer import Tokenizer
from data_loading.tokenizer_for import tokenizer_for
from data_loading.tokens import Tokens
from data_loading.values import Values
from data_loading.verify import verify, verify_text
from data_loading.windows import windows_in

_log = logging.getLogger("data_loading")
_LONGEST_WAIT_S = 7 * 86400.0
_COMPARED_IDS = 1 << 22


class NotTokenized(UserError):
    """There is a text, but no token file yet. command: what makes one, with ids below vocab_size."""

    def __init__(
        self, text_path: Path | str, text_bytes: int | None, command: str, vocab_size: int | None = None
    ) -> None:
        """text_bytes: None where nothing says."""
        self.text_path, self.text_bytes, self.command = text_path, text_bytes, command
        self.vocab_size = vocab_size
        size = "" if text_bytes is None else f" ({text_bytes / 1e6:,.1f} MB)"
        super().__init__(f"{text_path}{size} is not tokenized yet. Tokenize it once: {command}")


@dataclass(frozen=True)
class Data:
    """Tokens of a run. Ranges are token indices into their set, ascending; where val is a part of train
    they are disjoint ranges of the same set.

    fingerprint: of both sets and the vocabulary; independent of paths. is_counted: whether it is known how
    many tokens there are; of a stream it is not.
    """

    is_counted: ClassVar[bool] = True
    train: Tokens
    train_ranges: tuple[range, ...]
    val: Tokens
    val_ranges: tuple[range, ...]
    vocab_size: int
    eot_id: int | None
    tokenizer_name: str
    fingerprint: str
    test_ranges: tuple[range, ...] = ()

    def ranges_of(self, split: str) -> tuple[Tokens, tuple[range, ...]]:
        """The set and ranges of `train`, `val` or `test`; test is a part of the set of train.

        Raises:
            UserError: another name, or nothing is held out as test.
        """
        if split == "train":
            return self.train, self.train_ranges
        if split == "val":
            return self.val, self.val_ranges
        if split == "test" and self.test_ranges:
            return self.train, self.test_ranges
        if split == "test":
            raise UserError(
                f"{self.train.name} has no test split: hold one out with dataset.test_fraction=0.05 or "
                "dataset.test_tokens=1M (in Python test=0.05)"
            )
        raise UserError(f"split {split!r}: choices are train, val, test")

    @property
    def parts(self) -> list[Data]:
        """Itself: a mixture has several."""
        return [self]

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that there are."""
        return ("train", "val", "test") if self.test_ranges else ("train", "val")

    def windows(self, split: str, seq_len: int, shift: int = 1) -> int:
        """Windows of `seq_len` inputs and as many labels, none across the end of a range."""
        _, ranges = self.ranges_of(split)
        return sum(windows_in(len(tokens), seq_len, shift=shift) for tokens in ranges)

    def tokens(self, split: str) -> int:
        """Tokens of a split."""
        _, ranges = self.ranges_of(split)
        return sum(map(len, ranges))

    def describe(self) -> dict[str, Any]:
        """Facts for run.json and for people."""
        sets = [self.train] if self.val is self.train else [self.train, self.val]
        documents = [len(s.documents) for s in sets if s.documents is not None]
        return {
            "path": self.train.name,
            "val_path": self.val.name if self.val is not self.train else None,
            "file_bytes": sum(s.file_bytes for s in sets),
            "dtype": self.train.tokens.dtype.name,
            "tokens": sum(s.n_tokens for s in sets),
            "documents": sum(documents) if len(documents) == len(sets) else None,
            "train_tokens": self.tokens("train"),
            "val_tokens": self.tokens("val"),
            "test_tokens": sum(map(len, self.test_ranges)),
            "tokenizer": self.tokenizer_name,
            "vocab_size": self.vocab_size,
            "fingerprint": self.fingerprint,
            "sets": [found.fingerprint for found in sets],
        }


def prepare_data(
    dataset: schema.Dataset,
    tokenizer: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None] = _log.info,
    versions: Sequence[str] = (),
) -> Data:
    """Find, verify and split the tokens of a dataset.

    tokenize: make missing token files (where dataset.auto_tokenize allows it); two processes do not
    both do it: the second waits for the first. versions: fingerprints of the sets that a run began with,
    train and val: it goes on with these where more was appended since.

    Raises:
        NotTokenized: there is only text, and it is not to be tokenized now.
        UserError: nothing found, or what was found does not fit the text, the tokenizer or itself.
    """
    if is_of_hub(dataset):
        from data_loading.hub_data import settle_hub

        found = settle_hub(dataset, tokenizer, tokenize=tokenize, log=log, versions=versions)
        if isinstance(found, Data):
            return found
        dataset = found
    loaded, has_uri = None, dataset.path is not None and scheme_of(dataset.path) is not None
    foreign = (None, None) if has_uri and dataset.dtype == AUTO else foreign_paths(dataset)
    if dataset.path is not None and is_remote(dataset.path):
        fetched, spoken = open_for_run(dataset, tokenizer)
        val = fetched[1] if len(fetched) > 1 else None
        return split_data(fetched[0], val, spoken or ids_of(fetched), *shares(dataset))
    if tokenizer.name != IDS and (has_uri or any(foreign)):
        loaded = load_tokenizer(tokenizer)
    known = loaded.vocab_size if loaded else None
    if has_uri:
        assert dataset.path is not None
        sets: Sequence[Tokens] = _of_uris(dataset.path, dataset.val_path, known)
    elif any(foreign):

        def of_paths(side: schema.Dataset) -> Sequence[Tokens]:
            return _of_places(locate(side), side, tokenizer, loaded, tokenize=tokenize, log=log)

        sets = open_sides(dataset, foreign, known, of_paths)
    else:
        if dataset.source == "stdlib":
            places: tuple[Place, Place | None] = _stdlib_place(dataset, tokenizer), None
        else:
            places = locate(dataset)
        places = _at_versions(places, versions)
        if tokenizer.name != IDS:
            loaded = tokenizer_for(tokenizer, places[0])
        sets = _of_places(places, dataset, tokenizer, loaded, tokenize=tokenize, log=log)
    return split_data(sets[0], sets[1] if len(sets) > 1 else None, loaded or ids_of(sets), *shares(dataset))


def _of_places(
    places: Sequence[Place | None],
    dataset: schema.Dataset,
    spec: schema.Tokenizer,
    loaded: Tokenizer | None,
    *,
    tokenize: bool,
    log: Callable[[str], None],
) -> Sequence[Tokens]:
    """The sets of ours at these places. loaded: None: only their ids are wanted."""
    there = [place for place in places if place]
    if loaded is None:
        return open_ids_alone(there, dataset)
    return [_token_set(dataset, place, loaded, spec, tokenize=tokenize, log=log) for place in there]


def _of_uris(train: str, val: str | None, vocab_size: int | None) -> list[Tokens]:
    if val is not None and scheme_of(val) is None:
        raise UserError(
            f"dataset.val_path={val} is a path, and dataset.path={train} is none. Give both as paths or both "
            "as URIs, or leave val_path out: then a part of the training tokens is held out"
        )
    return [open_uri(uri, vocab_size) for uri in (train, val) if uri is not None]


def is_of_hub(dataset: schema.Dataset) -> bool:
    """Whether it may be read from the hub: its path is `hf://...`, or it has none and is known there."""
    return dataset.source == "hf" or (dataset.path or "").startswith(HUB)


def shares(dataset: schema.Dataset) -> tuple[Share, Share]:
    """What is held out as val and test, as `split_data` takes it."""
    val = dataset.val_fraction if dataset.val_tokens is None else dataset.val_tokens
    test = dataset.test_fraction if dataset.test_tokens is None else dataset.test_tokens
    return val, test


def _at_versions(places: tuple[Place, Place | None], versions: Sequence[str]) -> tuple[Place, Place | None]:
    train, val = places
    if versions and train.version is None:
        train = replace(train, version=versions[0])
    if len(versions) > 1 and val is not None and val.version is None:
        val = replace(val, version=versions[1])
    return train, val


def open_for_reading(source: str, val: Share | None, test: Share = 0) -> Data:
    """The tokens of a path or URI, whichever tokenizer they were made with; nothing is tokenized.

    val, test: as in `split_data`.

    Raises:
        NotTokenized: there is only a text.
        UserError: nothing there, or it does not fit its text.
    """
    if scheme_of(source) is not None:
        return split_data(open_uri(source), None, None, val, test)
    sets = open_sets(source)
    return split_data(sets[0], sets[1] if len(sets) > 1 else None, None, val, test)


def open_sets(path: str, vocab_size: int | None = None, dtype: str = AUTO) -> list[Tokens]:
    """The tokens of a path: one set, or train and val.

    vocab_size: of the tokenizer of a lone file; None: one more than its largest id. dtype: of raw ids.

    Raises:
        NotTokenized: there is only a text.
        UserError: nothing there, or it does not fit its text.
    """
    foreign = foreign_at(path, dtype)
    if foreign is not None:
        return [*open_foreign(foreign, Asked(dtype, vocab_size))]
    if dtype != AUTO:
        refuse_dtype(f"dtype {dtype}", path)
    dataset = schema.Dataset(source="text", path=path)
    sets: list[Tokens] = []
    for place in locate(dataset):
        if place is None:
            continue
        if not place.is_tokenized:
            assert place.text is not None
            command = command_for(str(place.text), "NAME_OR_FOLDER")
            raise NotTokenized(place.text, place.text.stat().st_size, command)
        found = open_token_set(place.tokens, vocab_size, place.version)
        verify_text(found, place, command_for(str(place.text), "NAME_OR_FOLDER"))
        sets.append(found)
    return sets


def split_data(
    train: Tokens, val_set: Tokens | None, tokenizer: Tokenizer | None, val: Share | None, test: Share = 0
) -> Data:
    """The splits of one set, or train and test of one and another as val. tokenizer: None: as train
    says.

    val: what is held out of a lone set; None: the default share. A set that was made with a held-out part of
    its own keeps it, unless another share than the default is asked for. test: is taken from what remains.

    Raises:
        UserError: not enough tokens for what is to be held out, or the two sets are the same.
    """
    if val_set is not None and (
        train.fingerprint == val_set.fingerprint
        or train.overlaps(val_set)
        or _same_tokens(train.tokens, val_set.tokens)
    ):
        raise UserError(
            f"train and val are the same text: {train.name} and {val_set.name}. Give dataset.val_path "
            "another text, or leave it out: then the last part of the training text is held out "
            "(dataset.val_fraction)"
        )
    try:
        splits = _splits(train, val_set, val, test)
    except UserError as error:
        raise UserError(f"{train.name}: {error}") from None
    parts = [train.fingerprint]
    if val_set is not None:
        parts.append(val_set.fingerprint)
    elif _has_own(train, val):
        parts += [f"{part.start}-{part.stop}" for part in splits.val]
    vocab_size = tokenizer.vocab_size if tokenizer else train.vocab_size
    return Data(
        train=train,
        train_ranges=splits.train,
        val=val_set or train,
        val_ranges=splits.val,
        test_ranges=splits.test,
        vocab_size=vocab_size,
        eot_id=tokenizer.eot_id if tokenizer else train.eot_id,
        tokenizer_name=tokenizer.name if tokenizer else train.tokenizer_name,
        fingerprint=hashlib.sha256(" ".join([*parts, str(vocab_size)]).encode()).hexdigest(),
    )


def _splits(train: Tokens, val_set: Tokens | None, val: Share | None, test: Share) -> Splits:
    if val_set is None and not _has_own(train, val):
        share = schema.Dataset().val_fraction if val is None else val
        return split_set(train.n_tokens, train.documents, share, test, train.sources)
    kept: Sequence[range] = [range(train.n_tokens)]
    held_out: Sequence[range] = [range(val_set.n_tokens)] if val_set else []
    if val_set is None:
        held_out = train.held_out or ()
        kept = other_ranges(train.n_tokens, held_out)
    tested: Sequence[range] = []
    if test:
        kept, tested = hold_out(kept, train.documents, tokens_of(test, train.n_tokens))
    return Splits(tuple(kept), tuple(held_out), tuple(tested))


def _has_own(train: Tokens, val: Share | None) -> bool:
    """Whether the part held out is the one that the set was made with."""
    return train.held_out is not None and val in (None, schema.Dataset().val_fraction)


def _same_tokens(one: Values, other: Values) -> bool:
    """Read only as far as they agree, and only where they are equally many."""
    starts = range(0, len(one), _COMPARED_IDS)
    return len(one) == len(other) and all(
        np.array_equal(one[start : start + _COMPARED_IDS], other[start : start + _COMPARED_IDS])
        for start in starts
    )


def _stdlib_place(dataset: schema.Dataset, tokenizer: schema.Tokenizer) -> Place:
    if dataset.path is None:
        usual = SetFiles(DEFAULT_FOLDER / default_name(name_of(tokenizer)))
        return Place(None, usual.stem if SetFiles(usual.stem).exists else usual.tokens)
    path = Path(dataset.path).expanduser()
    if path.suffix != ".npy" and not SetFiles(path).exists:
        raise UserError(
            f"dataset.path={dataset.path}: with dataset=stdlib it says where the tokens go, as FILE.npy. To "
            f"train on a text of yours: dataset=text dataset.path={dataset.path}"
        )
    return Place(None, path)


def _token_set(
    dataset: schema.Dataset,
    place: Place,
    tokenizer: Tokenizer,
    spec: schema.Tokenizer,
    *,
    tokenize: bool,
    log: Callable[[str], None],
) -> TokenSet:
    if not place.is_tokenized:
        source = _source(dataset, place)
        if not (tokenize and dataset.auto_tokenize):
            text = place.text or Path("stdlib")
            command = _command(dataset, place, spec)
            raise NotTokenized(text, source.total_bytes or 0, command, tokenizer.vocab_size)
        _tokenize_once(source, tokenizer, place.tokens, log)
    found = open_token_set(place.tokens, tokenizer.vocab_size, place.version)
    source_now = StdlibSource() if dataset.source == "stdlib" else None
    verify(found, dataset, place, tokenizer, source_now, _command(dataset, place, spec, found.manifest))
    return found


def _source(dataset: schema.Dataset, place: Place) -> Source:
    if dataset.source == "stdlib":
        return StdlibSource()
    if place.text is None:
        raise UserError(f"{place.tokens}: no such token file")
    options = InputOptions(dataset.encoding, dataset.errors, dataset.document_separator)
    return open_inputs([str(place.text)], options)


def _tokenize_once(source: Source, tokenizer: Tokenizer, output: Path, log: Callable[[str], None]) -> None:
    options = Options(terminal=sys.stderr if sys.stderr.isatty() else None)
    while not output.exists():
        try:
            result = pretokenize(source, tokenizer, output, options, log)
            log(f"{output}: {result.manifest['tokens']:,} tokens in {result.seconds:.1f} s")
        except durable.LockHeld as held:
            log(f"{held.what} is being made by {held.holder}; waiting for it")
            files = SetFiles(output)
            with durable.lock(files.lock, f"token set {output}", wait_s=_LONGEST_WAIT_S):
                pass


def _command(
    dataset: schema.Dataset, place: Place, tokenizer: schema.Tokenizer, manifest: dict[str, Any] | None = None
) -> str:
    """What makes this token file anew, with the options of its manifest where the configuration has none."""
    made = manifest["options"] if manifest else {}
    if dataset.source == "stdlib":
        return command_for("stdlib", _flag(tokenizer), "--output", str(place.tokens))
    options: list[str] = []
    for flag, value, default in (
        ("--document-separator", dataset.document_separator, None),
        ("--encoding", dataset.encoding, "utf-8"),
        ("--errors", dataset.errors, "strict"),
        ("--text-field", None, None),
        ("--max-documents", None, None),
        ("--max-tokens", None, None),
        ("--clean", None, None),
        ("--dedup", None, None),
    ):
        used = value if value != default else made.get(flag[2:].replace("-", "_"), default)
        if used != default:
            options += [flag, str(used)]
    form = manifest or {}
    if "shard_tokens" in form:
        options += ["--tokens-per-shard", str(form["shard_tokens"])]
    if "val" in form:
        options += ["--val-fraction", str(form["val"]["fraction"])]
    sources = form.get("sources", [])
    texts = [str(place.text)] if place.text else [source["path"] for source in sources]
    if place.text is None:
        options += ["--output", str(place.tokens)]
    return command_for(texts or ["TEXT"], _flag(tokenizer), *options)


def _flag(tokenizer: schema.Tokenizer) -> str:
    """What `--tokenizer` takes for it."""
    if tokenizer.path is not None:
        return tokenizer.path
    return tokenizer.name if tokenizer.name in KNOWN else tokenizer.repo or tokenizer.name
