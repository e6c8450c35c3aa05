"""A study as one page of HTML, which is a file that needs no network, or follows the runs live.

details.py        facts of a run that are not in its row: commits, versions, time
families.py       runs that differ in nothing but a seed or a learning rate
downsample.py     the curve of a run in some tens of points
summary_text.py   the summary
study_page.py     the page, section by section; a module each: runs, curve_figure, parallel, learning_rates,
                  laws, memory_section, failures, configs, origins
"""
