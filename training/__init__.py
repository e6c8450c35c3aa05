"""Parts of a training run: plan, step, schedule, checkpoints, evaluation, metrics. core.train calls them in
order. Import the file that has the idea; importing this package loads no torch.
"""
