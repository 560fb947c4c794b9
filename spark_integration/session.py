"""A small local Spark session for the command line, the quickstart and the tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from replog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
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
}
# Errors only, on stderr: what Spark says at its start is not about the user's files.
LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""
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
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None or int(version[1]) < JAVA_MIN:
        found = version[1] if version else told.strip() or "one that does not run"
        return f"expected Java {JAVA_MIN} or newer for Spark, found {found} at {java}; install it"
    return None


def is_running() -> bool:
    """Whether this process has a Spark session, which `local_session` would answer."""
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


@contextmanager
def _quiet_configuration() -> Iterator[None]:
    """A Spark configuration directory that only says how to log, unless the user has one."""
    if "SPARK_CONF_DIR" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "log4j2.properties"), "w", encoding="utf-8") as file:
            file.write(LOGGING)
        os.environ["SPARK_CONF_DIR"] = directory
        try:
            yield
        finally:
            del os.environ["SPARK_CONF_DIR"]


def local_session(
    application: str, *, cores: int = 2, brief: bool = False, memory: str = "1g"
) -> SparkSession:
    """A session in this process that knows the source `replog`. Raises UsageError without Java.

    brief: for small queries only. memory: heap of its JVM. The caller stops the session.
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
    builder = builder.config("spark.driver.memory", memory)
    for name, setting in SETTINGS.items():
        builder = builder.config(name, setting)
    if brief:
        builder = builder.config("spark.driver.extraJavaOptions", BRIEF_JVM)
    with _quiet_configuration():
        session = builder.getOrCreate()
    session.dataSource.register(ReplogDataSource)
    return session
