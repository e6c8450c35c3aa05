"""The first matrix product finds no room on the device for cuBLAS, which has its own words for that."""

# /// case
# kind = "death"
# verdict = ["oom_gpu"]
# limit_mb = 200
# ///

from kit import grow

parameters = grow(80, seconds=2.0)
raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
