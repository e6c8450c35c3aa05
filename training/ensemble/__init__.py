"""Runs of one shape trained as one program (`ensemble=`), each in its own ordinary run folder.

attempt        one attempt of all runs: lock their folders, begin, train, end each
size_probe     number of runs to train at a time
ensemble_loop  the loop: joint steps, evaluations and checkpoints of each run
step           one step: a batch of each run, one forward and backward pass, one update of each
update         gradients clipped and optimizers stepped together
graphed        the pass of all runs as one CUDA graph
evaluation     one pass over the held-out windows for all runs
allocator      keeps freed memory for the next step
member_log     lines about one run go to its own log.txt
"""
