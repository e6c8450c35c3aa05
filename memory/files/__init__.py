"""Files of /proc, /sys and of runs, read fast and without raising, and written whole."""
