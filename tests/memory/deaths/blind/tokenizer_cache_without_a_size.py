"""An unbounded cache around the tokenizer keeps every document of the training: each step leaks."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["leak", "growth"]
# victim = "main"
# limit_mb = 140
# ///

from functools import cache

from kit import as_a_run, over

from memory import stage


@cache
def tokens(document: str) -> list[int]:
    return [hash((document, position)) for position in range(600)]


def train(step: int) -> None:
    with stage("train", step=step):
        for sample in range(60):
            tokens(f"document {step}/{sample}")


with as_a_run():
    over(8.0, 200, train)
