"""`python -m data_loading COMMAND`: a module for each."""
