"""Random and Sobol search with successive halving: `hydra/sweeper=halving`.

    space    what is searched -> candidates
    rungs    how many run for how long; which of them go on
    asked    all of it, read from a request and checked: what `plan=true` shows
    halving  one rung after the other, through whatever starts the runs

Importing the package loads nothing.
"""
