"""Streams of the hub: a dataset that is read and tokenized as it comes.

hub -> stream_documents -> stream_windows, stream_held_out -> hub_stream -> stream_loader, open_stream
"""
