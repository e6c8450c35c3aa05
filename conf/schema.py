"""The typed shape of a configuration: every key, its type, default, bounds and meaning.

The yaml files of the groups fill these dataclasses; `conf.composing.check` holds a composed configuration
against them. A key that the schema lacks is refused wherever it stands.

A key added after the first release declares `as_before=VALUE`: the value at which a run is the
run it was before the key existed. It is left out of the identity at that value
(`identity`), so that old runs keep their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

from conf.schema_arch import Arch
from conf.schema_ensemble import Ensemble
from conf.schema_key import AUTO, key
from conf.schema_training import Optimizer, Restore, Schedule, Training

__all__ = [
    "AUTO",
    "DEFAULT_EFFECTIVE_BATCH",
    "Arch",
    "Config",
    "Dataset",
    "Ensemble",
    "Logging",
    "Memory",
    "Model",
    "Optimizer",
    "Restore",
    "Schedule",
    "Slurm",
    "Study",
    "Tokenizer",
    "Training",
    "field_of",
    "key",
    "name_of",
]

DEFAULT_EFFECTIVE_BATCH = 32
"""Windows in a step where neither training.effective_batch nor training.batch_tokens says."""

REMOVED_KEYS = {
    "dataset.num_workers": "was removed: worker processes only made reading slower (385 million tokens/s "
    "without, 78 with two). Remove it; a torch DataLoader over the dataset still works",
    "memory.trace": "was removed: the estimate has one mechanism, formulas within 15% of measured runs "
    "(benchmarks/memory_estimate.py). Remove it",
}
"""Config paths of earlier versions: refused with this line if a user sets one, ignored in saved runs."""
_LARGEST_SEED = 2**63 - 1


def name_of(field_name: str) -> str:
    """Of a key, from its field: `from` is a word of Python, so that its field is `from_`."""
    return field_name.rstrip("_")


def field_of(name: str) -> str:
    """The field of a key: the reverse of `name_of`."""
    return f"{name}_" if iskeyword(name) else name


@dataclass
class Model:
    """`model=`: the size."""

    name: str = key("32d", "name of the size", kind="name")
    d_model: int = key(32, "width", at_least=1)
    n_layers: int | None = key(None, "blocks; null: round(d_model / 16)", at_least=1)
    n_heads: int | None = key(None, "attention heads; null: round(d_model / 16)", at_least=1)


@dataclass
class Dataset:
    """`dataset=`: which tokens."""

    name: str = key("stdlib", "name of the dataset", kind="name")
    source: str = key(
        "text",
        "text: a file; stdlib: Python's own source code; hf: files here, else streamed from the hub; mix: "
        "several of these",
        choices=("text", "stdlib", "hf", "mix"),
    )
    path: str | None = key(
        None,
        ".txt, .npy, tokens of another program, hf://ORG/NAME, or synthetic:KIND:VOCAB:TOKENS:SEED; null: "
        "Datasets/NAME*.txt or .npy",
        kind="path",
    )
    val_path: str | None = key(None, ".txt or .npy held out as val; null: a part of path", kind="path")
    dtype: str = key(
        AUTO,
        "type of raw ids of another program, if its files do not record it",
        choices=(AUTO, "uint16", "uint32", "int32", "int64"),
        as_before=AUTO,
    )
    val_fraction: float = key(0.1, "share of the tokens held out as val; 0: none", at_least=0, below=1)
    val_tokens: int | None = key(
        None, "tokens held out as val; null: val_fraction", kind="count", at_least=1, as_before=None
    )
    test_fraction: float = key(
        0.0, "share of the tokens held out as test", at_least=0, below=1, as_before=0.0
    )
    test_tokens: int | None = key(
        None, "tokens held out as test; null: test_fraction", kind="count", at_least=1, as_before=None
    )
    sources: list[str] = key(
        [], "of dataset=mix: what dataset= or dataset.path= takes, for example [c4,Datasets/code.npy]"
    )
    weights: list[str] = key(
        [], "of dataset=mix: shares of the sources in any prefix, for example [0.7,0.3]", as_before=[]
    )
    curriculum: list[str] = key(
        [], "of dataset=mix: other weights from a token count on: [0.2+0.8@100M,0.1+0.9@1B]", as_before=[]
    )
    when_dry: str = key(
        "stop",
        "of dataset=mix, where all of a source was read: stop: the budget must end by then; repeat: it is "
        "read again; rebalance: the others go on with their weights scaled up",
        choices=("stop", "repeat", "rebalance"),
        as_before="stop",
    )
    windows: str = key(
        "plain",
        "plain; shifted: each step has a shift of its own; streams: rows continue from step to step",
        choices=("plain", "shifted", "streams"),
        as_before="plain",
    )
    documents: str = key(
        "across",
        "across: windows go over their borders; masked: attention, positions and loss do not; separate: "
        "whole documents packed into windows",
        choices=("across", "masked", "separate"),
        as_before="across",
    )
    stride: int | None = key(
        None, "tokens from one window to the next; null: seq_len", at_least=1, as_before=None
    )
    shift: int = key(1, "tokens from an input to its label", at_least=1, as_before=1)
    order: str = key(
        "shuffled",
        "order of windows; shuffled_blocks: blocks of block_windows; shuffled_shards: file by file",
        choices=("shuffled", "sequential", "shuffled_blocks", "shuffled_shards"),
        as_before="shuffled",
    )
    block_windows: int = key(256, "windows in a block of order=shuffled_blocks", at_least=1, as_before=256)
    shard_windows: int | None = key(
        None,
        "order=shuffled_shards: windows of a file before the next; null: all",
        kind="count",
        at_least=1,
        as_before=None,
    )
    reader: str = key(AUTO, "how tokens are read", choices=(AUTO, "mmap", "pread", "memory"), as_before=AUTO)
    max_resident: int | None = key(
        None, "RSS that reader=mmap can add; null: no limit", kind="size", at_least=1, as_before=None
    )
    verify: str = key(
        "set",
        "checksums; set: once, when a set is first opened; blocks: each block again before its first use",
        choices=("set", "blocks"),
        as_before="set",
    )
    hub_split: str = key("train", "hf://: split to train on", as_before="train")
    text_field: str | None = key(None, "hf://: field of the text; null: text", as_before=None)
    buffer_windows: int = key(
        1024, "streamed hf://: windows in the shuffle buffer", at_least=1, as_before=1024
    )
    materialize: bool = key(
        False, "tokenize hf:// into Datasets/ once, and read it as a token set", as_before=False
    )
    materialize_tokens: int | None = key(
        None, "tokens of hf:// to tokenize; null: all", kind="count", at_least=1, as_before=None
    )
    cache: str | None = key(
        None,
        "folder of downloads from s3://, r2://, https://; null: ~/.cache/highwater",
        kind="path",
        as_before=None,
    )
    disk_budget: int | None = key(
        None, "limit of dataset.cache; null: all downloads are kept", kind="size", at_least=1, as_before=None
    )
    download_workers: int = key(8, "requests at a time to a store", at_least=1, as_before=8)
    part_size: int = key(
        8 << 20, "bytes of a request to a store", kind="size", at_least=1024, as_before=8 << 20
    )
    ranks: str = key(
        "distinct",
        "distinct: each rank reads its own part of a step; shared: all read the same windows",
        choices=("distinct", "shared"),
        as_before="distinct",
    )
    repeat: bool = key(False, "allow a budget of more than one epoch")
    default_max_tokens: int = key(2_000_000, "budget when none is given", kind="count", at_least=1)
    auto_tokenize: bool = key(True, "tokenize a text that has no token file yet")
    document_separator: str | None = key(None, "line that ends a document; null: one document a file")
    encoding: str = key("utf-8", "encoding of the text")
    errors: str = key("strict", "undecodable bytes", choices=("strict", "replace", "ignore"))


@dataclass
class Tokenizer:
    """`tokenizer=`: text to ids. Its default comes from the dataset."""

    name: str = key("bytes", "bytes, ids, or a name for messages and file names")
    path: str | None = key(None, "folder with tokenizer.json, or vocab.json + merges.txt", kind="path")
    local_folder: str | None = key(None, "folder to look in if path is null", kind="path")
    repo: str | None = key(None, "Hugging Face repository, cache first, then the hub; or tiktoken:NAME")


@dataclass
class Memory:
    """`memory=`: what is measured while the run goes on, and what is asked of it before."""

    every_steps: int = key(100, "steps between two train records", at_least=1)
    supervise: bool = key(True, "a small parent process samples the run's memory and records how it ended")
    refuse: bool = key(True, "do not start a run that cannot fit; false: start it with a warning")
    margin: float = key(
        0.1, "of the estimate, that is left free where a size is chosen: micro_batch=auto", at_least=0
    )
    attribute: bool = key(False, "list what holds the memory after the first step, at the peak, at the end")


@dataclass
class Logging:
    """`logging=`: what is printed while the run goes on, and where else its numbers go."""

    every_s: float = key(5.0, "seconds between two progress lines", above=0)
    to: str | None = key(
        None,
        "where a second process writes the run's series too; null: only the run's own files",
        choices=("csv", "tensorboard", "wandb"),
        as_before=None,
    )
    every_steps: int = key(
        1, "logging.to: steps between two points; evaluations are always included", at_least=1, as_before=1
    )
    sample_every: int | None = key(
        None, "steps between two samples of text, which samples.jsonl keeps; null: none",
        at_least=1, as_before=None,
    )  # fmt: skip
    sample_prompt: str | None = key(
        None, "text that samples continue; null: the first tokens of val", as_before=None
    )
    project: str | None = key(
        None, "logging.to=wandb: project; null: WANDB_PROJECT, else highwater", as_before=None
    )
    metrics: list[str] = key([], "metrics of your own: [NAME,...]", as_before=[])


@dataclass
class Slurm:
    """`slurm=`: what a job asks of the cluster, and how it behaves there. An option is a site."""

    name: str = key("default", "site; for messages and docs")
    partition: str | None = key(None, "sbatch --partition; null: the cluster's default")
    account: str | None = key(None, "sbatch --account")
    qos: str | None = key(None, "sbatch --qos")
    constraint: str | None = key(None, "sbatch --constraint")
    mem: int | str | None = key(
        AUTO,
        "memory of a node; auto: the estimate and a margin; null: the cluster's default",
        kind="size",
        at_least=1 << 20,
    )
    time: str = key(AUTO, "time limit: 24:00:00, 1-12, 90, 2h; auto: from measured tokens/s", kind="time")
    nodes: int = key(1, "nodes of a run", at_least=1)
    tasks_per_node: int | str = key(AUTO, "ranks on each node; auto: one for each GPU, else one", at_least=1)
    gpus_per_node: int = key(0, "sbatch --gres=gpu:N", at_least=0)
    gpu_type: str | None = key(None, "sbatch --gres=gpu:TYPE:N")
    gpu_mem: int | str | None = key(
        None, "memory of one GPU, for plans; null: by its type", kind="size", at_least=1 << 30
    )
    cpus_per_task: int | str = key(AUTO, "cores of a rank; auto: training.threads, else 2", at_least=1)
    by_model: dict[str, Any] = key({}, "other values of these keys for runs of one size: {256d: {mem: 64GB}}")
    offline: bool = key(
        False,
        "the nodes have no internet: what would be fetched there is refused, HF_HUB_OFFLINE=1 is set",
    )
    parallel: int | None = key(None, "tasks of an array that run at a time (%N); null: all", at_least=1)
    pack: int = key(1, "parallel runs in one task, each in a step of its own", at_least=1)
    workers: int | None = key(
        None, "jobs that take one missing run after the other; null: a task for each run", at_least=1
    )
    signal_s: int = key(
        120, "seconds before the time limit at which a run is asked to checkpoint", at_least=1
    )
    requeue: bool = key(True, "resume in the same job after a timeout, a preemption, a lost node")
    max_idle_attempts: int = key(3, "attempts without progress after which a run is given up", at_least=1)
    setup: list[str] = key([], "lines of shell before the run: modules, a venv")
    python: str | None = key(
        None, "Python that jobs run, as typed in their shell: python, ~/venv/bin/python; null: this command's"
    )
    srun_args: list[str] = key([], "further arguments of srun, which starts each run: --mpi=pmix")
    options: list[str] = key([], "any other option of sbatch, as it is typed: --exclusive, --nodelist=n1")
    confirm: int = key(1000, "largest number of runs that is submitted without asking", at_least=1)
    require_clean: bool = key(False, "refuse to submit from a git tree with changes")


@dataclass
class Study:
    """`study=`: a named sweep of conf/study; its name is where the runs go."""

    name: str | None = key(None, "folder below runs_dir; null: the study option, else 'default'", kind="name")


@dataclass
class Config:
    """A whole configuration, as composed and checked."""

    model: Model = field(default_factory=Model)
    arch: Arch = field(default_factory=Arch)
    dataset: Dataset = field(default_factory=Dataset)
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    training: Training = field(default_factory=Training)
    restore: Restore = field(default_factory=Restore)
    ensemble: Ensemble = field(default_factory=Ensemble)
    memory: Memory = field(default_factory=Memory)
    logging: Logging = field(default_factory=Logging)
    slurm: Slurm = field(default_factory=Slurm)
    study: Study = field(default_factory=Study)
    seed: int = key(0, "sets seed_init and seed_data", at_least=0, at_most=_LARGEST_SEED)
    seed_init: int | None = key(
        None, "seed of the initial weights; null: seed", at_least=0, at_most=_LARGEST_SEED
    )
    seed_data: int | None = key(
        None, "seed of the order of data; null: seed", at_least=0, at_most=_LARGEST_SEED
    )
    plugins: list[str] = key(
        [],
        "files, folders or modules with parts of your own (docs/own_parts.md): [my_parts.py]",
        as_before=[],
    )
    own: dict[str, Any] = key({}, "options of your own parts that are in use: own.NAME.OPTION", as_before={})
    runs_dir: str = key("runs", "folder of studies and their runs", kind="path")
    plan: bool = key(False, "show what would run and what it costs; run nothing")
    wait: bool = key(False, "after submitting: wait for the jobs and show how they go; Ctrl-C leaves them")
    code: str = key(
        "same",
        "same: resume an unfinished run only with the code of its last attempt; any: also with changed code",
        choices=("same", "any"),
    )
    again: bool = key(False, "begin again from step 0, also a finished run; attempts/N/ keeps what it has")
    then: str | None = key(None, "job to run when the sweep has ended", choices=("analysis",))
    notify: str | None = key(None, "gets a message at the end of a study: mail address or https:// webhook")
    tags: list[str] = key([], "words by which to find the run")
    notes: str = key("", "free text")
