"""Memory that a run will need, and memory that is available, before anything is allocated."""
