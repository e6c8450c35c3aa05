"""Commands of `python -m data_loading` and `pretokenize_dataset.py`, one module each."""
