"""A dataset from a generator, a tokenizer and an activation of one's own.

python experiments.py plugins=[examples/own_dataset.py] dataset=sums tokenizer=digits arch.activation=sine
"""

import random
from dataclasses import dataclass

import torch

from highwater import option, register


@dataclass
class Sums:
    documents: int = option(2000, "documents of 20 sums", at_least=1)
    digits: int = option(2, "digits of each number at most", at_least=1, at_most=9)


@register.dataset("sums", options=Sums)
def sums(options):
    """Documents, each a str. It runs once, and its text is kept in Datasets/."""
    draw = random.Random(0)
    for _ in range(options.documents):
        pairs = [(draw.randrange(10**options.digits), draw.randrange(10**options.digits)) for _ in range(20)]
        yield "".join(f"{a}+{b}={a + b}\n" for a, b in pairs)


@register.tokenizer("digits")
def digits(options):
    """A tokenizers.Tokenizer with an id for each character and one for the end of a document."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {character: id for id, character in enumerate("0123456789+=\n")} | {"<unk>": 13}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


@register.arch_option("activation", "sine")
def sine(x: torch.Tensor) -> torch.Tensor:
    """An activation: a function of one tensor that keeps its shape."""
    return x * torch.sin(x)
