"""Yaml files and overrides to one checked configuration with an identity."""
