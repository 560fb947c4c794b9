"""A streaming driver to be killed: LOG_DIRECTORY OUTPUT OFFSETS_A_TRIGGER; says when it starts."""

import sys

from spark_integration.session import local_session

directory, output, offsets = sys.argv[1:]
session = local_session("killed", brief=True)
query = (
    session.readStream.format("replog")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", offsets)
    .load(directory)
    .writeStream.format("parquet")
    .option("checkpointLocation", f"{output}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{output}/out")
)
print("started", flush=True)
query.awaitTermination()
session.stop()
