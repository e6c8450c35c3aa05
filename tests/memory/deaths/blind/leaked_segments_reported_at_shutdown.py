"""Segments of shared memory are not unlinked; Python's resource tracker warns of a leak and removes them."""

# /// case
# kind = "healthy"
# limit_mb = 160
# shm_mb = 120
# ///

from multiprocessing.shared_memory import SharedMemory

from kit import MB, over

segments: list[SharedMemory] = []


def share(number: int) -> None:
    segment = SharedMemory(create=True, size=5 * MB)
    segment.buf[:] = b"x" * (5 * MB)
    segments.append(segment)


over(4.0, 16, share)
for segment in segments:
    segment.close()
