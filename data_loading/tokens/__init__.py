"""Token sets on disk: arrays, shards, manifests, checksums."""
