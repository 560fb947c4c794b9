"""The data source `replog`: `spark.read.format("replog").load(path)`, batch, columnar.

Paths may be log directories or partition directories. Nothing heavy is imported here: Spark imports
this module in every session that looks for data sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from spark_integration.schema import DDL

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ReplogDataSource(DataSource):
    """Segment files, replog's or Kafka's, as a DataFrame in the shape of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "replog"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_integration.reader import ReplogReader

        fields = [
            (field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields
        ]
        return ReplogReader(dict(self.options), fields)
