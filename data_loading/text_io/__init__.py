"""Bytes and text of files: compression, content hashes, encodings, chunks of documents."""
