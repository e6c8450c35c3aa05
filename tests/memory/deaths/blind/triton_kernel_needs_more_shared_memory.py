"""A kernel wants more on-chip shared memory than the card has: no memory of job or card is short."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 200
# ///

from kit import grow


class OutOfResources(Exception):
    """As triton.runtime.errors has it."""


OutOfResources.__module__ = "triton.runtime.errors"
weights = grow(50, seconds=2.0)
raise OutOfResources(
    "out of resource: shared memory, Required: 147456, Hardware limit: 101376. "
    "Reducing block sizes or `num_stages` may help."
)
