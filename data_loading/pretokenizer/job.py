"""Text to a token set: the job, from the source to four files in their place."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import durable
from conf import UserError
from data_loading.content import note_content
from data_loading.layout import Layout
from data_loading.pretokenizer.blocks import Block, BlockEncoder, EncodedBlock, Undecodable, make_blocks
from data_loading.pretokenizer.comparison import Comparison, IdsDiffer
from data_loading.pretokenizer.disk_space import DiskWatch, check_room
from data_loading.pretokenizer.duplicates import FOLDER as DUPLICATES
from data_loading.pretokenizer.engine import Engine, Unsupported
from data_loading.pretokenizer.engines import ENGINES, choose_engine, compared, kind_to_compare
from data_loading.pretokenizer.existing import (
    base_of,
    goes_on,
    job_of,
    options_of,
    up_to_date,
)
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.job_memory import JobMemory
from data_loading.pretokenizer.journal import Journal, Progress, read_progress
from data_loading.pretokenizer.limit import until_token
from data_loading.pretokenizer.manifest import (
    Made,
    document_starts,
    left_out,
    make_longer_manifest,
    make_manifest,
    text_bytes_of,
    with_shares,
)
from data_loading.pretokenizer.meter import Meter
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.parity import HERE_BELOW
from data_loading.pretokenizer.pool import Work, WorkerDied, cores, encode_in_order
from data_loading.pretokenizer.share import Share
from data_loading.pretokenizer.source import Pieces, Source
from data_loading.pretokenizer.special_tokens import ParsingTokenizer
from data_loading.pretokenizer.task_manifest import make_task_manifest
from data_loading.pretokenizer.undecodable import with_count
from data_loading.pretokenizer.writer import INSIDE, SetWriter, Written
from data_loading.set_files import MANIFEST, SetFiles, disk_errors, finish_commit, staging
from data_loading.shards import parts_of
from data_loading.tokenizer import JsonTokenizer, Tokenizer
from memory import stage

Log = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """made: False where the set was up to date already. text_bytes: what was tokenized. seconds: of this
    call. peak_bytes: the most anonymous memory that this process and its workers held at once; None where
    nothing was made or the system does not tell.
    """

    path: Path
    manifest: dict[str, Any]
    made: bool
    text_bytes: int
    seconds: float
    peak_bytes: int | None = None

    @property
    def file_bytes(self) -> int:
        """Of its token files."""
        return sum(part.tokens_path.stat().st_size for part in parts_of(SetFiles(self.path), self.manifest))

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
    files, memory = SetFiles(output), JobMemory()
    check_options(options, output)
    with disk_errors(output, inputs.arguments):
        output.parent.mkdir(parents=True, exist_ok=True)
        with durable.lock(files.lock, f"token set {output}"):
            finish_commit(files)
            base, manifest = None, None
            if options.append:
                base, is_in_it = base_of(files, inputs, tokenizer, options)
                manifest = base if is_in_it else None
            elif not options.overwrite:
                manifest = up_to_date(files, inputs, tokenizer, options)
            made = manifest is None
            if manifest is None:
                try:
                    with memory:
                        manifest = make_set(inputs, tokenizer, files, base, options, log, memory)
                except Undecodable as error:
                    raise with_count(error, inputs) from None
                parts = parts_of(files, manifest)
                note_content(files, parts[len(base["shards"]) if base else 0 :])
    text_bytes = text_bytes_of(manifest) - (text_bytes_of(base) if base and made else 0)
    seconds = time.monotonic() - started
    return Result(output, manifest, made, text_bytes, seconds, memory.peak_bytes)


def check_options(options: Options, output: Path) -> None:
    """Raises UserError."""
    if options.engine not in ("auto", *ENGINES):
        raise UserError(f"--engine {options.engine}: choices are auto, {', '.join(ENGINES)}")
    if output.name.endswith(".docs.npy"):
        raise UserError(f"{output} is the name of a list of document starts; choose another with --output")
    if options.append and options.overwrite:
        raise UserError("--append and --overwrite: give one of them")
    in_shards = options.shard_tokens is not None or options.append
    if in_shards and SetFiles(output).is_folder == output.name.endswith(".npy"):
        raise UserError(f"{output}: a set of shards is a folder; choose a name without .npy with --output")


def make_set(
    inputs: Inputs,
    tokenizer: Tokenizer,
    files: SetFiles,
    base: dict[str, Any] | None,
    options: Options,
    log: Log,
    memory: JobMemory,
) -> dict[str, Any]:
    """Write the set, or that of a task, from the beginning or from where an earlier attempt ended.

    The engine is compared with the reference meanwhile; where it fails that, the work begins again. The
    caller holds the lock and has looked at what is there. Returns the manifest. Raises as `pretokenize`.
    """
    arguments = (inputs, tokenizer, files, base, options, log, memory)
    try:
        return _make(*arguments, at_once=True)
    except (IdsDiffer, Unsupported):
        return _make(*arguments, at_once=False)


def _make(
    inputs: Inputs,
    tokenizer: Tokenizer,
    files: SetFiles,
    base: dict[str, Any] | None,
    options: Options,
    log: Log,
    memory: JobMemory,
    *,
    at_once: bool,
) -> dict[str, Any]:
    job = job_of(inputs, tokenizer, options, base)
    is_continued = goes_on(files, job, inputs, options)
    if not is_continued:
        _clear(files.partial, keep_duplicates=inputs.duplicates is not None and not options.overwrite)
    layout = _layout(options, base)
    inputs.prepare(files.partial, log)
    with stage("choose_engine"):
        probes = [tokenizer.probe] if isinstance(tokenizer, ParsingTokenizer) else []
        samples = [*inputs.samples(), *probes]
        comparison = (
            _comparison(tokenizer, samples, inputs, options) if at_once and not is_continued else None
        )
        if comparison is not None:
            choice = compared(comparison.engine, tokenizer, samples)
        else:
            choice = choose_engine(tokenizer, samples, log, options.engine)
        check_room(inputs, tokenizer, choice.engine, files, log)
    workers = workers_for(choice.engine, inputs, options)
    tokenizing = stage("tokenize", text_bytes=inputs.total_bytes, workers=workers)
    with tokenizing, staging(files) as folder:
        work = Work(
            engine=choice.engine.name,
            definition=choice.engine.definition,
            eot_id=tokenizer.eot_id,
            vocab_size=tokenizer.vocab_size,
            errors=inputs.options["errors"],
        )
        encoder = BlockEncoder(choice.engine, work.eot_id, work.vocab_size, work.errors)
        log(
            f"tokenizing {inputs.what}{_size(inputs)} with {tokenizer.name}, engine "
            f"{choice.engine.name}, " + (f"{workers} processes" if workers else "in this process")
        )
        share = inputs if isinstance(inputs, Share) else None
        begun = Progress(Written(document_start=INSIDE) if share and share.begins_inside else Written())
        earlier, checksums = read_progress(folder, encoder.dtype, layout) if is_continued else (begun, [])
        if is_continued:
            log(
                f"going on after {earlier.written.tokens:,} tokens, {earlier.done_bytes / 1e6:,.1f} MB: an "
                "earlier attempt made them"
            )
        writer = SetWriter(folder, encoder.dtype, earlier.written, checksums, layout)
        journal = Journal(folder, job, earlier, checksums, writer.sync)
        total, before = inputs.expected_bytes, (earlier.done_bytes, earlier.written.tokens)
        meter = Meter(total, log, options.terminal, before, lambda: memory.now, inputs.max_tokens)
        disk = DiskWatch(files, encoder.dtype.itemsize, total, log, before)
        pieces = Pieces(folder / "pieces.jsonl")
        progress = earlier
        blocks = _blocks(inputs, tokenizer, encoder, options, earlier, pieces)
        if comparison is not None:
            journal.hold()
            comparison.on_equal = journal.release
        try:
            with closing(_encoded(blocks, encoder, work, workers, log, comparison)) as encoded:
                for block in until_token(encoded, earlier, inputs.max_tokens):
                    assert block.after is not None
                    crc = writer.append(block)
                    durable.point(f"{files.tokens.name}:appended")
                    progress = Progress(writer.written, block.after, inputs.done_bytes)
                    journal.note(progress, writer.checksums, crc)
                    durable.point(f"{files.tokens.name}:noted")
                    meter.update(inputs.done_bytes, writer.written.tokens)
                    disk.update(inputs.done_bytes, writer.written.tokens)
            if not writer.written.tokens and share is None:
                between = (
                    " between its document separators" if inputs.options.get("document_separator") else ""
                )
                raise UserError(f"{inputs.what} holds no text{between}")
            if comparison is not None:
                comparison.settle()
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
            if comparison is not None:
                comparison.end()
            tokenizing.facts |= {"tokens": writer.written.tokens, "peak_anon_bytes": memory.peak_bytes}
        if inputs.max_tokens is not None:
            blocks.close()
            inputs.end_after(writer.written.documents, progress.place.mark, pieces)
        sources = inputs.facts()
        if share is None:
            starts = document_starts(folder, layout, writer.written)
            sources = with_shares(sources, starts, writer.written.tokens)
        made = Made(
            folder=folder,
            layout=layout,
            dtype=encoder.dtype,
            written=writer.written,
            checksums=writer.checksums,
            sources=sources,
            options=options_of(inputs, tokenizer),
            tokenizer=tokenizer,
            engine=choice.facts,
        )
        if base is None:
            tokenizer.save(folder / "tokenizer")
            manifest = (
                make_task_manifest(made, share, options, job)
                if share
                else make_manifest(made, files, options.val_fraction)
            )
        else:
            durable.write_json(folder / files.earlier_manifest(base["fingerprint"]).name, base)
            manifest = make_longer_manifest(base, made, files)
        for line in left_out(made.sources):
            log(line)
        durable.write_json(folder / MANIFEST, manifest)
    return manifest


def _comparison(
    tokenizer: Tokenizer, samples: list[bytes], inputs: Inputs, options: Options
) -> Comparison | None:
    """Begun, where it pays to go on meanwhile."""
    kind = kind_to_compare(tokenizer, options.engine)
    if kind is None or not isinstance(tokenizer, JsonTokenizer) or sum(map(len, samples)) < HERE_BELOW:
        return None
    return Comparison(kind, tokenizer, samples) if workers_for(kind, inputs, options) else None


def _layout(options: Options, base: dict[str, Any] | None) -> Layout:
    if base is not None:
        return Layout(base["shard_tokens"], len(base["shards"]))
    return Layout(options.shard_tokens)


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


def workers_for(engine: Engine | type[Engine], inputs: Inputs, options: Options) -> int:
    """Worker processes; 0: all in this one."""
    if options.workers is not None:
        return options.workers
    total = inputs.total_bytes
    pays = engine.parallel_from is not None and (total is None or total >= engine.parallel_from)
    return cores() if pays and cores() > 1 else 0


def _size(inputs: Inputs) -> str:
    return "" if inputs.total_bytes is None else f" ({inputs.total_bytes / 1e6:,.1f} MB)"


def _encoded(
    blocks: Iterator[Block],
    encoder: BlockEncoder,
    work: Work,
    workers: int,
    log: Log,
    comparison: Comparison | None,
) -> Generator[EncodedBlock]:
    if comparison is not None:
        yield from comparison.watch(encode_in_order(comparison.first(blocks), work, workers, log=log))
    elif workers:
        yield from encode_in_order(blocks, work, workers, log=log)
    else:
        for block in blocks:
            yield encoder.encode(block)


def command_for(text: str | Sequence[str], tokenizer: str, *arguments: str) -> str:
    """What a user types to tokenize this, or these."""
    parts = ["python", "pretokenize_dataset.py", *([text] if isinstance(text, str) else text)]
    if tokenizer:
        parts += ["--tokenizer", tokenizer]
    return shlex.join([*parts, *arguments])
