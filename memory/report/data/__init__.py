"""A run's memory as data: read from its folder, ready to be drawn.

thin, moments, stage_rows <- history <- processes, ending <- run_json, comparison
"""
