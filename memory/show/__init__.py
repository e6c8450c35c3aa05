"""Screens of `python -m memory` and `watch`: a machine, a process or a running run."""
