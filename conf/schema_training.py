"""The keys of `optimizer=`, `schedule=`, `training=` and `restore=`: how the weights are moved."""

from __future__ import annotations

from dataclasses import dataclass

from conf.schema_key import AUTO, key


@dataclass
class Optimizer:
    """`optimizer=`. What an algorithm does not have is refused (conf/between_keys/optimizer_rules.py)."""

    name: str = key(
        "adamw",
        "algorithm",
        choices=(
            "adamw", "adam", "sgd", "rmsprop", "adagrad", "lion", "muon", "adafactor", "schedule_free",
        ),
    )  # fmt: skip
    lr: float = key(3e-3, "peak learning rate", above=0)
    beta1: float = key(0.9, "decay of the first moment", at_least=0, below=1)
    beta2: float = key(0.95, "decay of the second moment", at_least=0, below=1)
    eps: float = key(1e-8, "number added to the denominator", above=0)
    weight_decay: float = key(
        0.1, "of matrices, decoupled (adam, sgd, rmsprop, adagrad: L2); norms and vectors have none",
        at_least=0,
    )  # fmt: skip
    grad_clip: float | None = key(1.0, "largest global gradient norm; null: none", above=0)
    momentum: float = key(
        0.0, "share of the last step that is kept (sgd, rmsprop, muon)", at_least=0, below=1, as_before=0.0
    )
    nesterov: bool = key(False, "Nesterov momentum (sgd, muon)", as_before=False)
    muon_scale: str = key(
        "adamw",
        "size of muon's update; adamw: that of AdamW, so that lr is one for all; keller: sqrt(max(1, "
        "rows / columns))",
        choices=("adamw", "keller"),
        as_before="adamw",
    )
    grad_noise: float = key(
        0.0, "variance of noise in the gradient at the first step, / step^0.55", at_least=0, as_before=0.0
    )
    lr_factor_embedding: float = key(
        1.0, "lr of embeddings and of a tied head / optimizer.lr", above=0, as_before=1.0
    )
    lr_factor_hidden: float = key(1.0, "lr of the matrices of blocks / optimizer.lr", above=0, as_before=1.0)
    lr_factor_output: float = key(1.0, "lr of an untied head / optimizer.lr", above=0, as_before=1.0)
    lr_factor_vector: float = key(1.0, "lr of gains and biases / optimizer.lr", above=0, as_before=1.0)


@dataclass
class Schedule:
    """`schedule=`: learning rate over the run. What a shape does not have is refused
    (conf/between_keys/schedule_rules.py)."""

    name: str = key(
        "cosine_warmup",
        "shape of the learning rate over time",
        choices=(
            "constant", "cosine", "cosine_warmup", "linear_warmup", "inverse_sqrt", "one_cycle",
            "transformer", "wsd", "stable",
        ),
    )  # fmt: skip
    warmup_fraction: float = key(0.05, "share of the steps with rising lr", at_least=0, below=1)
    final_lr_fraction: float = key(0.1, "lr at the end / peak lr", at_least=0, at_most=1)
    warmup_steps: int | None = key(
        None, "steps with rising lr, instead of warmup_fraction", kind="count", at_least=0, as_before=None
    )
    warmup_tokens: int | None = key(
        None, "tokens with rising lr, instead of warmup_fraction", kind="count", at_least=0, as_before=None
    )
    decay_fraction: float = key(
        0.2, "wsd: share of the steps with falling lr, at the end", at_least=0, at_most=1, as_before=0.2
    )
    decay_shape: str = key(
        "sqrt", "wsd: shape of the decay", choices=("sqrt", "linear", "cosine"), as_before="sqrt"
    )


