"""Several datasets read as one, in exact proportions.

pattern -> schedule -> streaming_mixture
"""
