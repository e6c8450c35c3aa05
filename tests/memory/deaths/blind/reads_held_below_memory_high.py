"""A corpus larger than memory.high is read twice: the kernel frees pages of files, and no more happens."""

# /// case
# kind = "healthy"
# limit_mb = 200
# high_mb = 90
# needs = ["v2"]
# ///

from kit import MB, grow, written_file

model = grow(25, seconds=1)
corpus = written_file(140)
for _ in range(2):
    with open(corpus, "rb") as file:
        while file.read(MB):
            pass
