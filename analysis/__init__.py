"""From run folders to answers: pages, pictures, tables, fits. Loads no torch, and nothing early."""
