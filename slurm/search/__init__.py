"""Random and Sobol search with successive halving: `hydra/sweeper=halving`.

    space           searched keys -> candidates
    rungs           runs and budget of each rung, and the runs that continue
    search_request  a whole search, read from a request and checked: what `plan=true` shows
    halving         one rung after another, through whatever starts the runs

Importing the package loads nothing.
"""
