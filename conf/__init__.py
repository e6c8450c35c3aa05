"""Configuration: the yaml groups, their typed schema, and the names of every choice.

Imports no other room and no torch.
"""

from conf.schema import AUTO, Config

__all__ = ["AUTO", "Config"]
