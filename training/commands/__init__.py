"""Commands of `python -m training`: each module has `add_parser(subparsers)` and `run(options) -> int`."""
