"""Count and group on a cluster of two worker processes: LOG_DIRECTORY; prints one line of JSON.

Nothing registers the source: Spark has to find it by itself.
"""

import json
import os
import sys

import pyspark

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))

from pyspark.sql import SparkSession

from spark_integration.session import BRIEF_JVM, SETTINGS

builder = SparkSession.builder.master("local-cluster[2,1,768]").appName("cluster")
for name, setting in {
    **SETTINGS,
    "spark.executor.memory": "600m",
    "spark.driver.extraJavaOptions": BRIEF_JVM,
    "spark.executor.extraJavaOptions": BRIEF_JVM,
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
}.items():
    builder = builder.config(name, setting)
session = builder.getOrCreate()
session.sparkContext.setLogLevel("ERROR")
frame = (
    session.read.format("replog")
    .option("maxRecordsPerPartition", "100")
    .option("includeHeaders", "true")
    .load(sys.argv[1])
)
groups = frame.groupBy("topic", "partition").count().collect()
executors = session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print(
    json.dumps(
        {
            "rows": {f"{row['topic']}-{row['partition']}": row["count"] for row in groups},
            "tasks": frame.rdd.getNumPartitions(),
            "executors": executors,
        }
    )
)
session.stop()
