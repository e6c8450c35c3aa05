"""A Spark driver reaches its -Xmx while the job has plenty left; the Python side raises after it."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# limit_mb = 300
# ///

import subprocess
import sys

DRIVER = """
import sys, time
heap = [bytearray(b"x") * (1 << 20) for _ in range(60)]
time.sleep(2)
sys.stderr.write('''24/03/07 11:02:41 ERROR Executor: Exception in task 3.0 in stage 7.0 (TID 91)
java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)
\tat java.base/java.io.ByteArrayOutputStream.ensureCapacity(ByteArrayOutputStream.java:100)
\tat org.apache.spark.util.ByteBufferOutputStream.write(ByteBufferOutputStream.scala:41)
24/03/07 11:02:41 INFO ShutdownHookManager: Shutdown hook called
''')
sys.exit(52)
"""
driver = subprocess.run([sys.executable, "-c", DRIVER])
if driver.returncode != 0:
    raise ConnectionError(f"py4j: the Java gateway process exited with {driver.returncode}")
