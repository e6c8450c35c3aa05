"""Datasets of the Hugging Face hub, by name: streamed, or tokenized into a set once."""
