"""How spans of tokens are read: one face, the same bytes from each kind."""
