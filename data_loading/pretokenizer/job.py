"""Text to a token set: the job, from the source to four files in their place."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

import durable
from conf import UserError
from data_loading.content import note_content
from data_loading.content_hash import file_content_hash
from data_loading.pretokenizer.blocks import (
    RUN_LIMIT_BYTES,
    Block,
    BlockEncoder,
    EncodedBlock,
    Undecodable,
    make_blocks,
)
from data_loading.pretokenizer.duplicates import FOLDER as DUPLICATES
from data_loading.pretokenizer.engines import ENGINES, Engine, choose_engine
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.journal import Journal, Progress, read_job, read_progress
from data_loading.pretokenizer.limit import until_token
from data_loading.pretokenizer.manifest import (
    WRITER_VERSION,
    left_out,
    make_manifest,
    text_bytes_of,
    with_shares,
)
from data_loading.pretokenizer.meter import Meter
from data_loading.pretokenizer.pool import Work, WorkerDied, cores, encode_in_order
from data_loading.pretokenizer.source import Pieces, Source
from data_loading.pretokenizer.special_tokens import ParsingTokenizer
from data_loading.pretokenizer.undecodable import with_count
from data_loading.pretokenizer.writer import SetWriter
from data_loading.set_files import SetFiles, disk_errors, finish_commit, staging
from data_loading.token_set import open_token_set, read_manifest
from data_loading.tokenizer import JsonTokenizer, Tokenizer
from data_loading.tokenizer_files import holds_tokenizer
from memory import stage

Log = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How the work is done; none of it changes the ids.

    overwrite: replace a set made from something else. engine: a name of `engines.ENGINES` or auto.
    workers, block_bytes: None: chosen by the text's size and the engine. run_limit_bytes: a longer run
    of text without a safe cut is an error, since it has to be encoded whole. terminal: where the
    progress line moves; None: lines go to the log.
    """

    overwrite: bool = False
    engine: str = "auto"
    workers: int | None = None
    block_bytes: int | None = None
    run_limit_bytes: int = RUN_LIMIT_BYTES
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
    inputs = source if isinstance(source, Inputs) else Inputs([source])
    started = time.monotonic()
    files = SetFiles(output)
    if options.engine not in ("auto", *ENGINES):
        raise UserError(f"--engine {options.engine}: choices are auto, {', '.join(ENGINES)}")
    if output.name.endswith(".docs.npy"):
        raise UserError(f"{output} is the name of a list of document starts; choose another with --output")
    with disk_errors(output, inputs.arguments):
        output.parent.mkdir(parents=True, exist_ok=True)
        with durable.lock(files.lock, f"token set {output}"):
            finish_commit(files)
            manifest = None if options.overwrite else up_to_date(files, inputs, tokenizer)
            made = manifest is None
            if manifest is None:
                try:
                    manifest = _make(inputs, tokenizer, files, options, log)
                except Undecodable as error:
                    raise with_count(error, inputs) from None
                note_content(files, manifest)
    return Result(output, manifest, made, text_bytes_of(manifest), time.monotonic() - started)


def up_to_date(files: SetFiles, inputs: Inputs, tokenizer: Tokenizer) -> dict[str, Any] | None:
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
    difference = _difference(manifest, files, inputs, tokenizer)
    if difference:
        raise UserError(f"{files.tokens} exists, but {difference}. {ways_out}")
    return manifest


def _difference(
    manifest: dict[str, Any], files: SetFiles, inputs: Inputs, tokenizer: Tokenizer
) -> str | None:
    there = manifest["tokenizer"]
    if there["content_hash"] != tokenizer.content_hash:
        return (
            f"it was made with tokenizer {there['name']} ({there['content_hash'][:12]}), not with "
            f"{tokenizer.name} ({tokenizer.content_hash[:12]})"
        )
    options = _options_of(inputs, tokenizer)
    for name in [*options, *(name for name in manifest["options"] if name not in options)]:
        made, wanted = manifest["options"].get(name), options.get(name)
        if made != wanted:
            return f"it was made with {name} {made!r}, not {wanted!r}"
    for part, is_there in (
        (files.tokens, files.tokens.exists()),
        (files.documents, files.documents.exists()),
        (files.tokenizer, holds_tokenizer(files.tokenizer)),
    ):
        if not is_there:
            return f"of its files {part.name} is missing"
    try:
        open_token_set(files.tokens)
    except UserError as error:
        return f"it is damaged: {error}"
    return inputs.differs(manifest["sources"], files)


