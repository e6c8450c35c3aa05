"""Text to a token set: the job, from the source to four files in their place."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import durable
from conf import UserError
from data_loading.blocks import BlockEncoder, EncodedBlock, make_blocks
from data_loading.content import note_content
from data_loading.engines import Engine, choose_engine
from data_loading.pool import Work, cores, encode_in_order
from data_loading.progress import Progress
from data_loading.set_files import SetFiles, disk_errors, finish_commit, staging
from data_loading.texts import Source
from data_loading.token_set import FORMAT, FORMAT_VERSION, fingerprint_of, read_manifest
from data_loading.tokenizer import JsonTokenizer, Tokenizer
from data_loading.writer import CHECKSUM_BYTES, SetWriter
from memory import stage

WRITER_VERSION = "1"
"""Raised when the same text, tokenizer and options would give other bytes in a file of the set."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How the work is done; none of it changes the ids.

    overwrite: replace a set made from something else. engine: a name of `engines.ENGINES` or auto.
    workers, block_bytes: None: chosen by the text's size and the engine. terminal: where the
    progress line moves; None: lines go to the log.
    """

    overwrite: bool = False
    engine: str = "auto"
    workers: int | None = None
    block_bytes: int | None = None
    terminal: IO[str] | None = None


@dataclass(frozen=True)
class Result:
    """made: False where the set was up to date already. seconds: of this call."""

    path: Path
    manifest: dict[str, Any]
    made: bool
    text_bytes: int
    seconds: float

    @property
    def text_tokens(self) -> int:
        """Tokens without the end-of-text ids."""
        appended = self.manifest["documents"] if self.manifest["tokenizer"]["eot_appended"] else 0
        return self.manifest["tokens"] - appended


def pretokenize(
    source: Source,
    tokenizer: Tokenizer,
    output: Path,
    options: Options | None = None,
    log: Log = lambda line: None,
) -> Result:
    """Write the token set `output` (X.npy and what stands beside it) of the source.

    The ids are those of encoding each document whole, an end-of-text id after each. Memory does not
    grow with the text. A set that is up to date is left alone.

    Raises:
        UserError: the text cannot be read or decoded, has no documents, or has a run that cannot be
            cut; the output exists with another content; the disk is full or read-only.
        LockHeld: another process writes this output.
    """
    options = options or Options()
    started = time.monotonic()
    files = SetFiles(output)
    if output.name.endswith(".docs.npy"):
        raise UserError(f"{output} is the name of a list of document starts; choose another with --output")
    with disk_errors(output, source.argument):
        output.parent.mkdir(parents=True, exist_ok=True)
        with durable.lock(files.lock, f"token set {output}"):
            finish_commit(files)
            manifest = None if options.overwrite else up_to_date(files, source, tokenizer)
            made = manifest is None
            if manifest is None:
                manifest = _make(source, tokenizer, files, options, log)
                note_content(files, manifest)
    return Result(output, manifest, made, source.total_bytes, time.monotonic() - started)


def up_to_date(files: SetFiles, source: Source, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Manifest of the set that is there; None where there is none.

    Raises:
        UserError: it was made from something else; names both sides and the ways out.
    """
    if not files.tokens.exists() and not files.manifest.exists():
        return None
    ways_out = "Replace it with --overwrite, or write elsewhere with --output FILE.npy"
    manifest = read_manifest(files.tokens)
    if manifest is None:
        raise UserError(
            f"{files.tokens} exists without a manifest, so what it holds is not known. {ways_out}"
        )
    difference = _difference(manifest, files, source, tokenizer)
    if difference:
        raise UserError(f"{files.tokens} exists, but {difference}. {ways_out}")
    return manifest


def _difference(
    manifest: dict[str, Any], files: SetFiles, source: Source, tokenizer: Tokenizer
) -> str | None:
    there = manifest["tokenizer"]
    if there["content_hash"] != tokenizer.content_hash:
        return (
            f"it was made with tokenizer {there['name']} ({there['content_hash'][:12]}), not with "
            f"{tokenizer.name} ({tokenizer.content_hash[:12]})"
        )
    for name, value in _options_of(source).items():
        if manifest["options"].get(name) != value:
            return f"it was made with {name} {manifest['options'].get(name)!r}, not {value!r}"
    if not files.tokens.exists():
        return f"its tokens are missing beside {files.manifest.name}"
    return source.differs(manifest["sources"], files)


