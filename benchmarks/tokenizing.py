"""Compare the pretokenizer with its peers: whole commands, from the start of the process to its exit.

GPT-2 on 100 MB of English, of source code and of many languages, and on 1 GB of a mix; the page cache is
warm, every process fresh. In each round all tools run once; a ratio is of two commands of one round. Slow
tools get a prefix of the mix, so their own start weighs more: it is measured as well, on 1 MB, and a second
ratio is without the start of both. All get the same documents, and what each wrote is read back and
compared. Needs the extra hub (datasets); the peers (tokenizing_peers.py) are installed into
a folder of their own, 1 GB. `--tools ours ...` measures some tools only, `--kinds mix` the mix only.

    python benchmarks/tokenizing.py [--tokenizer FOLDER] [--megatron CHECKOUT]     # about 8 minutes
"""

from __future__ import annotations

import json
import os
import pstats
import re
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.corpora import FOLDER, KINDS, corpora, prefix
from benchmarks.harness import BENCHMARKS, ROOT, benchmark, goal, in_turns, ratios, summary
from benchmarks.processes import MEMORY_WORDS, LeftOut, MemoryLook, commit_of, peers_python, run, versions_of
from benchmarks.tokenizing_peers import SEPARATOR

MIX, START_BYTES = "mix", 10**6
DEFAULT, REFERENCE = "ours", "ours, --engine huggingface"
ENGINES = {"fastokens": DEFAULT}
PEERS = [
    "datasets",
    "datatrove",
    "fastokens",
    "litdata",
    "tiktoken",
    "tokenizers",
    "transformers",
]
RELEASES_GIL = re.compile(
    r"'encode_batch_flat'|'update' of '_hashlib|crc32|'(read|write|flush)' of '_io\.(FileIO|BufferedRandom)"
)
"""Calls of the work on a text that run without the GIL, as cProfile names them."""
FORMAT_GOALS = {"ours, from .jsonl": 0.75, "ours, from .parquet": 0.9}
"""Wanted speed over that of plain text."""
GOALS_MB_S = {MIX: 100, "english": 60, "multilingual": 60, "source": 60}


@dataclass(frozen=True)
class Tool:
    """program: in tokenizing_peers.py. size: of the text, all, part or prefix. arguments: of ours.

    at_least: wanted speed of ours over this one's, by name of ours. why: its ids differ.
    """

    program: str = "ours"
    size: str = "all"
    suffix: str = ".txt"
    arguments: tuple[str, ...] = ()
    at_least: dict[str, float] = field(default_factory=dict)
    why: str = ""

    @property
    def is_ours(self) -> bool:
        return self.program == "ours"

    def command(self, python: Path, corpus: Path, output: Path, tokenizer: Path, workers: int) -> list[Any]:
        """corpus: without its suffix. python: the peers' interpreter."""
        if self.is_ours:
            return ours(f"{corpus}{self.suffix}", output, tokenizer, *self.arguments)
        return [python, BENCHMARKS / "tokenizing_peers.py", self.program, corpus, output, tokenizer, workers]


def ours(text: Any, output: Path, tokenizer: Path, *more: Any) -> list[Any]:
    """This project's command."""
    script, tokens = ROOT / "pretokenize_dataset.py", output / "tokens.npy"
    return [sys.executable, script, text, "--tokenizer", tokenizer, "--output", tokens, *more]


