"""What the supervisor is made of. Standard library only; each megabyte counts (see `lean`)."""
