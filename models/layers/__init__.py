"""Parts of a model."""
