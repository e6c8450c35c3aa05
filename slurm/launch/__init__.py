"""Processes of runs on this machine, and the code that they run."""
