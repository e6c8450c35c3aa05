"""A tokenizer is trained: the counts of all pairs of words of its corpus do not fit the job."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "main"
# limit_mb = 150
# ///

import random
import time
from collections import Counter
from itertools import pairwise

from kit import as_a_run

from memory import stage

chance = random.Random(1)
with as_a_run():
    with stage("read_corpus"):
        words = [f"word{number}" for number in range(40_000)]
        time.sleep(0.5)
    with stage("count_pairs"):
        pairs: Counter[tuple[str, str]] = Counter()
        while True:
            document = chance.choices(words, k=8_000)
            pairs.update(pairwise(document))
            time.sleep(0.03)
