"""Parent process of a run, which watches it from outside. Standard library only: it must stay small."""
