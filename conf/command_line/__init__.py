"""The command line: flags, overrides, sweeps, help."""
