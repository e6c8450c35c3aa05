"""Checks of a token set and of its exports, and statistics of it.

check_set (files, checksums, documents, sources) -> --deep: encode_again; check_exports -> findings
"""
