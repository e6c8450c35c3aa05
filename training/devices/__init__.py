"""The device of a run, its threads, numbers and errors."""
