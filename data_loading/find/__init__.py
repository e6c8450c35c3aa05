"""From a name, a path or a configuration to prepared data."""
