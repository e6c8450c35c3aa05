"""Tokenizers: found, read, validated, and the rules by which their texts may be cut."""
