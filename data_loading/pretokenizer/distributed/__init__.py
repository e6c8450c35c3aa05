"""Several tasks make one token set: each takes whole inputs and writes whole shards.

task_plan.agree --------> .SET.tasks/plan.json        the same inputs, tokenizer and options for all tasks
task.pretokenize_task --> .SET.tasks/00003-of-00016/  an ordinary set of shards, with its own journal
merge.merge ------------> SET/                        hard links of all shards under one manifest
"""
