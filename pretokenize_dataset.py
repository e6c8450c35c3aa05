"""Entry: text to a token set. `python pretokenize_dataset.py --help` says how."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import UserError

if TYPE_CHECKING:
    from conf.schema import Tokenizer
    from data_loading.pretokenizer.job import Result
    from data_loading.pretokenizer.source import Source

STDLIB = "stdlib"
DTYPES = {"<u2": "uint16", "<u4": "uint32"}

EXAMPLES = """\
examples:
  python pretokenize_dataset.py Datasets/c4.txt                # -> Datasets/c4.npy, with ./gpt2_tokenizer
  python pretokenize_dataset.py corpus.txt --tokenizer bytes   # needs no tokenizer files
  python pretokenize_dataset.py corpus.txt --tokenizer ./my_bpe --output Datasets/corpus.npy
  python pretokenize_dataset.py posts.txt --document-separator '<|endoftext|>'
  python pretokenize_dataset.py stdlib                         # the source code of Python's own library
  python pretokenize_dataset.py verify Datasets/c4.npy         # is it what its manifest says?
  python pretokenize_dataset.py inspect Datasets/c4.npy        # what is in it?

The ids are exactly those of encoding each document whole. Beside FILE.npy stand FILE.npy.json (what it
was made from), FILE.docs.npy (where documents start) and FILE.tokenizer/ (the tokenizer's own files).
Exit status: 0 done, 1 our failure, 2 the input cannot be used, 130 interrupted.
"""


def parser() -> argparse.ArgumentParser:
    """What a user may type."""
    result = argparse.ArgumentParser(
        prog="pretokenize_dataset.py",
        description="Tokenize a text once into a memory-mapped token file, in constant memory.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("file", metavar="FILE", help="a text file, or stdlib: Python's own source code")
    result.add_argument(
        "--tokenizer",
        metavar="NAME_OR_FOLDER",
        help="bytes, gpt2, a folder with tokenizer.json or with vocab.json and merges.txt, or a hub "
        "repository org/name (default: gpt2; bytes for stdlib)",
    )
    result.add_argument("--output", metavar="OUT.npy", help="default: FILE with .npy in place of .txt")
    result.add_argument(
        "--document-separator",
        metavar="LINE",
        help="a line that stands between two documents (default: the file is one document)",
    )
    result.add_argument("--encoding", default="utf-8", help="of the text (default: utf-8)")
    result.add_argument(
        "--errors",
        default="strict",
        metavar="HOW",
        help="undecodable bytes: strict (default), replace, ignore",
    )
    result.add_argument(
        "--engine", default="auto", help="auto (default), fastokens, huggingface: all give the same ids"
    )
    result.add_argument(
        "--run-limit",
        metavar="SIZE",
        help="longest stretch without a place to cut, which is encoded whole in memory (default: 16MB)",
    )
    result.add_argument("--workers", type=int, metavar="N", help="processes (default: all cores; 0: none)")
    result.add_argument(
        "--overwrite", action="store_true", help="replace a token file made from something else"
    )
    result.add_argument("--json", action="store_true", help="print the result as JSON")
    result.add_argument("--version", action="version", version=_version())
    return result


def _version() -> str:
    from importlib import metadata

    try:
        return f"highwater {metadata.version('highwater')}"
    except metadata.PackageNotFoundError:
        import tomllib

        with open(Path(__file__).with_name("pyproject.toml"), "rb") as file:
            return f"highwater {tomllib.load(file)['project']['version']}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    from data_loading import set_commands

    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given and given[0] in set_commands.COMMANDS:
            return set_commands.main(given)
        return run(parser().parse_args(given))
    except UserError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "interrupted: what was done is kept, an older output is untouched. Type the same command again "
            "to go on",
            file=sys.stderr,
        )
        return 130


def run(options: argparse.Namespace) -> int:
    """Tokenize as asked and say what came out."""
    from data_loading.lookup import load_tokenizer, tokenizer_spec
    from data_loading.pretokenizer.job import Options, pretokenize
    from memory import record_to, stage

    if options.workers is not None and options.workers < 0:
        raise UserError(f"--workers {options.workers}: expected 0 or more")
    log = _log_to(sys.stderr)
    spec = tokenizer_spec(_tokenizer_name(options))
    with record_to(None, attempt=1, echo=log):
        with stage("load_tokenizer"):
            tokenizer = load_tokenizer(spec)
        source, output = _source_and_output(options, spec.name)
        result = pretokenize(
            source,
            tokenizer,
            output,
            Options(
                overwrite=options.overwrite,
                engine=options.engine,
                workers=options.workers,
                run_limit_bytes=_run_limit(options.run_limit),
                terminal=sys.stderr if sys.stderr.isatty() else None,
            ),
            log,
        )
    if options.json:
        import json

        print(json.dumps(_facts(result), indent=2))
    else:
        print(_summary(result, options, spec))
    return 0


def _tokenizer_name(options: argparse.Namespace) -> str:
    if options.tokenizer is not None:
        return options.tokenizer
    return "bytes" if _is_stdlib(options.file) else "gpt2"


def _run_limit(given: str | None) -> int:
    from conf.quantities import parse_size
    from data_loading.pretokenizer.blocks import RUN_LIMIT_BYTES

    if given is None:
        return RUN_LIMIT_BYTES
    try:
        return parse_size(given)
    except ValueError as error:
        raise UserError(f"--run-limit {given}: {error}") from None


def _log_to(stream: Any) -> Callable[[str], None]:
    return lambda line: print(line, file=stream, flush=True)


def _is_stdlib(file: str) -> bool:
    return file == STDLIB and not Path(file).exists()


def _source_and_output(options: argparse.Namespace, tokenizer_name: str) -> tuple[Source, Path]:
    from data_loading.locate import DEFAULT_FOLDER, tokens_beside
    from data_loading.pretokenizer.stdlib_source import StdlibSource, default_name
    from data_loading.pretokenizer.texts import TextFile

    source: Source
    if _is_stdlib(options.file):
        source, output = StdlibSource(), DEFAULT_FOLDER / default_name(tokenizer_name)
    else:
        text = Path(options.file).expanduser()
        if text.suffix == ".npy":
            raise UserError(f"{text} is a token file already; expected a text")
        source = TextFile(text, options.encoding, options.errors, options.document_separator)
        output = tokens_beside(text)
    if options.output is not None:
        output = Path(options.output).expanduser()
        if output.suffix != ".npy" or output.name == ".npy" or output.name.endswith(".docs.npy"):
            raise UserError(f"--output {options.output}: expected a name that ends in .npy (not .docs.npy)")
        if output.is_dir():
            raise UserError(f"--output {options.output} is a folder; expected a file name that ends in .npy")
    return source, output


def _facts(result: Result) -> dict[str, Any]:
    return {
        "path": str(result.path),
        "made": result.made,
        "tokens": result.manifest["tokens"],
        "text_tokens": result.text_tokens,
        "documents": result.manifest["documents"],
        "text_bytes": result.text_bytes,
        "file_bytes": result.path.stat().st_size,
        "dtype": result.manifest["dtype"],
        "tokenizer": result.manifest["tokenizer"],
        "engine": result.manifest["engine"],
        "fingerprint": result.manifest["fingerprint"],
        "seconds": round(result.seconds, 3),
    }


def _summary(result: Result, options: argparse.Namespace, spec: Tokenizer) -> str:
    import shlex

    from memory import format_bytes

    manifest, name = result.manifest, result.manifest["tokenizer"]["name"]
    documents = _count(manifest["documents"], "document")
    behind = "it" if manifest["documents"] == 1 else "each"
    appended = f" and an end-of-text id after {behind}" if manifest["tokenizer"]["eot_appended"] else ""
    what = (
        f"{result.path}: {_count(result.text_tokens, 'token')} of text in {documents}{appended}, "
        f"{format_bytes(result.path.stat().st_size)} ({DTYPES[manifest['dtype']]}), tokenizer {name}"
    )
    if result.made:
        rate = f"{result.text_bytes / 1e6 / result.seconds:.1f} MB/s"
        lines = [what, f"made in {result.seconds:.1f} s ({rate}) by engine {manifest['engine']['name']}"]
    else:
        lines = [what, "up to date: nothing to do (--overwrite makes it anew)"]
    if _is_stdlib(options.file):
        train = [] if name == "bytes" else _overrides(spec)
    else:
        train = ["dataset=text", f"dataset.path={result.path}", *_overrides(spec)]
    command = shlex.join(["python", "experiments.py", "model=32d", *train])
    return "\n".join([*lines, f"next: {command}"])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _overrides(spec: Tokenizer) -> list[str]:
    """How `experiments.py` is told of the same tokenizer."""
    if spec.path is not None:
        return ["tokenizer=custom", f"tokenizer.path={spec.path}"]
    if "/" in spec.name:
        return ["tokenizer=custom", f"tokenizer.repo={spec.repo}"]
    return [f"tokenizer={spec.name}"]


if __name__ == "__main__":
    sys.exit(main())
