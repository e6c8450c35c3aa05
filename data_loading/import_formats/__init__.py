"""Token files of other programs, read as they lie: one file a format, which is known by its content.

    a path --recognize--> a kind --open--> layouts (all, or train and val) --ForeignSet--> Tokens

Nothing is copied or converted: a layout says which runs of which files hold the tokens.
"""
