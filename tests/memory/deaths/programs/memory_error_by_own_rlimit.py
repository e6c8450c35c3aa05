"""The run limits its own data segment."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# limit_mb = 1000
# ///

import resource

from kit import MB, grow

resource.setrlimit(resource.RLIMIT_DATA, (150 * MB, 150 * MB))
grow(400, seconds=4)
