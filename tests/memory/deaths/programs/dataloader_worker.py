"""A worker of torch's DataLoader is killed by the kernel; the main process raises in torch's words."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# victim = "child"
# limit_mb = 700
# needs = ["torch"]
# ///

import torch
from kit import MB
from torch.utils.data import DataLoader, Dataset

held = []


class Growing(Dataset):
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        held.append(bytearray(b"x") * MB)
        return torch.zeros(4)


if __name__ == "__main__":
    for _ in DataLoader(Growing(), batch_size=2, num_workers=1):
        pass
