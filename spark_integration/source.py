"""The data source `replog`: `spark.read.format("replog").load(path)`, batch and stream, columnar.

Paths may be log directories or partition directories. Nothing heavy is imported here: Spark imports
this module in every session that looks for data sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from replog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ReplogDataSource(DataSource):
    """Segment files, replog's or Kafka's, as a DataFrame in the shape of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "replog"

    def schema(self) -> str:
        """The columns that the options ask for. Raises UsageError."""
        from spark_integration.options import asked_columns
        from spark_integration.schema import ddl

        return ddl(asked_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query. Raises UsageError."""
        from spark_integration.options import SourceOptions
        from spark_integration.pushdown import reader_class

        options = SourceOptions.batch(self.options)
        return reader_class(options)(options, _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a streaming query. Raises UsageError."""
        from spark_integration.options import SourceOptions

        try:
            from spark_integration.stream import ReplogStreamReader
        except ImportError as error:
            raise UsageError(
                f"expected PySpark 4.2 or newer for streaming queries, found one without {error}; "
                f"upgrade it, or read with spark.read"
            ) from error
        return ReplogStreamReader(SourceOptions.stream(self.options), _columns(schema))


def _columns(schema: StructType) -> Sequence[str]:
    from spark_integration.schema import check_columns

    return check_columns(
        [(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]
    )
