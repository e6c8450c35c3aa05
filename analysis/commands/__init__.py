"""What `python -m analysis` does, a module a command."""
