"""A small local Spark session for the command line, the quickstart and the tests."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from replog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What makes a one-shot local session start quickly; none of it changes an answer.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
# A JVM that starts sooner and never optimizes: for many small queries, not for one large.
BRIEF_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def missing() -> str | None:
    """What a Spark session lacks on this machine, as a sentence; None if nothing."""
    try:
        import pyspark.sql.datasource  # noqa: F401
    except ImportError:
        return "expected PySpark 4.1 or newer, found none; run: pip install 'replog[spark]'"
    java_home = os.environ.get("JAVA_HOME")
    java = os.path.join(java_home, "bin", "java") if java_home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        return "expected Java 17 or newer for Spark, found none; install it or set JAVA_HOME"
    return None


def local_session(application: str, *, cores: int = 2, brief: bool = False) -> SparkSession:
    """A session in this process that knows the source `replog`. Raises UsageError without Java.

    brief: for small queries only. The caller stops the session.
    """
    problem = missing()
    if problem is not None:
        raise UsageError(problem)
    from pyspark.sql import SparkSession

    from spark_integration.source import ReplogDataSource

    # Workers run `python3` from PATH unless told otherwise, which need not have replog.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores}]").appName(application)
    for name, setting in SETTINGS.items():
        builder = builder.config(name, setting)
    if brief:
        builder = builder.config("spark.driver.extraJavaOptions", BRIEF_JVM)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(ReplogDataSource)
    return session
