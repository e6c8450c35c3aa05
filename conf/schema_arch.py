"""The keys of `arch=`: what a model is made of. Meanings and sources: docs/models.md."""

from __future__ import annotations

from dataclasses import dataclass

from conf.schema_key import key


@dataclass
class Arch:
    """`arch=`: what the blocks are made of."""

    name: str = key("transformer", "name of the variant")
    family: str = key("transformer", "model family", choices=("transformer", "lstm", "mingru"))
    norm: str = key("rms", "normalization", choices=("rms", "layer", "none"))
    norm_position: str = key("pre", "place of the norm in a block", choices=("pre", "post", "sandwich"))
    final_norm: str = key(
        "same",
        "norm after the last block; same: arch.norm, none after post",
        choices=("same", "rms", "layer", "none"),
        as_before="same",
    )
    norm_eps: float = key(1e-5, "number added to the variance", above=0)
    qk_norm: bool = key(False, "RMSNorm over each head's queries and keys", as_before=False)
    parallel_blocks: bool = key(
        False, "attention and feed-forward in parallel, after one norm", as_before=False
    )
    positions: str = key(
        "rotary", "position information", choices=("rotary", "learned", "sinusoidal", "alibi", "none")
    )
    rope_theta: float = key(10000.0, "base of the rotary frequencies", above=0)
    rope_fraction: float = key(1.0, "share of each head that is rotated", above=0, at_most=1, as_before=1.0)
    rope_scaling: str = key(
        "none",
        "scaling of rotary frequencies, for longer sequences",
        choices=("none", "linear", "ntk", "llama3"),
        as_before="none",
    )
    rope_factor: float = key(
        1.0, "factor by which rope_scaling lengthens the sequence", at_least=1, as_before=1.0
    )
    rope_original_positions: int = key(
        8192, "rope_scaling=llama3: original length", at_least=1, as_before=8192
    )
    rope_low_frequency: float = key(
        1.0, "rope_scaling=llama3: frequencies up to this number of turns are scaled", above=0, as_before=1.0
    )
    rope_high_frequency: float = key(
        4.0, "rope_scaling=llama3: frequencies from this number of turns are kept", above=0, as_before=4.0
    )
    n_kv_heads: int | None = key(
        None,
        "heads of keys and values, shared by query heads; null: model.n_heads, 1: MQA",
        at_least=1,
        as_before=None,
    )
    window: int | None = key(
        None,
        "positions that attention sees, including its own; null: all",
        at_least=1,
        as_before=None,
    )
    attention_softcap: float | None = key(
        None, "c: scores of attention become c tanh(scores / c); null: as they are", above=0, as_before=None
    )
    activation: str = key(
        "swiglu",
        "feed-forward kind",
        choices=("swiglu", "geglu", "gelu", "gelu_exact", "relu", "relu2", "silu"),
    )
    ffn_multiplier: float = key(4.0, "feed-forward hidden width / d_model", above=0)
    n_experts: int | None = key(
        None,
        "feed-forward experts of a block; null: one feed-forward part",
        at_least=2,
        as_before=None,
    )
    experts_per_token: int = key(2, "experts that a token goes through", at_least=1, as_before=2)
    balance_loss: float = key(
        0.01, "weight of the loss that keeps experts equally used", at_least=0, as_before=0.01
    )
    balance_over: str = key(
        "sequence",
        "what balance_loss is computed of, and then averaged; micro_batch: as in runs before this key, whose "
        "results depend on training.micro_batch",
        choices=("sequence", "micro_batch"),
        as_before="micro_batch",
        only_with="n_experts",
    )
    bias: str = key(
        "none",
        "biases; qkv: queries, keys, values; linear: all products of the blocks; all: norms too",
        choices=("none", "qkv", "linear", "all"),
        as_before="none",
    )
    head_bias: bool = key(False, "learned number added to the logit of each id", as_before=False)
    dropout_embedding: float = key(0.0, "dropout of embeddings", at_least=0, below=1, as_before=0.0)
    dropout_attention: float = key(0.0, "dropout of attention weights", at_least=0, below=1, as_before=0.0)
    dropout_residual: float = key(
        0.0, "dropout of the output of a branch", at_least=0, below=1, as_before=0.0
    )
    dropout_locked: bool = key(
        False, "recurrence: drop the same numbers at all positions of a row", as_before=False
    )
    dropout_recurrent: float = key(
        0.0, "LSTM: dropout of its recurrent weights", at_least=0, below=1, as_before=0.0
    )
    lstm_residual: bool = key(True, "a layer adds its output to its input", as_before=True)
    lstm_forget_bias: float = key(1.0, "initial bias of forget gates, if there are biases", as_before=1.0)
    state_reset: float | None = key(
        None,
        "of a recurrence: rows go on with their states from step to step, reset with this probability; null: "
        "every window begins with zeros",
        at_least=0,
        at_most=1,
        as_before=None,
    )
    tied_head: bool = key(True, "output matrix = embedding matrix")
    logit_softcap: float | None = key(
        None, "c: logits become c tanh(logits / c); null: as they are", above=0, as_before=None
    )
    z_loss: float = key(0.0, "weight of log(Z)^2 in the minimized loss", at_least=0, as_before=0.0)
    init: str = key(
        "default",
        "first weights; mup, completep: and how settings follow the width, the depth",
        choices=(
            "default",
            "xavier",
            "kaiming",
            "transformer_scaled",
            "gpt2",
            "mup",
            "completep",
        ),
        as_before="default",
    )
    init_std: float = key(0.02, "standard deviation of initial weights", above=0)
    base_width: int = key(
        64,
        "init=mup, completep: d_model for which the settings are",
        at_least=1,
        as_before=64,
    )
    base_layers: int | None = key(
        None,
        "init=completep: layers for which the settings are; null: round(base_width / 16)",
        at_least=1,
        as_before=None,
    )
    max_positions: int | None = key(
        None, "longest sequence the model takes; null: training.seq_len", at_least=1
    )