@dataclass
class Training:
    """`training=`: budget, batch, evaluation, checkpoints, device."""

    max_tokens: int | None = key(None, "budget in tokens (1B, 500M)", kind="count", at_least=1)
    max_steps: int | None = key(None, "budget in optimizer steps", kind="count", at_least=1)
    tokens_per_param: float | None = key(None, "budget in tokens per parameter, all of them", above=0)
    seq_len: int = key(128, "tokens in a window", at_least=1)
    effective_batch: int | None = key(None, "windows in a step; null: 32", kind="count", at_least=1)
    batch_tokens: int | None = key(
        None, "tokens in a step, instead of effective_batch", kind="count", at_least=1
    )
    micro_batch: int | str = key(AUTO, "windows on the device at a time", at_least=1)
    activation_checkpointing: bool | int = key(
        False,
        "recompute blocks in the backward pass: less memory; a number: only the first blocks",
        at_least=1,
    )
    loss_chunk: int | str = key(AUTO, "tokens whose logits exist at a time", at_least=1)
    precision: str = key(
        AUTO,
        "auto: bf16 if the GPU has it, else fp16 with a loss scale",
        choices=(AUTO, "fp32", "bf16", "fp16"),
    )
    matmul_precision: str = key(
        "highest",
        "inside fp32 products on a GPU; high: TF32; medium: TF32 or bf16; a CPU keeps highest",
        choices=("highest", "high", "medium"),
        as_before="highest",
    )
    deterministic: bool = key(
        False, "on a GPU too the same numbers bit for bit each time, where that is slower", as_before=False
    )
    device: str = key(AUTO, "auto: cuda if there is one", choices=(AUTO, "cpu", "cuda"))
    threads: int | str = key(AUTO, "CPU threads of torch; auto: cores of this job", at_least=1)
    parallel: str = key(
        "ddp",
        "of a run on several ranks; ddp: the whole model on each; fsdp: sharded over them (FSDP2)",
        choices=("ddp", "fsdp"),
        as_before="ddp",
    )
    compile: bool = key(False, "torch.compile; not reproducible bit for bit on CPU")
    cuda_graph: bool | str = key(
        AUTO,
        "on a GPU the step as CUDA graphs, one launch each; auto: where it can be and is faster",
        choices=(AUTO,),
    )
    evals: int = key(10, "evaluations over the run, the last one at its end", at_least=1)
    eval_spacing: str = key("linear", "spacing of the evaluations in tokens", choices=("linear", "log"))
    eval_tokens: int = key(
        100_000, "val tokens read at each, from the start of val", kind="count", at_least=1
    )
    eval_by_position: bool = key(
        False, "record the losses of an evaluation by position in the window too", as_before=False
    )
    profile: str | None = key(
        None, "steps whose time and memory are traced: 10:20, both included", as_before=None
    )
    checkpoint_every: int = key(200, "steps between checkpoints", kind="count", at_least=1)
    checkpoint_writing: str = key(
        AUTO,
        "background: while training goes on, from a copy in memory; foreground: training waits for the disk; "
        "auto: by the memory that is free",
        choices=(AUTO, "background", "foreground"),
    )
    keep_checkpoints: int = key(2, "checkpoints kept in addition to the best one", at_least=1)
    patience: int | None = key(
        None,
        "evaluations without a new best after which the run ends; null: none",
        at_least=1,
        as_before=None,
    )
    max_time: str | None = key(
        None,
        "in training steps, over all attempts: 1h, 90min; then it stops, and goes on where it is given more",
        kind="time",
        as_before=None,
    )
    on_spike: str = key(
        "none",
        "what is done with an outlier step; skip: it is left out; rollback: those before it are "
        "too, back to the last multiple of rollback_every or evaluation",
        choices=("none", "skip", "rollback"),
        as_before="none",
    )
    rollback_every: int = key(
        200,
        "on_spike=rollback: steps between two rollback points",
        at_least=1,
        as_before=200,
    )
    spike_threshold: float = key(
        10.0, "robust deviations above the median of loss or gradient norm", above=0, as_before=10.0
    )
    spike_window: int = key(100, "steps of the median", at_least=4, as_before=100)
    dead_units: bool = key(
        False, "report the share of dead feed-forward units at each evaluation", as_before=False
    )
    milestones: list[str] = key(
        [], "token counts after which a checkpoint is kept permanently: [50M,100M]", as_before=[]
    )
    step: str = key(
        "default", "what one step computes; or a step of your own", choices=("default",), as_before="default"
    )
    callbacks: list[str] = key([], "callbacks of your own: [NAME,...]", as_before=[])
    ema: float | None = key(
        None,
        "decay of a moving average of the weights, which is evaluated instead; null: none",
        above=0,
        below=1,
        as_before=None,
    )


@dataclass
class Restore:
    """`restore=`: what of another run this one begins with."""

    from_: str | None = key(
        None, "a run's folder, or one of its checkpoints; null: initial weights", kind="path", as_before=None
    )
    what: str = key(
        "weights",
        "weights: as it evaluates them; optimizer: as it trains them, and its moments; both from step 0. "
        "run: all, going on at its step: a branch",
        choices=("weights", "optimizer", "run"),
        as_before="weights",
    )
    step: int | None = key(
        None,
        "of its checkpoint; null: the newest, of a branch of wsd the newest before the decay",
        kind="count",
        at_least=1,
        as_before=None,
    )
    strict: bool = key(True, "refuse if parameters differ; false: take those that match", as_before=True)
