"""Token files of other programs, read in place: one file a format, recognized by content.

    path --recognize--> Kind --open--> SplitLayout (all, or train and val) --foreign_set--> Tokens

Nothing is copied or converted. The writers in `export_formats` use the layouts of the same files.
"""