def _make(
    inputs: Inputs, tokenizer: Tokenizer, files: SetFiles, options: Options, log: Log
) -> dict[str, Any]:
    job = _job_of(inputs, tokenizer)
    is_continued = _look_for_earlier(files, job, inputs, options)
    inputs.prepare(files.partial, log)
    with stage("choose_engine"):
        probes = [tokenizer.probe] if isinstance(tokenizer, ParsingTokenizer) else []
        choice = choose_engine(tokenizer, [*inputs.samples(), *probes], log, options.engine)
    workers = _workers(choice.engine, inputs, options)
    with stage("tokenize", text_bytes=inputs.total_bytes, workers=workers), staging(files) as folder:
        tokenizer.save(folder / "tokenizer")
        work = Work(
            engine=choice.engine.name,
            definition=tokenizer.json if isinstance(tokenizer, JsonTokenizer) else "",
            eot_id=tokenizer.eot_id,
            vocab_size=tokenizer.vocab_size,
            errors=inputs.options["errors"],
        )
        encoder = BlockEncoder(choice.engine, work.eot_id, work.vocab_size, work.errors)
        log(
            f"tokenizing {inputs.what}{_size(inputs)} with {tokenizer.name}, engine "
            f"{choice.engine.name}, " + (f"{workers} processes" if workers else "in this process")
        )
        earlier, checksums = read_progress(folder, encoder.dtype) if is_continued else (Progress(), [])
        if is_continued:
            log(
                f"going on after {earlier.written.tokens:,} tokens, {earlier.done_bytes / 1e6:,.1f} MB: an "
                "earlier attempt made them"
            )
        writer = SetWriter(folder, encoder.dtype, earlier.written, checksums)
        journal = Journal(folder, job, earlier, checksums, writer.sync)
        meter = Meter(inputs.expected_bytes, log, options.terminal, earlier.done_bytes)
        pieces = Pieces(folder / "pieces.jsonl")
        progress = earlier
        blocks = _blocks(inputs, tokenizer, encoder, options, earlier, pieces)
        try:
            with closing(_encoded(blocks, encoder, work, workers, log)) as encoded:
                for block in until_token(encoded, earlier, inputs.max_tokens):
                    assert block.after is not None
                    crc = writer.append(block)
                    durable.point(f"{files.tokens.name}:appended")
                    progress = Progress(writer.written, block.after, inputs.done_bytes)
                    journal.note(progress, writer.checksums, crc)
                    durable.point(f"{files.tokens.name}:noted")
                    meter.update(inputs.done_bytes, writer.written.tokens)
            if not writer.written.tokens:
                between = (
                    " between its document separators" if inputs.options.get("document_separator") else ""
                )
                raise UserError(f"{inputs.what} holds no text{between}")
            journal.close()  # it may still be syncing the writer's files
            writer.finish()
        except BaseException as error:
            journal.close()
            writer.abandon()
            input_at_fault = isinstance(error, UserError) and not isinstance(error, WorkerDied)
            if input_at_fault or not writer.written.tokens:  # nothing to go on with
                shutil.rmtree(folder)
            raise
        finally:
            meter.close()
        if inputs.max_tokens is not None:
            blocks.close()
            inputs.end_after(writer.written.documents, progress.place.mark, pieces)
        manifest = _manifest(inputs, tokenizer, writer, encoder, choice.facts, files, folder)
        for line in left_out(manifest["sources"]):
            log(line)
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    return manifest


