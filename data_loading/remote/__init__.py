"""Token sets in object stores and on web servers: downloaded while a run trains, verified, copied.

    address -> store -> stored_files -> download -> disk_budget -> set_cache -> stored_readers -> remote_set
                                            |
                                            v
                                         copy_set

`store` reads ranges of objects, `download` writes verified files, `disk_budget` keeps a folder within its
budget, and `set_cache` has the files of one set for the readers of a run; its thread downloads ahead.
"""
