"""The base package, below every room: files, errors, quantities, arguments.

It imports the standard library alone and no room. Import from the module that has the idea.
"""
