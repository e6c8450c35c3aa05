"""Rules between keys of a configuration."""
