"""Jobs over segment files: each a function, each a command `replog spark ...`.

A job plans on the driver and hands tasks, plain values, to an engine: threads of this process, or
Spark's executors. What a task needs it opens by path, so every directory must be visible under the
same path wherever tasks run.
"""
