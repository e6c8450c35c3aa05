"""Parts that users add in files of their own, called plugins: models, optimizers, schedules, data, metrics.

A plugin is read twice. `read_source` reads its registrations and their options from its source, without
running it: `--help` and a typo in an option need no more. `load` runs it, in a training process or in a child
that checks it before anything is submitted.
"""
