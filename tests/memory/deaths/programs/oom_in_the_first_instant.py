"""Dead before the first sample is a second old."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# victim = "main"
# limit_mb = 100
# ///

held = bytearray(b"x") * (600 << 20)
