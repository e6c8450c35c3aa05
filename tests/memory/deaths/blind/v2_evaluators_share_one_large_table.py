"""Four forked evaluators read one table; the sum of their resident sets is far above the limit."""

# /// case
# kind = "healthy"
# limit_mb = 150
# needs = ["v2"]
# ///

from kit import MB, forked, over, wait_for

table = bytearray(b"x") * (70 * MB)


def evaluate() -> None:
    over(5.0, 70, lambda number: table.count(b"y", number * MB, (number + 1) * MB))


evaluators = [forked(evaluate) for _ in range(4)]
assert all(wait_for(pid) == 0 for pid in evaluators)
