"""A causal language model of Hugging Face transformers, from its config, or finetuned from its weights.

    python experiments.py plugins=[examples/transformers_model.py] arch=causal_lm own.causal_lm.kind=gpt2
    python experiments.py plugins=[examples/transformers_model.py] arch=causal_lm \
        own.causal_lm.weights=FOLDER dataset=text dataset.path=my.txt tokenizer=custom tokenizer.path=FOLDER
"""

from dataclasses import dataclass

import torch
from torch import nn

from highwater import option, register


@dataclass
class CausalOptions:
    kind: str = option("gpt2", "model_type of transformers, whose config takes the size of model=")
    weights: str | None = option(None, "folder with a pretrained model; null: initial weights", kind="path")


@register.model("causal_lm", options=CausalOptions)
class CausalLM(nn.Module):
    """input_ids int64 (batch, seq) -> logits (batch, seq, vocab_size)."""

    def __init__(self, options: CausalOptions, size, vocab_size: int, seq_len: int) -> None:
        super().__init__()
        from transformers import AutoConfig, AutoModelForCausalLM

        if options.weights is not None:
            self.model = AutoModelForCausalLM.from_pretrained(options.weights, dtype=torch.float32)
            return
        config = AutoConfig.for_model(
            options.kind,
            vocab_size=vocab_size,
            hidden_size=size.d_model,
            num_hidden_layers=size.n_layers,
            num_attention_heads=size.n_heads,
            max_position_embeddings=seq_len,
            bos_token_id=None,
            eos_token_id=None,
            use_cache=False,
        )
        self.model = AutoModelForCausalLM.from_config(config)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, use_cache=False).logits
