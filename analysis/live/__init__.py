"""A page on 127.0.0.1 that follows the runs of a study as they go.

follow.py   the study, read again every few seconds: what changed since a reader last asked
server.py   who may ask, and what is answered
page.py     the page, which live.js keeps up
"""
