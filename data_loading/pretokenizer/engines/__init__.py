"""Engines that turn text into ids, the choice of one, and its comparison with the reference."""
