"""Token sets in object stores and on web servers: fetched as they are used, verified, copied.

    s3://, r2://, https:// --store--> ranges of bytes --download--> verified files --cache--> reader

`helper` is the process that fetches; `remote_set` is what a run sees.
"""
