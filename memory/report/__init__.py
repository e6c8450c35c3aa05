"""Memory of a run for people: by stage, over time, by process; in a terminal, as a PNG, as one HTML page.

`page.Page` is a self-contained HTML page of any content, `chart.Chart` what it draws: they know nothing of
memory, and other rooms use them.
"""
