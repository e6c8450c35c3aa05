"""Token sets on disk.

set_files (names) -> read_manifest -> shards (arrays) -> checksums -> token_set (open)
"""
