"""From step 70 on an average of the weights is kept as well: memory rises once, and then no more."""

# /// case
# kind = "healthy"
# limit_mb = 170
# ///

from kit import MB, as_a_run, over

from memory import stage

weights = bytearray(b"x") * (60 * MB)
averages: list[bytearray] = []


def train(step: int) -> None:
    with stage("train", step=step):
        if step == 70:
            averages.append(bytearray(weights))
        scratch = bytearray(b"x") * (4 * MB)
        del scratch


with as_a_run():
    over(6.0, 100, train)
