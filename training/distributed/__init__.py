"""One run on several processes: which of them this is, how they meet, what they agree on, how they end.

    place       which rank this process is, from the environment
    rendezvous  all ranks come to one store, or an error says which did not
    ranks       what a training loop asks of the others
    watch       the first failing rank is known to all, and nobody hangs
    parallel    the model under DDP or FSDP2, its whole state

The names are loaded where they are used: only a run of several ranks loads torch.distributed.
"""
