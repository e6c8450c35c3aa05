"""Places where a text may be cut without a change of any id, by the rules of its tokenizer."""
