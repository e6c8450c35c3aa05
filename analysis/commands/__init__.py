"""Commands of `python -m analysis`, a module each."""
