"""The job: from a source to the files of a token set in their place."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.engines.registry import check_engine
from data_loading.pretokenizer.inputs.concatenated import Inputs, as_inputs
from data_loading.pretokenizer.inputs.decode_errors import with_count
from data_loading.pretokenizer.journal import read_job
from data_loading.pretokenizer.make_set import Job, Log, make_set
from data_loading.pretokenizer.manifest import (
    text_bytes_of,
)
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.progress import JobMemory
from data_loading.pretokenizer.resume import (
    base_of,
    up_to_date,
)
from data_loading.text_io.chunks import Undecodable
from data_loading.text_io.source import Source
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.checksums import note_content
from data_loading.tokens.commit import finish_commit
from data_loading.tokens.disk_errors import disk_errors
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import parts_of
from experiment_utils import lock_file
from experiment_utils.errors import UserError


@dataclass(frozen=True)
class Result:
    """Result of `pretokenize`.

    made: False if the set was up to date. text_bytes: read text. seconds: of this call. peak_bytes: the most
    anonymous memory that this process held; None if nothing was made or the system does not report it.
    """

    path: Path
    manifest: dict[str, Any]
    made: bool
    text_bytes: int
    seconds: float
    peak_bytes: int | None = None

    @property
    def file_bytes(self) -> int:
        """Size of its token files."""
        return sum(part.tokens_path.stat().st_size for part in parts_of(SetFiles(self.path), self.manifest))

    @property
    def text_tokens(self) -> int:
        """Tokens without the ids around documents."""
        tokenizer = self.manifest["tokenizer"]
        around = bool(tokenizer["eot_appended"]) + (tokenizer.get("bos_id") is not None)
        return self.manifest["tokens"] - around * self.manifest["documents"]


def pretokenize(
    source: Source | Inputs,
    tokenizer: Tokenizer,
    output: Path,
    options: Options | None = None,
    log: Log = lambda line: None,
) -> Result:
    """Write the token set `output` (X.npy and its other files) of the source.

    The ids are those of encoding each document whole, an end-of-text id after each. Memory does not
    grow with the text. A set that is up to date is not changed.

    Raises:
        UserError: the text cannot be read or decoded, has no documents, or has a run that cannot be
            cut; the output exists with another content; the disk is full or read-only.
        LockHeld: another process writes this output.
    """
    options = options or Options()
    inputs = as_inputs(source)
    started = time.monotonic()
    files, memory = SetFiles(output), JobMemory()
    check_options(options, output)
    with disk_errors(
        output,
        is_kept=lambda: read_job(files.partial) is not None,
        elsewhere=not options.append,
    ):
        output.parent.mkdir(parents=True, exist_ok=True)
        with lock_file.lock(files.lock, f"token set {output}"):
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
                        manifest = make_set(Job(inputs, tokenizer, files, base, options, log, memory))
                except Undecodable as error:
                    raise with_count(error, inputs) from None
                parts = parts_of(files, manifest)
                note_content(files, parts[len(base["shards"]) if base else 0 :])
                if files.tasks.exists():
                    remove = shlex.join(["rm", "-r", str(files.tasks)])
                    log(f"tasks of {output} are left and of no use. Remove them: {remove}")
    text_bytes = text_bytes_of(manifest) - (text_bytes_of(base) if base and made else 0)
    seconds = time.monotonic() - started
    return Result(output, manifest, made, text_bytes, seconds, memory.peak)


def check_options(options: Options, output: Path) -> None:
    """Raise UserError if the options exclude each other or do not fit the output."""
    check_engine(options.engine)
    if output.name.endswith(".docs.npy"):
        raise UserError(
            f"{output} is the name of a list of document starts; choose another with --output",
            code="output-is-document-starts",
        )
    if options.append and options.overwrite:
        raise UserError("--append and --overwrite: give one of them", code="append-and-overwrite")
    in_shards = options.shard_tokens is not None or options.append
    if in_shards and SetFiles(output).is_folder == output.name.endswith(".npy"):
        raise UserError(
            f"{output}: a set of shards is a folder; choose a name without .npy with --output",
            code="output-not-folder",
        )


def check_all_append(
    sources: Sequence[Inputs], tokenizer: Tokenizer, outputs: Sequence[Path], options: Options
) -> None:
    """Check that all of several sets can grow, before the first one does.

    Raises:
        UserError: one cannot grow by its source.
    """
    for inputs, output in zip(sources, outputs, strict=True):
        base_of(SetFiles(output), inputs, tokenizer, options)


def command_for(text: str | Sequence[str], tokenizer: str, *arguments: str) -> str:
    """The command that tokenizes a text, or several."""
    parts = ["python", "pretokenize_dataset.py", *([text] if isinstance(text, str) else text)]
    if tokenizer:
        parts += ["--tokenizer", tokenizer]
    return shlex.join([*parts, *arguments])
