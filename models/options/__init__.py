"""Facts of a model that follow from its keys before it is built. No torch."""