def _blocks(
    inputs: Inputs,
    tokenizer: Tokenizer,
    encoder: BlockEncoder,
    options: Options,
    earlier: Progress,
    pieces: Pieces,
) -> Generator[Block]:
    """The text behind what an earlier attempt has done; closing it closes the inputs."""
    with closing(inputs.chunks(earlier.place.mark, pieces)) as chunks:
        yield from make_blocks(
            chunks,
            tokenizer.cut_rule,
            options.block_bytes or encoder.engine.block_bytes,
            options.run_limit_bytes,
            skip=earlier.place.skip,
        )


def _manifest(
    inputs: Inputs,
    tokenizer: Tokenizer,
    writer: SetWriter,
    encoder: BlockEncoder,
    engine_facts: dict[str, Any],
    files: SetFiles,
    folder: Path,
) -> dict[str, Any]:
    starts = np.load(folder / "docs.npy", mmap_mode="r")
    return make_manifest(
        with_shares(inputs.facts(), starts, writer.written.tokens),
        _options_of(inputs, tokenizer),
        tokenizer,
        writer,
        encoder.dtype,
        engine_facts,
        files.tokens.parent,
        documents_hash=file_content_hash(folder / "docs.npy"),
    )


def _job_of(inputs: Inputs, tokenizer: Tokenizer) -> str:
    """A name of everything that decides the bytes of the set."""
    facts = [WRITER_VERSION, inputs.state(), _options_of(inputs, tokenizer), tokenizer.content_hash]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _look_for_earlier(files: SetFiles, job: str, inputs: Inputs, options: Options) -> bool:
    """Whether an unfinished set of this job is there to go on with; what cannot be used is removed.

    Raises:
        UserError: there is one of another job, which may be hours of work.
    """
    earlier = read_job(files.partial)
    if earlier == job and inputs.can_continue and not options.overwrite:
        return True
    if earlier is not None and earlier != job and not options.overwrite:
        raise UserError(
            f"{files.partial} holds an unfinished tokenization of another text, or with another tokenizer or "
            "option. Give the ones it was begun with to go on with it, or --overwrite to begin again"
        )
    _clear(files.partial, keep_duplicates=inputs.duplicates is not None and not options.overwrite)
    return False


def _clear(folder: Path, *, keep_duplicates: bool) -> None:
    """Remove what cannot be gone on with. What a first reading has found is looked at by who found it."""
    if not keep_duplicates or not (folder / DUPLICATES).is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        if path.is_dir() and path.name != DUPLICATES:
            shutil.rmtree(path)
        elif not path.is_dir():
            path.unlink()


def _workers(engine: Engine, inputs: Inputs, options: Options) -> int:
    """Worker processes; 0: all in this one."""
    if options.workers is not None:
        return options.workers
    total = inputs.total_bytes
    pays = engine.parallel_from is not None and (total is None or total >= engine.parallel_from)
    return cores() if pays and cores() > 1 else 0


def _size(inputs: Inputs) -> str:
    return "" if inputs.total_bytes is None else f" ({inputs.total_bytes / 1e6:,.1f} MB)"


def _encoded(
    blocks: Iterator[Block], encoder: BlockEncoder, work: Work, workers: int, log: Log
) -> Generator[EncodedBlock]:
    if workers:
        yield from encode_in_order(blocks, work, workers, log=log)
    else:
        for block in blocks:
            yield encoder.encode(block)


def _options_of(inputs: Inputs, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **inputs.options,
        "special_tokens": "parse" if isinstance(tokenizer, ParsingTokenizer) else "text",
    }


def command_for(text: str | Sequence[str], tokenizer: str, *arguments: str) -> str:
    """What a user types to tokenize this, or these."""
    parts = ["python", "pretokenize_dataset.py", *([text] if isinstance(text, str) else text)]
    if tokenizer:
        parts += ["--tokenizer", tokenizer]
    return shlex.join([*parts, *arguments])
