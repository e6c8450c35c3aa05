"""Memory over the life of a run, on disk: stages, samples, stacks. What is here outlives the run."""
