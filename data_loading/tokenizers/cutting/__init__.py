"""Places where a text can be cut without a change of an id, by the rules of its tokenizer."""
