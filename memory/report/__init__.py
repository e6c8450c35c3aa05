"""Reports of a run's memory: text for a terminal, one HTML page, PNG pictures, JSON.

data                                        reads a run folder: attempts, tracks, moments, stages
  ^
run_charts -> chart                         the specification of each figure, drawn by
               ^   ^                          drawing (matplotlib, for files)
               |   |                          page (uPlot, for pages)
run_report, comparison_report               sections, put on a page or into plain_text
"""
