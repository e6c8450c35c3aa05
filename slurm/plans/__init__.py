"""Plans of all runs of a sweep, shown by plan=true."""
