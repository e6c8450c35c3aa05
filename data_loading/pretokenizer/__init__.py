"""Text to token sets, once: sources, safe cuts, engines, threads that encode, the files written.

Import the file that has the idea; `job.pretokenize` is the whole of it.
"""
