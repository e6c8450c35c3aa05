"""Laws of loss against size, and how far they can be trusted.

points.py      runs to (x, loss), which of them count, what must be equal
power.py       L = E + A x^-alpha
chinchilla.py  L = E + A N^-alpha + B D^-beta
line.py        a straight line, and how sure its slope is
optimize.py    the lowest point of a cost, from many starts
isoflop.py     at equal compute, the best size
envelope.py    the lowest loss that any run had at each compute
uncertainty.py bootstrap, profile of E, leaving one out, for any law
"""
