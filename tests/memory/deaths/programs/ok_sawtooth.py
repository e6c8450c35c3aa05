"""Each epoch takes 70% of the limit and gives it back."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

from kit import as_a_run, grow

from memory import stage

with as_a_run():
    for epoch in range(5):
        with stage("epoch", step=epoch):
            held = grow(85, seconds=0.6)
            del held
