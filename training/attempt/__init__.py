"""The start of an attempt: the run folder, the version of the code, and which code made which run."""
