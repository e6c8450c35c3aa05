"""One run on several processes: which of them this is, how they meet, what they agree on, how they end.

    place       which rank this process is, from the environment
    rendezvous  all ranks meet at one store, or an error names those that did not come
    ranks       collectives and agreements of a training loop
    watch       all ranks learn of the first failing rank, and none hangs
    parallel    the model under DDP or FSDP2, its whole state

Only a run of several ranks imports torch.distributed.
"""
