"""Memory at one moment: a process, its children, its cgroup, its GPU, the machine, and limits."""
