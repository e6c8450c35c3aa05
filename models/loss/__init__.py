"""The loss of a language model and its kernels."""
