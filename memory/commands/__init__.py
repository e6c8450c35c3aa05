"""Commands of `python -m memory`: each module has `add_parser(subparsers)` and `run(options) -> int`."""
