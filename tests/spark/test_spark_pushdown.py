"""The fault of PySpark 4.3.0 that keeps filters from being pushed down by default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from tests.spark.in_process import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SETTING = "spark.sql.python.filterPushdown.enabled"
MENDED = (
    "this PySpark no longer keeps a narrowed plan on the DataFrame: let the source push filters "
    "down by default from this version on, and say so in spark_integration/README.md"
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written(tmp_path_factory.mktemp("logs") / "orders-0", 100))


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.set(SETTING, "false")


def test_a_filtered_frame_loses_rows_in_its_next_query(pushing: SparkSession, log: str) -> None:
    frame = pushing.read.format("replog").option("pushdown", "true").load(log)
    assert frame.where("offset >= 90").count() == 10
    assert frame.count() == 10, MENDED
    union = pushing.read.format("replog").option("pushdown", "true").load(log)
    assert union.union(union.where("offset >= 90")).count() == 20, MENDED


def test_one_filter_for_each_load_gives_the_right_rows(pushing: SparkSession, log: str) -> None:
    def frame() -> object:
        return pushing.read.format("replog").option("pushdown", "true").load(log)

    assert frame().where("offset >= 90").count() == 10
    assert frame().count() == 100
    assert frame().where("timestamp < '1971-01-01'").count() == 0
    assert frame().where("topic = 'orders' and partition = 0 and offset < 7").count() == 7


@pytest.mark.parametrize("setting", ["true", "false"])
@pytest.mark.parametrize("option", ["true", "false"])
def test_without_both_option_and_setting_each_query_is_right(
    spark: SparkSession, log: str, setting: str, option: str
) -> None:
    if setting == option == "true":
        pytest.skip("both are on: that is the other test")
    spark.conf.set(SETTING, setting)
    try:
        frame = spark.read.format("replog").option("pushdown", option).load(log)
        assert frame.where("offset >= 90").count() == 10
        assert frame.count() == 100
        assert frame.union(frame.where("offset >= 90")).count() == 110
    finally:
        spark.conf.set(SETTING, "false")
