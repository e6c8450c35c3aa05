"""The first collective of a rank finds the device full: NCCL reports an unhandled CUDA error."""

# /// case
# kind = "death"
# verdict = ["oom_gpu"]
# limit_mb = 200
# ///

import sys

from kit import grow

MESSAGE = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "train.py", line 212, in <module>
[rank3]:     dist.all_reduce(loss)
[rank3]:   File "torch/distributed/c10d_logger.py", line 83, in wrapper
[rank3]:     return func(*args, **kwargs)
[rank3]:   File "torch/distributed/distributed_c10d.py", line 2501, in all_reduce
[rank3]:     work = group.allreduce([tensor], opts)
[rank3]: torch.distributed.DistBackendError: NCCL error in: \
../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled cuda error \
(run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5
[rank3]: ncclUnhandledCudaError: Call to CUDA function failed.
[rank3]: Last error:
[rank3]: Cuda failure 2 'out of memory'
"""
parameters = grow(60, seconds=2.0)
sys.stderr.write(MESSAGE)
sys.exit(1)
