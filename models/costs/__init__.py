"""Bytes that training holds of a model, by formula. No torch."""
