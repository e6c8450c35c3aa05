"""The pretokenizer against its peers: whole commands, from the start of the process to its exit.

GPT-2 on 200 MB of English, of source code and of many languages, and on 1 GB of a mix; the page cache is
warm, every process fresh. In each round all tools run once, in an order of its own; a ratio is of two
commands of one round. Slow tools get a prefix of the mix (told), so their own start weighs more: it is
measured as well, on 1 MB, and a second ratio leaves it out on both sides. All get the same documents, and
what each wrote is read back and compared. Needs the extras gigatoken and hub (datasets); the peers are
installed into benchmarks/.peers-venv, 1 GB.

    python benchmarks/tokenizing.py [--tokenizer FOLDER] [--megatron CHECKOUT]     # about 40 minutes
    python benchmarks/tokenizing.py --rounds 1 --sizes-mb 50,200 --part-mb 50 --prefix-mb 5   # 8 minutes
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.corpora import DEFAULT_FOLDER, PACKAGES, absolute, corpora, prefix
from benchmarks.environment import save
from benchmarks.tokenizing_parts import peers_venv
from benchmarks.tokenizing_parts.report import ENGINES, MIX, START_BYTES, result, text_bytes
from benchmarks.tokenizing_parts.tools import NOT_EXACT, TOOLS, Tool
from benchmarks.tokenizing_parts.whole_command import Measured, run


def main() -> None:
    options = parser().parse_args()
    missing = [name for name in ("vocab.json", "merges.txt") if not (options.tokenizer / name).exists()]
    if missing:
        files = " and ".join(missing)
        sys.exit(
            f"error: {options.tokenizer} has no {files} of GPT-2; say where they are: --tokenizer FOLDER"
        )
    facts = corpora(options.corpora)
    python = peers_venv.peers_python()
    kind_bytes, mix_bytes = (round(float(size) * 1e6) for size in options.sizes_mb.split(","))
    tools = [tool for tool in TOOLS if options.megatron or "Megatron" not in tool.name]
    with tempfile.TemporaryDirectory(dir=options.corpora) as name:
        bench = Bench(options, python, Path(name))
        sizes = {"all": mix_bytes, "part": options.part_mb * 10**6, "prefix": options.prefix_mb * 10**6}
        texts = {size: bench.text(MIX, limit) for size, limit in sizes.items()}
        kinds = {kind: bench.text(kind, kind_bytes) for kind in PACKAGES}
        for _ in ("warms the page cache", "counts"):
            starts = {tool.name: bench.once(tool, bench.text(MIX, START_BYTES)) for tool in tools}
        rounds = []
        for number in range(options.rounds):
            rounds.append(bench.round(number, tools, texts, kinds))
            print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
        exact = bench.compare(tools, texts)
    save("tokenizing", result(options, facts, python, texts, kinds, starts, rounds, exact))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--corpora", type=absolute, default=DEFAULT_FOLDER, metavar="FOLDER")
    made.add_argument("--tokenizer", type=absolute, default=ROOT / "gpt2_tokenizer", metavar="FOLDER")
    made.add_argument(
        "--megatron", type=absolute, metavar="CHECKOUT", help="of github.com/NVIDIA/Megatron-LM"
    )
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--sizes-mb", default="200,1000", metavar="KIND,MIX")
    made.add_argument("--part-mb", type=int, default=200)
    made.add_argument("--prefix-mb", type=int, default=50)
    made.add_argument("--provisional", action="store_true", help="say so in the result: the machine was busy")
    return made


class Bench:
    """Runs one command at a time."""

    def __init__(self, options: argparse.Namespace, python: Path, folder: Path) -> None:
        self._options, self._python, self._folder = options, python, folder
        self._workers = len(os.sched_getaffinity(0))
        self._tokenizer = folder / "tokenizer"
        _write_tokenizer(options.tokenizer, self._tokenizer)
        self._environment = {} if options.megatron is None else {"MEGATRON": str(options.megatron.resolve())}

    def text(self, name: str, limit: int) -> Path:
        """The corpus, or its first bytes, with one part of the lines of JSON for each worker."""
        path = prefix(self._options.corpora, name, limit)
        parts = path.with_name(f"{path.name}-parts")
        if not parts.exists() or len(list(parts.iterdir())) != self._workers:
            shutil.rmtree(parts, ignore_errors=True)
            _split(path.with_suffix(".jsonl"), parts, self._workers)
        return path

    def round(
        self, number: int, tools: list[Tool], texts: dict[str, Path], kinds: dict[str, Path]
    ) -> dict[str, Any]:
        """Measured by corpus and tool."""
        found: dict[str, Any] = defaultdict(dict)
        found["bytes"] = {name: text_bytes(path) for name, path in {**kinds, MIX: texts["all"]}.items()}
        jobs = [(MIX, tool, texts[tool.size]) for tool in tools]
        jobs += [(kind, tool, path) for kind, path in kinds.items() for tool in tools if _on_kinds(tool)]
        jobs += [
            (name, engine, path) for name, path in {**kinds, MIX: texts["all"]}.items() for engine in ENGINES
        ]
        random.Random(number).shuffle(jobs)
        for name, what, path in jobs:
            if isinstance(what, Tool):
                found[name][what.name] = self.once(what, path)
            else:
                found[name][f"bare {what}"] = self.bare(what, path)
        return found

    def once(self, tool: Tool, path: Path) -> Measured:
        output = self._output(tool, path)
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        command = tool.command(self._python, path, output, self._tokenizer, self._workers)
        print(f"{tool.name}: {path.name}", file=sys.stderr)
        return run(command, output, {**self._environment, **tool.environment})

    def bare(self, engine: str, path: Path) -> dict[str, Any]:
        script = ROOT / "benchmarks" / "tokenizing_parts" / "bare_engine.py"
        done = subprocess.run(
            [sys.executable, script, engine, path.with_suffix(".txt"), self._tokenizer, str(self._workers)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    def compare(self, tools: list[Tool], texts: dict[str, Path]) -> dict[str, Any]:
        """What each tool wrote in the last round, beside what the reference engine writes of it."""
        reference = next(tool for tool in tools if tool.arguments[-1:] == ("huggingface",))
        wanted, found = {}, {}
        for size, path in texts.items():
            if size == "prefix":
                wanted[size] = self._digest(reference, path)
            else:
                wanted[size] = self._digest(tools[0], path)
        self.once(tools[0], texts["prefix"])
        is_exact = self._digest(tools[0], texts["prefix"])["digest"] == wanted["prefix"]["digest"]
        for tool in tools:
            made = self._digest(tool, texts[tool.size])
            same = made["digest"] == wanted[tool.size]["digest"] if tool.size in wanted else None
            found[tool.name] = {
                "same_ids": same,
                "tokens": made["tokens"],
                "tokens_of_ours": wanted[tool.size]["tokens"],
                **({"why": NOT_EXACT[tool.name]} if tool.name in NOT_EXACT else {}),
            }
        return {"ours_equals_the_reference_on_the_prefix": is_exact, "tools": found}

    def _digest(self, tool: Tool, path: Path) -> dict[str, Any]:
        output = self._output(tool, path)
        if not output.exists():
            self.once(tool, path)
        done = subprocess.run(
            tool.digest_command(self._python, output), check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    def _output(self, tool: Tool, path: Path) -> Path:
        return self._folder / f"{TOOLS.index(tool)}-{path.name}"


def _on_kinds(tool: Tool) -> bool:
    return tool.size == "all"


def _write_tokenizer(source: Path, folder: Path) -> None:
    """The files that the tools want: tokenizer.json beside vocab.json and merges.txt."""
    from data_loading.lookup import load_tokenizer, tokenizer_spec

    folder.mkdir()
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(source / name, folder)
    (folder / "tokenizer.json").write_text(load_tokenizer(tokenizer_spec(str(source))).json)
    marks = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    config = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 10**12, **marks}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _split(lines: Path, parts: Path, count: int) -> None:
    """The same lines in `count` files of about the same size, in their order."""
    parts.mkdir()
    size = lines.stat().st_size
    with open(lines, "rb") as source:
        for number in range(count):
            with open(parts / f"{number:03}.jsonl", "wb") as part:
                while source.tell() < size * (number + 1) // count and (line := source.readline()):
                    part.write(line)


if __name__ == "__main__":
    main()
