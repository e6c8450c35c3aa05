"""The hub of Hugging Face: names of datasets, and what is asked of its client.

named_datasets -> hub_uri -> client
"""
