"""A file is read again and again past the limit: the limit is hit thousands of times, nobody is killed."""

# /// case
# kind = "healthy"
# limit_mb = 60
# ///

from kit import MB, written_file

path = written_file(200)
for _ in range(6):
    with open(path, "rb", buffering=0) as file:
        while file.read(MB):
            pass
