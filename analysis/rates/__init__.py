"""Which learning rate is best, by size: from runs to a rate, an interval, a law over width, what to run next.

grid.py     runs as losses by rate, of each size
best.py     the vertex of the parabola at the lowest loss, and the rates between which the best is
law.py      eta* over width
advice.py   what is missing or at the edge, as commands
"""
