"""All inputs of one command as one source: names to files, files one after another, limits, leakage."""
