"""Runs of one shape trained as one program (`ensemble=`), each in its own ordinary run folder.

company    who is trained with whom, and from which step on
attempt    one attempt of all of them: folders locked, begun, trained, each with its own end
together   the loop: steps together, evaluations and checkpoints of each
step       one step: a batch of each, one forward and backward pass, a move of each
probe      how many go together
allocator  memory of the size of many runs' activations comes again and again
log        lines about one run go to its own log.txt
"""
