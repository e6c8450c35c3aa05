"""Every option of a model, with what it does and where it comes from: the table of docs/models.md.

    python -m models.options            writes the table into docs/models.md
    python -m models.options --check    exits 1 where it is another there

No torch. Tests hold the keys and choices to `conf.schema`, and the choices to the code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
BEGIN, END = "<!-- Made by `python -m models.options`. -->\n", "<!-- End of what it makes. -->\n"


@dataclass(frozen=True)
class Option:
    """choice: a value of the key, or `number`. source: a work, with its arXiv number where it has one."""

    choice: str
    what: str
    source: str = ""


GPT2 = "Radford et al. 2019 (GPT-2)"
VASWANI = "Vaswani et al., 1706.03762"

MERITY = "Merity et al., 1708.02182"

OPTIONS: dict[str, tuple[Option, ...]] = {
    "family": (
        Option("transformer", "attention and feed-forward", VASWANI),
        Option(
            "lstm",
            "a layer of `torch.nn.LSTM` a block, with a norm where `arch.norm_position` says",
            "Hochreiter & Schmidhuber 1997; Zaremba et al., 1409.2329",
        ),
        Option(
            "mingru",
            "`h_t = (1 - z_t) h_(t-1) + z_t g(v_t)`, all positions at once, and feed-forward",
            "Feng et al., 2410.01201",
        ),
    ),
    "norm": (
        Option("rms", "RMSNorm with a gain", "Zhang & Sennrich, 1910.07467"),
        Option("layer", "LayerNorm with a gain", "Ba et al., 1607.06450"),
        Option("none", "none at all, without a final one either"),
    ),
    "norm_position": (
        Option("pre", "`x + f(norm(x))`, and a norm after the last block", GPT2),
        Option("post", "`norm(x + f(x))`", VASWANI),
        Option("sandwich", "`x + norm(f(norm(x)))`, a norm after the last block", "Ding et al., 2105.13290"),
    ),
    "final_norm": (
        Option("same", "after the last block: `arch.norm`; none behind `post`, which ends with one"),
        Option("rms", "RMSNorm"),
        Option("layer", "LayerNorm"),
        Option("none", "none"),
    ),
    "norm_eps": (Option("number", "added to the variance in every norm"),),
    "qk_norm": (
        Option("false", "queries and keys as they are"),
        Option(
            "true",
            "RMSNorm over each head's queries and keys, before they are rotated",
            "Henry et al., 2010.04245",
        ),
    ),
    "parallel_blocks": (
        Option("false", "attention, then feed-forward"),
        Option("true", "both side by side, behind one norm", "Wang & Komatsuzaki 2021 (GPT-J)"),
    ),
    "positions": (
        Option(
            "rotary",
            "queries and keys turn by `t * arch.rope_theta^(-2i / head_dim)`; halves of a head form pairs, "
            "as in Llama",
            "Su et al., 2104.09864",
        ),
        Option("learned", "a learned vector a position, added to the embedding", GPT2),
        Option(
            "sinusoidal",
            "fixed sines and cosines, added to the embedding times sqrt(width)",
            VASWANI + ", 3.4 and 3.5",
        ),
        Option(
            "alibi",
            "scores fall with the distance, in each head by another slope",
            "Press et al., 2108.12409",
        ),
        Option("none", "nothing but the causal mask", "Kazemnejad et al., 2305.19466"),
    ),
    "rope_theta": (Option("number", "base of the rotary frequencies"),),
    "rope_fraction": (
        Option(
            "number", "of each head, that is rotated; the rest stays as it is", "Black et al., 2204.06745"
        ),
    ),
    "rope_scaling": (
        Option("none", "frequencies as they are"),
        Option("linear", "all divided by `arch.rope_factor`", "Chen et al., 2306.15595"),
        Option("ntk", "a larger theta: the slowest as with `linear`, the fastest as they are", "bloc97 2023"),
        Option(
            "llama3",
            "as `linear` for pairs that turn at most `arch.rope_low_frequency` times in "
            "`arch.rope_original_positions`, nothing for those that turn `arch.rope_high_frequency` times",
            "Llama 3, 2407.21783",
        ),
    ),
    "n_kv_heads": (
        Option("null", "as many heads of keys and values as of queries", VASWANI),
        Option("number", "fewer, each shared by several of queries (GQA)", "Ainslie et al., 2305.13245"),
        Option("1", "one for all (MQA)", "Shazeer, 1911.02150"),
    ),
    "window": (
        Option("null", "a position sees all before it"),
        Option("number", "the last so many, itself included", "Jiang et al., 2310.06825 (Mistral)"),
    ),
    "attention_softcap": (
        Option("null", "scores of attention as they are"),
        Option(
            "number",
            "`c tanh(scores / c)`, before the mask; by plain products, which keep a score for each pair of "
            "positions",
            "Gemma 2, 2408.00118",
        ),
    ),
    "activation": (
        Option("swiglu", "`W3 (silu(W1 x) * W2 x)`", "Shazeer, 2002.05202"),
        Option("geglu", "`W3 (gelu(W1 x) * W2 x)`, the tanh approximation", "Shazeer, 2002.05202"),
        Option(
            "gelu", "`W2 gelu(W1 x)`, the tanh approximation, as in GPT-2", "Hendrycks & Gimpel, 1606.08415"
        ),
        Option("gelu_exact", "`W2 gelu(W1 x)` with the error function", "Hendrycks & Gimpel, 1606.08415"),
        Option("relu", "`W2 relu(W1 x)`", VASWANI),
        Option("relu2", "`W2 relu(W1 x)²`", "So et al., 2109.08668 (Primer)"),
        Option("silu", "`W2 silu(W1 x)`", "Ramachandran et al., 1710.05941"),
    ),
    "ffn_multiplier": (
        Option("number", "width inside the feed-forward part / `model.d_model`, for every activation"),
    ),
    "n_experts": (
        Option("null", "one feed-forward part for all tokens"),
        Option(
            "number",
            "so many of that width; a token goes through `arch.experts_per_token`, none is dropped",
            "Shazeer et al., 1701.06538; Jiang et al., 2401.04088 (Mixtral)",
        ),
    ),
    "experts_per_token": (Option("number", "those a router likes best, weighted by a softmax over them"),),
    "balance_loss": (
        Option(
            "number",
            "weight of `n Σ f P`, that keeps experts equal; in the gradients, not in the losses reported",
            "Fedus et al., 2101.03961, 2.2",
        ),
    ),
    "balance_over": (
        Option(
            "sequence",
            "each sequence by itself, averaged: the same for every micro-batch and number of ranks",
            "DeepSeek-AI, 2412.19437 (DeepSeek-V3), 2.1.2",
        ),
        Option("micro_batch", "each micro-batch, as in runs before this key: results depend on its size"),
    ),
    "bias": (
        Option("none", "no biases", "Chowdhery et al., 2204.02311 (PaLM)"),
        Option("qkv", "of queries, keys and values", "Qwen 2, 2407.10671"),
        Option("linear", "of every product of the blocks"),
        Option("all", "of norms as well, where they can have some (LayerNorm)", GPT2),
    ),
    "head_bias": (
        Option("false", "logits are products"),
        Option("true", "a learned number for each id is added"),
    ),
    "dropout_embedding": (Option("number", "of embeddings with their positions", GPT2),),
    "dropout_attention": (Option("number", "of the weights of attention", VASWANI),),
    "dropout_residual": (
        Option("number", "of what attention, feed-forward or a recurrent layer give", VASWANI),
    ),
    "dropout_locked": (
        Option("false", "each number is dropped by itself"),
        Option(
            "true",
            "of a recurrence: those of a row at all its positions, in embeddings and between layers",
            "Gal & Ghahramani, 1512.05287; " + MERITY,
        ),
    ),
    "dropout_recurrent": (
        Option("number", "of an LSTM's weights from state to state, drawn once a pass (weight-drop)", MERITY),
    ),
    "lstm_residual": (
        Option("true", "an LSTM's layer adds to what it was given", "Wu et al., 1609.08144, 3.1"),
        Option("false", "what it gives takes the place of that, as in `torch.nn.LSTM`"),
    ),
    "lstm_forget_bias": (
        Option(
            "number", "first bias of forget gates, with `arch.bias=linear` or `all`", "Jozefowicz et al. 2015"
        ),
    ),
    "state_reset": (
        Option("null", "of a recurrence: every window begins with a state of zeros"),
        Option(
            "number",
            "rows go on with the states of the step before (`dataset.windows=streams`), gradients do not; "
            "that of a row is reset with this probability, and where its text does not go on",
            "Mikolov et al. 2010; " + MERITY,
        ),
    ),
    "tied_head": (
        Option("true", "the output matrix is the embedding matrix", "Press & Wolf, 1608.05859"),
        Option("false", "an output matrix of its own"),
    ),
    "logit_softcap": (
        Option("null", "logits as they are"),
        Option("number", "`c tanh(logits / c)`", "Gemma 2, 2408.00118"),
    ),
    "z_loss": (
        Option(
            "number",
            "weight of `log(Z)²`, Z the sum of exponents; in the gradients, not in the losses reported",
            "Chowdhery et al., 2204.02311 (PaLM), 5",
        ),
    ),
    "init": (
        Option(
            "default",
            "every matrix from N(0, init_std²); the two of a block that write to the residual stream from "
            "N(0, init_std² / 2L)",
            GPT2 + ", 2.3",
        ),
        Option("xavier", "variance 2 / (inputs + outputs); tables N(0, init_std²)", "Glorot & Bengio 2010"),
        Option("kaiming", "variance 2 / inputs; tables N(0, init_std²)", "He et al., 1502.01852"),
        Option(
            "transformer_scaled",
            "variance 2 / 5d; standard deviation 2 / (L sqrt(d)) where written to the residual stream",
            "Nguyen & Salazar, 1910.05895; Black et al., 2204.06745",
        ),
        Option("gpt2", "0.02, positions 0.01, 0.02 / sqrt(2L) where written to the residual stream", GPT2),
        Option(
            "mup",
            "muP: settings found at `arch.base_width` hold at every width",
            "Yang & Hu et al., 2203.03466, table 8",
        ),
        Option(
            "completep",
            "CompleteP: at every depth as well, from `arch.base_layers` on",
            "Dey et al., 2505.01618, table 1",
        ),
    ),
    "init_std": (
        Option(
            "number",
            "standard deviation of first weights, for `default`, `mup` and `completep`; of tables alone for "
            "`xavier` and `kaiming`",
        ),
    ),
}


def table() -> str:
    """The rows of all options; of a key with several choices the first row names it."""
    lines = ["| key | choice | what | source |", "|---|---|---|---|"]
    for key, options in OPTIONS.items():
        for number, option in enumerate(options):
            name = f"`arch.{key}`" if number == 0 else ""
            choice = option.choice if option.choice == "number" else f"`{option.choice}`"
            lines.append(
                f"| {name} | {choice} | {option.what} | {linked(option.source)} |".replace("|  |", "| |")
            )
    return "\n".join(lines) + "\n"


def linked(source: str) -> str:
    """arXiv numbers as links."""
    return re.sub(
        r"\b\d{4}\.\d{5}\b", lambda found: f"[{found[0]}](https://arxiv.org/abs/{found[0]})", source
    )


def with_table(page: str) -> str:
    """The page with the table of today between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Write the table into the page, or with --check say whether it is there."""
    page = PAGE.read_text(encoding="utf-8")
    made = with_table(page)
    if list(arguments) == ["--check"]:
        return int(made != page)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