_DOCUMENTS = ("--document-separator", SEPARATOR)
TOOLS = {
    DEFAULT: Tool(arguments=_DOCUMENTS),
    "ours, from .jsonl": Tool(suffix=".jsonl"),
    "ours, from .parquet": Tool(suffix=".parquet"),
    "ours, the file as one document": Tool(why="the separator lines are text here"),
    REFERENCE: Tool(size="prefix", arguments=(*_DOCUMENTS, "--engine", "huggingface")),
    "tiktoken, process pool": Tool("tiktoken", "part", at_least={DEFAULT: 10}),
    "Megatron, fast": Tool("megatron-fast", "part", at_least={DEFAULT: 5}),
    "Megatron, standard": Tool("megatron", "prefix", at_least={DEFAULT: 10}),
    "datasets.map": Tool("datasets.map", "prefix", at_least={DEFAULT: 10}),
    "datatrove": Tool("datatrove", "prefix", at_least={DEFAULT: 10}),
    "litdata optimize": Tool("litdata", "prefix", at_least={DEFAULT: 10}),
    "the one-list script": Tool(
        "one-list", "prefix", at_least={DEFAULT: 50},
        why="cuts words, truncates pieces at 1024 ids, reads the separators as text",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """A whole command, or the bare engine. text_bytes: of the documents that it got."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    text_bytes: int

    @property
    def mb_s(self) -> float:
        return self.text_bytes / 1e6 / self.wall_s


class Bench:
    """Runs one command at a time."""

    def __init__(self, chosen: Any, python: Path, folder: Path) -> None:
        self.chosen, self.python, self.folder = chosen, python, folder
        self.workers, self.tokenizer = len(os.sched_getaffinity(0)), folder / "tokenizer"
        write_tokenizer(chosen.tokenizer or ROOT / "gpt2_tokenizer", self.tokenizer)
        self.environment = {"MEGATRON": str(chosen.megatron.resolve())} if chosen.megatron else {}

    def text(self, name: str, limit: int) -> Path:
        """The corpus, or its first bytes, with one part of the lines of JSON for each worker."""
        path = prefix(self.chosen.corpora, name, limit)
        parts = path.with_name(f"{path.name}-parts")
        if not parts.exists() or len(list(parts.iterdir())) != self.workers:
            shutil.rmtree(parts, ignore_errors=True)
            split(path.with_suffix(".jsonl"), parts, self.workers)
            write_parquet(path.with_suffix(".jsonl"), path.with_suffix(".parquet"))
        return path

    def once(self, name: str, path: Path) -> Taken:
        """One command on one text."""
        output, look = self.output(name, path), MemoryLook()
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        print(f"{name}: {path.name}", file=sys.stderr, flush=True)
        command = TOOLS[name].command(self.python, path, output, self.tokenizer, self.workers)
        done = run(command, cwd=output, env=self.environment, look=look, limit_s=3600)
        return Taken(done.wall_s, max(done.cpu_s, look.cpu_s), look.peak, text_bytes(path))

    def bare(self, engine: str, path: Path) -> Taken:
        """The engine alone."""
        command = [sys.executable, BENCHMARKS / "tokenizing_peers.py", f"bare {engine}", path]
        found = run([*command, self.folder, self.tokenizer, self.workers], errors=False).json
        return Taken(found["wall_s"], found["cpu_s"], 0, found["bytes"])

    def gil_share(self, path: Path) -> float:
        """Share of the work that holds the GIL, at most: one thread does all of it, below a profiler."""
        output, profile = self.output(DEFAULT, path), self.folder / "profile"
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        command = ours(f"{path}.txt", output, self.tokenizer, *_DOCUMENTS, "--workers", 0)
        run([sys.executable, "-m", "cProfile", "-o", profile, *command[1:]], limit_s=3600)
        calls = pstats.Stats(str(profile)).stats.items()  # type: ignore[attr-defined]
        whole = sum(row[3] for (_, _, name), row in calls if name == "encode_in_order")
        return 1 - sum(row[2] for (_, _, name), row in calls if RELEASES_GIL.search(name)) / whole

    def compare(self, tools: list[str], texts: dict[str, Path]) -> dict[str, Any]:
        """Compare the ids of each tool with those of the reference engine on the prefix, else with ours."""
        self.once(DEFAULT, texts["prefix"])
        wanted = {
            size: self.digest(REFERENCE if size == "prefix" else DEFAULT, path)
            for size, path in texts.items()
        }
        is_exact = self.digest(DEFAULT, texts["prefix"])["digest"] == wanted["prefix"]["digest"]
        found = {}
        for name in tools:
            size = TOOLS[name].size
            made, other = self.digest(name, texts[size]), wanted[size]
            found[name] = {"same_ids": made["digest"] == other["digest"], "tokens": made["tokens"]}
            found[name] |= {"tokens_of_ours": other["tokens"]}
            found[name] |= {"why": TOOLS[name].why} if TOOLS[name].why else {}
        return {"ours_equals_the_reference_on_the_prefix": is_exact, "tools": found}

    def digest(self, name: str, path: Path) -> dict[str, Any]:
        """Digest of what a tool wrote."""
        output = self.output(name, path)
        if not output.exists():
            self.once(name, path)
        script, program = BENCHMARKS / "tokenizing_peers.py", TOOLS[name].program
        python = sys.executable if TOOLS[name].is_ours else self.python
        return run([python, script, program, "--digest", output], errors=False).json

    def output(self, name: str, path: Path) -> Path:
        return self.folder / f"{list(TOOLS).index(name)}-{path.name}"


def write_tokenizer(source: Path, folder: Path) -> None:
    """Files that the tools read: tokenizer.json, vocab.json and merges.txt."""
    from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec

    folder.mkdir()
    for name in ("vocab.json", "merges.txt"):
        if not (source / name).exists():
            sys.exit(f"error: {source} has no {name} of GPT-2. Name the folder: --tokenizer FOLDER")
        shutil.copy(source / name, folder)
    (folder / "tokenizer.json").write_text(load_tokenizer(tokenizer_spec(str(source))).json)
    marks = dict.fromkeys(("bos_token", "eos_token", "unk_token"), SEPARATOR)
    config = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 10**12, **marks}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def split(lines: Path, parts: Path, count: int) -> None:
    """The same lines in `count` files of about the same size, in their order."""
    parts.mkdir()
    size = lines.stat().st_size
    with open(lines, "rb") as source:
        for number in range(count):
            with open(parts / f"{number:03}.jsonl", "wb") as part:
                while source.tell() < size * (number + 1) // count and (line := source.readline()):
                    part.write(line)


def write_parquet(lines: Path, table: Path) -> None:
    """The same documents as a table."""
    from pyarrow import json as read
    from pyarrow import parquet

    parquet.write_table(read.read_json(lines), table, row_group_size=1000)


def text_bytes(path: Path) -> int:
    """Bytes of the documents alone, as every tool encodes them."""
    with open(path.with_suffix(".jsonl"), "rb") as lines:
        separators = sum(1 for _ in lines) - 1
    return path.with_suffix(".txt").stat().st_size - len(f"{SEPARATOR}\n") * separators


Found = dict[tuple[str, str], list[Taken]]
"""By corpus and tool, for each round."""


def rows_of(found: Found, starts: dict[str, Taken]) -> list[dict[str, Any]]:
    """A row for each corpus and tool, with the ratios of ours to a peer."""
    rows = []
    for (corpus, name), taken in found.items():
        if name not in TOOLS:
            continue
        row: dict[str, Any] = {
            "corpus": corpus, "tool": name, "text_bytes": taken[0].text_bytes,
            "mb_s": summary([one.mb_s for one in taken]),
            "wall_s": summary([one.wall_s for one in taken]),
            "cpu_s": summary([one.cpu_s for one in taken]), "start_s": starts[name].wall_s,
            "peak_memory_bytes": max(one.peak_bytes for one in taken),
        }  # fmt: skip
        if not TOOLS[name].is_ours:
            own = found[corpus, DEFAULT]
            this, that = _seconds_a_byte(taken, starts[name]), _seconds_a_byte(own, starts[DEFAULT])
            row[f"{DEFAULT} / this"] = ratios([one.mb_s for one in own], [one.mb_s for one in taken])
            without = round(this / that, 2) if this > 0 and that > 0 else None
            row[f"{DEFAULT} / this, both without their start"] = without
        rows.append(row)
    return rows


def _seconds_a_byte(taken: list[Taken], start: Taken) -> float:
    """Without the start; not positive if that was all of it."""
    wall = statistics.median(one.wall_s for one in taken)
    return (wall - start.wall_s) / max(1, taken[0].text_bytes - START_BYTES)


def ceiling(found: Found, corpus: str, engine: str) -> dict[str, Any]:
    """Share of the bare engine's speed that the command reaches."""
    bare, own = found[corpus, f"bare {engine}"], found[corpus, ENGINES[engine]]
    return {
        "corpus": corpus, "engine": engine, "bare_mb_s": summary([one.mb_s for one in bare]),
        "ours_share_of_it": ratios([one.wall_s for one in bare], [one.wall_s for one in own]),
        "ours_share_of_it_by_cpu": ratios([one.cpu_s for one in bare], [one.cpu_s for one in own]),
    }  # fmt: skip


def goals(rows: list[dict[str, Any]], share: float) -> list[dict[str, Any]]:
    """Goals of speed."""
    found = []
    for row in rows:
        for own, least in TOOLS[row["tool"]].at_least.items() if row["corpus"] == MIX else ():
            ratio = row[f"{own} / this"]["median"]
            found.append(goal(f"{own} / {row['tool']}, mix", ratio, at_least=least))
    for row in rows:
        if row["tool"] == DEFAULT:
            what, least = f"ours, {row['corpus']}", GOALS_MB_S[row["corpus"]]
            found.append(goal(what, row["mb_s"]["median"], at_least=least, unit="MB/s"))
    own = next(row["mb_s"]["median"] for row in rows if (row["corpus"], row["tool"]) == (MIX, DEFAULT))
    for row in rows:
        if row["corpus"] == MIX and row["tool"] in FORMAT_GOALS:
            ratio = row["mb_s"]["median"] / own
            found.append(goal(f"{row['tool']} / ours, mix", ratio, at_least=FORMAT_GOALS[row["tool"]]))
    return [*found, goal("ours / the bare engine, mix", share, at_least=0.6)]


@benchmark(
    corpora=(FOLDER, FOLDER / "quick"),
    tokenizer=Path,
    megatron=Path,
    tools=(list(TOOLS), list(TOOLS)),
    rounds=(2, 1),
    kinds=(list(KINDS), ["english"]),
    kind_mb=(100, 1),
    mix_mb=(1000, 1),
    part_mb=(200, 1),
    prefix_mb=(20, 1),
)
def measured(chosen: Any) -> Any:
    facts = corpora(chosen.corpora, is_quick=chosen.quick)
    python, tools = Path(sys.executable), list(dict.fromkeys([DEFAULT, *chosen.tools]))
    try:
        if chosen.quick or all(TOOLS[name].is_ours for name in tools):
            raise LeftOut
        python = peers_python("peers.txt")
    except LeftOut:
        tools = [name for name in tools if TOOLS[name].is_ours]
    if not chosen.megatron:
        tools = [name for name in tools if "Megatron" not in name]
    with tempfile.TemporaryDirectory(dir=chosen.corpora) as name:
        bench = Bench(chosen, python, Path(name))
        sizes = {"all": chosen.mix_mb, "part": chosen.part_mb, "prefix": chosen.prefix_mb}
        texts = {size: bench.text(MIX, limit * 10**6) for size, limit in sizes.items()}
        kinds = {kind: bench.text(kind, chosen.kind_mb * 10**6) for kind in chosen.kinds if kind != MIX}
        first = bench.text(MIX, START_BYTES)
        for _ in range(1 if chosen.quick else 2):  # the first warms the page cache
            starts = {tool: bench.once(tool, first) for tool in tools}
        whole = kinds | {MIX: texts["all"]}
        cases = {(MIX, tool): partial(bench.once, tool, texts[TOOLS[tool].size]) for tool in tools}
        for corpus, path in whole.items():
            for tool in (tool for tool in tools if TOOLS[tool].size == "all"):
                cases[corpus, tool] = partial(bench.once, tool, path)
            for engine in ENGINES:
                cases[corpus, f"bare {engine}"] = partial(bench.bare, engine, path)
        found = in_turns(cases, chosen.rounds)
        gil_share = bench.gil_share(texts["part"])
        exact = bench.compare(tools, texts)
    order = [(corpus, tool) for corpus in whole for tool in TOOLS if (corpus, tool) in found]
    rows = rows_of({key: found[key] for key in order} | found, starts)
    ceilings = [ceiling(found, corpus, engine) for corpus in whole for engine in ENGINES]
    share = next(row for row in ceilings if (row["corpus"], row["engine"]) == (MIX, "fastokens"))
    megatron = {"megatron-lm": commit_of(chosen.megatron)} if chosen.megatron else {}
    return {
        "what": "whole commands, GPT-2, cold process, warm page cache; medians over the rounds",
        "memory": MEMORY_WORDS, "workers": bench.workers, "rounds": chosen.rounds, "corpora": facts,
        "text_bytes": {corpus: found[corpus, DEFAULT][0].text_bytes for corpus in whole},
        "peers": versions_of(python, PEERS) | megatron, "rows": rows, "ceiling": ceilings,
        "gil_share": round(gil_share, 3),
        "exactness": exact, "goals": goals(rows, share["ours_share_of_it"]["median"]),
    }  # fmt: skip