def _make(
    source: Source, tokenizer: Tokenizer, files: SetFiles, options: Options, log: Log
) -> dict[str, Any]:
    with stage("choose_engine"):
        choice = choose_engine(tokenizer, source.samples(), log, options.engine)
    workers = _workers(choice.engine, source, options)
    with stage("tokenize", text_bytes=source.total_bytes, workers=workers), staging(files) as folder:
        tokenizer.save(folder / "tokenizer")
        work = Work(
            engine=choice.engine.name,
            definition=tokenizer.json if isinstance(tokenizer, JsonTokenizer) else "",
            eot_id=tokenizer.eot_id,
            vocab_size=tokenizer.vocab_size,
            errors=source.options["errors"],
        )
        encoder = BlockEncoder(choice.engine, work.eot_id, work.vocab_size, work.errors)
        writer = SetWriter(folder, encoder.dtype)
        progress = Progress(source.total_bytes, log, options.terminal)
        log(
            f"tokenizing {source.what} ({source.total_bytes / 1e6:,.1f} MB) with {tokenizer.name}, engine "
            f"{choice.engine.name}, " + (f"{workers} processes" if workers else "in this process")
        )
        try:
            with closing(_encoded(source, tokenizer, encoder, work, workers, options)) as encoded:
                for block in encoded:
                    writer.append(block)
                    progress.update(source.done_bytes, writer.tokens)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        finally:
            progress.close()
        if not writer.tokens:
            raise UserError(f"{source.what} holds no text between its document separators")
        manifest = _manifest(source, tokenizer, writer, encoder, choice.facts, files)
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    return manifest


def _workers(engine: Engine, source: Source, options: Options) -> int:
    """Worker processes; 0: all in this one."""
    if options.workers is not None:
        return options.workers
    pays = engine.parallel_from is not None and source.total_bytes >= engine.parallel_from
    return cores() if pays and cores() > 1 else 0


def _encoded(
    source: Source, tokenizer: Tokenizer, encoder: BlockEncoder, work: Work, workers: int, options: Options
) -> Generator[EncodedBlock]:
    block_bytes = options.block_bytes or encoder.engine.block_bytes
    blocks = make_blocks(source.chunks(), tokenizer.cut_rule, block_bytes)
    if workers:
        yield from encode_in_order(blocks, work, workers)
    else:
        for block in blocks:
            yield encoder.encode(block)


def _options_of(source: Source) -> dict[str, Any]:
    return {**source.options, "special_tokens": "text"}


def _manifest(
    source: Source,
    tokenizer: Tokenizer,
    writer: SetWriter,
    encoder: BlockEncoder,
    engine_facts: dict[str, Any],
    files: SetFiles,
) -> dict[str, Any]:
    sources = [_relative(fact, files.tokens.parent) for fact in source.facts()]
    options = _options_of(source)
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "tokenizer": {
            "name": tokenizer.name,
            "content_hash": tokenizer.content_hash,
            "vocab_size": tokenizer.vocab_size,
            "eot_id": tokenizer.eot_id,
            "eot_appended": tokenizer.eot_id is not None,
        },
        "dtype": encoder.dtype.str,
        "tokens": writer.tokens,
        "documents": writer.documents,
        "sources": sources,
        "options": options,
        "fingerprint": fingerprint_of(sources, tokenizer.content_hash, options),
        "engine": engine_facts,
        "checksums": {"algorithm": "sha256", "bytes": CHECKSUM_BYTES, "blocks": writer.checksums},
        "writer_version": WRITER_VERSION,
    }


def _relative(fact: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A source in the folder of its tokens is named without it, so that the folder can be moved."""
    path = Path(fact["path"])
    return {**fact, "path": path.name} if path.parent == folder.resolve() else fact


def command_for(text: str, tokenizer: str, *arguments: str) -> str:
    """What a user types to tokenize this."""
    parts = ["python", "pretokenize_dataset.py", text]
    if tokenizer:
        parts += ["--tokenizer", tokenizer]
    return shlex.join([*parts, *arguments])
