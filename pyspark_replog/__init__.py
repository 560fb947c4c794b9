"""Lets Spark find the data source `replog` by itself.

PySpark imports every installed top-level module named `pyspark_*` and takes its `DefaultSource`.
One module that fails there hides the sources of all others, so this one never raises: without a
PySpark that has the data source API there is nothing to offer.
"""

from __future__ import annotations

try:
    from spark_integration.source import ReplogDataSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
