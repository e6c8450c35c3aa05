"""A page on 127.0.0.1 that follows the runs of a study: the report, read again every few seconds.

follower.py reads the study again and keeps the sections that changed
server.py   answers readers that have the token
live.js     replaces the sections on the reader's page
"""
