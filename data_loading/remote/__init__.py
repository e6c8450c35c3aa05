"""Token sets in object stores and on web servers: downloaded while a run trains, verified, copied.

    address -> store -> download -> cache -> set_cache -> readers -> remote_set -> from_config
                            |                    ^
                            v                    |
                          copy_set           prefetcher (a thread of the run)

`store` reads ranges of objects, `download` writes verified files, `cache` keeps a folder within its budget,
and `set_cache` holds the files of one set for the readers of a run.
"""
