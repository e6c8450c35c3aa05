"""Several datasets read as one, in exact proportions: weights -> pattern -> schedule -> dataset."""
