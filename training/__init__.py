"""Everything of a training run but its story (core.train tells that): plan, step, schedule,
checkpoints, evaluation, metrics. Import the file that has the idea; importing this loads no torch.
"""
