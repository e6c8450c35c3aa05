"""Write all files of a set into its hidden folder, from the inputs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.blocks import Block, BlockEncoder, EncodedBlock, make_blocks
from data_loading.pretokenizer.cleaning.duplicates import FOLDER as DUPLICATES
from data_loading.pretokenizer.disk_space import DiskWatch, check_room
from data_loading.pretokenizer.engines.base import Engine, Unsupported
from data_loading.pretokenizer.engines.parity import HERE_BELOW, Comparison, IdsDiffer
from data_loading.pretokenizer.engines.registry import (
    Choice,
    choose_engine,
    chosen_before,
    compared,
    kind_to_compare,
)
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.input_notes import notes_on_inputs
from data_loading.pretokenizer.inputs.leakage import refuse_repeated_contents
from data_loading.pretokenizer.inputs.token_limit import until_token
from data_loading.pretokenizer.journal import Journal, Progress, read_engine, read_progress, write_engine
from data_loading.pretokenizer.manifest import (
    Made,
    document_starts,
    left_out,
    make_longer_manifest,
    make_manifest,
    with_shares,
)
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.pool import cores, encode_in_order
from data_loading.pretokenizer.progress import JobMemory, Meter
from data_loading.pretokenizer.resume import goes_on, job_of, options_of
from data_loading.pretokenizer.writer import SetWriter
from data_loading.text_io.source import Pieces
from data_loading.tokenizers.special_tokens import probes
from data_loading.tokenizers.tokenizer import DefinedTokenizer, Tokenizer
from data_loading.tokens.commit import staging
from data_loading.tokens.set_files import MANIFEST, SetFiles
from data_loading.tokens.shard_layout import Layout
from data_loading.tokens.truncated_documents import engine_note
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from memory import stage

Log = Callable[[str], None]
CONTINUES = "resuming after"
"""Beginning of the log line of a job that resumes; tests look for it."""
_MANY_SHARDS = 10_000
_BYTES_PER_TOKEN = 4
"""Usual text has this many; some texts have more."""


@dataclass(frozen=True)
class Job:
    """One set to write. base: manifest of the set that is appended to."""

    inputs: Inputs
    tokenizer: Tokenizer
    files: SetFiles
    base: dict[str, Any] | None
    options: Options
    log: Log
    memory: JobMemory

    @property
    def name(self) -> str:
        """Digest of everything that decides the bytes of the set."""
        return job_of(self.inputs, self.tokenizer, self.options, self.base)

    @property
    def layout(self) -> Layout:
        if self.base is not None:
            return Layout(self.base["shard_tokens"], len(self.base["shards"]))
        return Layout(self.options.shard_tokens)


def make_set(job: Job) -> dict[str, Any]:
    """Write the set from the beginning or from where an earlier attempt ended.

    The engine is compared with the reference at the same time. If its ids differ or it refuses the tokenizer,
    the work starts again after a comparison. The caller holds the lock and has checked that no set is there.

    Returns:
        The manifest.

    Raises:
        UserError: See `pretokenize`.
    """
    try:
        return _make(job, at_once=True)
    except (IdsDiffer, Unsupported):
        return _make(job, at_once=False)


def _make(job: Job, *, at_once: bool) -> dict[str, Any]:
    """at_once: compare the engine while it encodes already."""
    inputs, options = job.inputs, job.options
    is_continued = goes_on(job.files, job.name, inputs, job.tokenizer, options)
    if not is_continued:
        _clear(job.files.partial, keep_duplicates=inputs.duplicates is not None and not options.overwrite)
    inputs.prepare(job.files.partial, job.log)
    with ExitStack() as stack:
        with stage("choose_engine"):
            choice, comparison = _choose(job, is_continued=is_continued, at_once=at_once)
            if comparison is not None:
                stack.enter_context(comparison)
                choice.engine.load()
            check_room(inputs, job.tokenizer, choice.engine, job.files, job.log)
        workers = workers_for(choice.engine, inputs, options)
        tokenizing = stage("tokenize", text_bytes=inputs.total_bytes, workers=workers)
        with tokenizing, staging(job.files) as folder:
            try:
                target = _Target(job, folder, choice, is_continued=is_continued)
            except OSError:
                if not is_continued:
                    _clear(folder, keep_duplicates=inputs.duplicates is not None)
                raise
            try:
                _tokenize(job, choice, workers, comparison, target)
            finally:
                written = target.writer.written
                tokenizing.facts |= {"tokens": written.tokens, "peak_anon_bytes": job.memory.peak}
            manifest = _manifest(job, choice, target)
            _refuse_repeated(job, manifest)
            for line in (
                *left_out(manifest["sources"]),
                *notes_on_inputs(job.inputs, parses_special=job.tokenizer.parses_special),
            ):
                job.log(line)
            atomic_files.write_json(folder / MANIFEST, manifest)
    return manifest


def _choose(job: Job, *, is_continued: bool, at_once: bool) -> tuple[Choice, Comparison | None]:
    """Choose the engine. Returns it, and the comparison with the reference if that is still running."""
    tokenizer, wanted = job.tokenizer, job.options.engine
    if is_continued:
        before = chosen_before(read_engine(job.files.partial), tokenizer, wanted)
        if before is not None:
            return before, None
    samples = [*job.inputs.samples(), *probes(tokenizer)]
    kind = kind_to_compare(tokenizer, wanted)
    pays = kind is not None and workers_for(kind, job.inputs, job.options) > 0
    if at_once and not is_continued and pays and sum(map(len, samples)) >= HERE_BELOW:
        assert kind is not None
        assert isinstance(tokenizer, DefinedTokenizer)
        choice = compared(kind, tokenizer, samples)
        return choice, Comparison(choice.engine, tokenizer, samples)
    return choose_engine(tokenizer, samples, job.log, wanted), None


class _Target:
    """Takes the encoded blocks: writes the files and the journal, and logs progress.

    Attributes:
        kept_tokens: Tokens from which another attempt can resume.
        read_bytes: Bytes of the source up to the end of each block that is not written yet, by its index.
    """

    def __init__(self, job: Job, folder: Path, choice: Choice, *, is_continued: bool) -> None:
        tokenizer = job.tokenizer
        self.folder, self._job = folder, job
        self._engine = {**choice.facts, **engine_note(tokenizer)}
        self.encoder = BlockEncoder(
            choice.engine,
            tokenizer.eot_id,
            tokenizer.vocab_size,
            job.inputs.options["errors"],
            tokenizer.bos_id,
        )
        dtype, layout = self.encoder.dtype, job.layout
        self.earlier, checksums = read_progress(folder, dtype, layout) if is_continued else (Progress(), [])
        if self.earlier.written.tokens:
            job.log(
                f"{CONTINUES} {self.earlier.written.tokens:,} tokens, "
                f"{self.earlier.done_bytes / 1e6:,.1f} MB: an earlier attempt made them"
            )
        self.progress, self.kept_tokens = self.earlier, self.earlier.written.tokens
        self.pieces = Pieces(folder / "pieces.jsonl")
        self.writer = SetWriter(folder, dtype, self.earlier.written, checksums, layout)
        self.journal = Journal(folder, job.name, self.earlier, checksums, self.writer.sync)
        total, before = job.inputs.expected_bytes, (self.earlier.done_bytes, self.earlier.written.tokens)
        terminal, limit = job.options.terminal, job.inputs.max_tokens
        self._meter = Meter(total, job.log, terminal, before, lambda: job.memory.now, limit)
        self.read_bytes: dict[int, int] = {}
        self._disk = DiskWatch(job.files, dtype.itemsize, total, job.log, before)

    def take(self, block: EncodedBlock) -> None:
        """Write a block and note it in the journal. Raises OSError if the disk is full."""
        assert block.after is not None
        name, done_bytes = self._job.files.tokens.name, self.read_bytes.pop(block.index)
        crc = self.writer.append(block)
        atomic_files.point(f"{name}:appended")
        self.progress = Progress(self.writer.written, block.after, done_bytes)
        self.journal.note(self.progress, self.writer.checksums, crc)
        if not self.journal.is_held:
            self.kept_tokens = self.writer.written.tokens
        atomic_files.point(f"{name}:noted")
        self._job.memory.look()
        self._meter.update(done_bytes, self.writer.written.tokens)
        self._disk.update(done_bytes, self.writer.written.tokens)

    def count_from_now(self) -> None:
        """Note that the engine is exact, so that another attempt can resume behind all that is written."""
        write_engine(self.folder, self._engine)
        self.journal.release()
        self.kept_tokens = self.writer.written.tokens

    def finish(self) -> None:
        self._meter.close()
        self.journal.close()  # it may still be syncing the writer's files
        self.writer.finish()

    def give_up(self) -> None:
        """Close all files. They stay for another attempt."""
        self._meter.close()
        self.journal.close()
        self.writer.abandon()


def _tokenize(job: Job, choice: Choice, workers: int, comparison: Comparison | None, target: _Target) -> None:
    """Encode all text behind the work of an earlier attempt, and write it."""
    inputs, folder = job.inputs, target.folder
    job.log(f"tokenizing {inputs.what}{_size(inputs)} -> {job.files.tokens}")
    threads = counted(workers, "thread") if workers else "in the reading thread"
    job.log(f"tokenizer {job.tokenizer.name}, engine {choice.engine.name}, {threads}")
    _warn_of_many_shards(job)
    if comparison is None:
        target.count_from_now()
    else:
        target.journal.hold()

    def settle() -> None:
        nonlocal comparison
        if comparison is not None:
            comparison.settle()
            comparison = None
            target.count_from_now()

    def write(encoded: Iterator[EncodedBlock]) -> None:
        for block in until_token(encoded, target.earlier, inputs.max_tokens):
            target.take(block)
            if comparison is not None and comparison.is_done:
                settle()

    try:
        engine = target.encoder.engine
        engine.load()
        with closing(_blocks(job, target)) as blocks:
            encode_in_order(blocks, target.encoder.encode, write, workers, engine.thread_bytes)
        if not target.writer.written.tokens:
            between = " between its document separators" if inputs.options.get("document_separator") else ""
            skipped = inputs.tolerance.found
            why = f": --skip-bad left out {skipped:,} bad line{'s' * (skipped != 1)}" if skipped else ""
            field = inputs.options.get("text_field")
            ask = f". Is the text in another field than {field!r} (--text-field NAME)?" if skipped else ""
            raise UserError(f"{inputs.what} holds no text{between}{why}{ask}", code="no-text")
        settle()
        target.finish()
    except BaseException as error:
        target.give_up()
        if isinstance(error, UserError):  # the input is at fault
            shutil.rmtree(folder)
        elif not target.kept_tokens:  # nothing to resume from
            _clear(folder, keep_duplicates=inputs.duplicates is not None)
        raise
    if inputs.max_tokens is not None:
        inputs.end_after(target.writer.written.documents, target.progress.place.mark, target.pieces)


def _warn_of_many_shards(job: Job) -> None:
    total, each = job.inputs.expected_bytes, job.layout.shard_tokens
    if total is None or each is None:
        return
    shards = total // (each * _BYTES_PER_TOKEN)
    if shards > _MANY_SHARDS:
        job.log(
            f"WARNING: at {each:,} tokens a shard there will be {shards:,} shards or more, two files each. "
            "Interrupt this, and give a larger --tokens-per-shard, such as 100M"
        )


def _blocks(job: Job, target: _Target) -> Generator[Block]:
    """Blocks of the text behind the work of an earlier attempt. Closing the generator closes the inputs."""
    place, written = target.earlier.place, target.earlier.written
    with closing(job.inputs.chunks(place.mark, target.pieces)) as chunks:
        for block in make_blocks(
            chunks,
            job.tokenizer.cut_rule,
            job.options.block_bytes or target.encoder.engine.block_bytes,
            job.options.run_limit_bytes,
            skip=place.skip,
            errors=job.inputs.options["errors"],
            begins_document=written.tokens == written.document_start,
        ):
            target.read_bytes[block.index] = job.inputs.done_bytes
            yield block


def _manifest(job: Job, choice: Choice, target: _Target) -> dict[str, Any]:
    """Manifest of the files in the folder. The other files of the set are written there."""
    folder, written = target.folder, target.writer.written
    starts = document_starts(folder, job.layout, written)
    made = Made(
        folder=folder,
        layout=job.layout,
        dtype=target.encoder.dtype,
        written=written,
        checksums=target.writer.checksums,
        sources=with_shares(job.inputs.facts(), starts, written.tokens),
        options=options_of(job.inputs, job.tokenizer),
        tokenizer=job.tokenizer,
        engine={**choice.facts, **engine_note(job.tokenizer)},
    )
    if job.base is not None:
        atomic_files.write_json(folder / job.files.earlier_manifest(job.base["fingerprint"]).name, job.base)
        return make_longer_manifest(job.base, made, job.files)
    job.tokenizer.save(folder / "tokenizer")
    return make_manifest(made, job.files, job.options.val_fraction)


def _refuse_repeated(job: Job, manifest: dict[str, Any]) -> None:
    """Raise UserError if the appended text is in the set already, and remove it."""
    if job.base is None:
        return
    try:
        refuse_repeated_contents(job.base, job.files, manifest["sources"][len(job.base["sources"]) :])
    except UserError:
        shutil.rmtree(job.files.partial)
        raise


def _clear(folder: Path, *, keep_duplicates: bool) -> None:
    """Remove files from which no job can resume. Cleaning checks duplicates of its first pass itself."""
    if not keep_duplicates or not (folder / DUPLICATES).is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        if path.is_dir() and path.name != DUPLICATES:
            shutil.rmtree(path)
        elif not path.is_dir():
            path.unlink()


def workers_for(engine: Engine | type[Engine], inputs: Inputs, options: Options) -> int:
    """Number of threads that encode; 0: the one that reads."""
    if options.workers is not None:
        return options.workers
    total = inputs.total_bytes
    pays = engine.parallel_from is not None and (total is None or total >= engine.parallel_from)
    return cores() if pays and cores() > 1 else 0


def _size(inputs: Inputs) -> str:
    return "" if inputs.total_bytes is None else f" ({inputs.total_bytes / 1e6:,.1f} MB)"
