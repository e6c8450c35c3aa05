"""A study as one page of HTML that needs no network.

details.py    facts of a run that are not in its row: commits, versions, time
setups.py     runs that differ by nothing but a seed, or a learning rate
thin.py       the curve of a run in some tens of points
words.py      the summary
page.py       the page, section by section; a module each: runs, curves, parallel, learning_rates, laws,
              memory_use, failures, configs, origins
"""
