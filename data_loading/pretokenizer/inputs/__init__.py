"""Everything that one command reads, as one source: names to files, files one after another, limits, leakage."""
