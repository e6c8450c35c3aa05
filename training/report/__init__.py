"""Records and messages of a run while it trains."""
